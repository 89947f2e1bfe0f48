"""`make docs` builds a site without a broken link, and no page of it loads anything from elsewhere."""

import importlib
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"audits", "corpus", "formats", "integrations", "models", "statistics"}
LINK = re.compile(r"<(?:a|link|img|script)\b[^>]*?\b(?:href|src)=(\"[^\"]*\"|[^\s>]+)")
LOADED = re.compile(r"<(?:link|img|script|iframe)\b[^>]*?\b(?:href|src)=\"?(https?:)?//")
ANCHOR = re.compile(r"\b(?:id|name)=\"?([^\"\s>]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    surroundings = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def pages(site):
    return {path: path.read_text("utf-8") for path in site.rglob("*.html")}


def test_every_link_leads_to_a_page_and_a_heading(site):
    texts = pages(site)
    anchors = {path: {unescape(one) for one in ANCHOR.findall(text)} for path, text in texts.items()}
    broken = []
    for path, text in texts.items():
        if path.name == "404.html":
            continue  # its links are from the root of a host
        for link in (unescape(found.strip('"')) for found in LINK.findall(text)):
            name, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link) or link in {"", "."}:
                continue
            target = (path.parent / unquote(name)).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            known = anchors.get(target)
            if not target.exists() or (anchor and known is not None and unquote(anchor) not in known):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site):
    assert [path.name for path, text in pages(site).items() if LOADED.search(text)] == []
    styles = [
        path.name for path in site.rglob("*.css") if re.search(r"url\(\W*(https?:)?//", path.read_text())
    ]
    assert styles == []


@pytest.mark.parametrize("name", ["", *(f".{name}" for name in sorted(PACKAGES))])
def test_every_exported_name_is_on_a_page_of_the_api(site, name):
    package = importlib.import_module(f"coalmine{name}")
    page = (site / "reference" / "api" / f"{(name or '.coalmine')[1:]}.html").read_text("utf-8")
    assert [one for one in package.__all__ if f'id="coalmine{name}.{one}"' not in page] == []


def test_examples_in_docstrings_are_code():
    from scripts.docstring_examples import fenced

    docstring = "Adds.\n\n>>> 1 + 1\n2\n>>> for one in (1,):\n...     print(one)\n1\n\nAnd more."
    shown = "Adds.\n\n```pycon\n>>> 1 + 1\n2\n>>> for one in (1,):\n...     print(one)\n1\n```\n\nAnd more."
    assert fenced(docstring) == shown
    assert fenced("Nothing to run.") == "Nothing to run."

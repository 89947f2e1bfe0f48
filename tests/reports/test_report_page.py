"""The report: one file that loads nothing, says what the results say, shows no secret, and in which hostile text is text."""

import base64
import hashlib
import json
import re
import shutil
import stat
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coalmine
from cli.in_process import run as run_command
from coalmine import Canary, CanarySet, Format, ScriptedModel, expose, read_run, read_runs
from coalmine.evidence.pages import embedded_json, escaped
from coalmine.reports.conclusion import comparing_figures, reported
from coalmine.reports.export import as_json, as_junit, as_markdown, as_sarif
from coalmine.reports.findings import Finding
from coalmine.reports.page.html import report_page
from coalmine.visible import visible
from reports import report_runs as made
from resealing import resealed

HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>\x1b[2J\u202e`*_[x](http://x)"


class Elements(HTMLParser):
    """All elements of a page with their attributes, and the text of scripts."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.text, self._inside = [], [], [], None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):  # noqa: ARG002 - the parser's own signature
        self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)
        elif self._inside != "style":
            self.text.append(data)


@pytest.fixture(scope="module")
def full_run(tmp_path_factory):
    """A run in which everything was tested that can be."""
    directory = tmp_path_factory.mktemp("full")
    canaries = made.audited_run(directory, claimed_epsilon=1.0)
    made.save_training(directory, watched=made.watch_records(canaries))
    made.recitation(baseline_hits=(1, 1, 1, 1)).save(directory / "recitation")
    return directory


@pytest.fixture(scope="module")
def run(full_run):
    return read_run(full_run)


@pytest.fixture(scope="module")
def page(run):
    return report_page([run])


def test_the_page_is_one_file_that_loads_nothing(page):
    assert len(page.encode()) < 2_000_000
    parsed = Elements(page)
    for tag, attributes in parsed.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "#").startswith("#")
    policy = next(a["content"] for t, a in parsed.elements if t == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    run_scripts = [
        text for attributes, text in parsed.scripts if attributes.get("type") != "application/json"
    ]
    assert len(run_scripts) == 2
    for text in run_scripts:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory):
    """A run in which every text that comes from outside is an attack."""
    directory = tmp_path_factory.mktemp("hostile")
    form = Format("</script><script>x {digits:2}")
    characters = sorted(set(form.at(0)) | set("0123456789"))
    listed = [
        Canary(canary_id=f"{HOSTILE}{n}", format_id="</title>", text=form.at(n), repetitions=2, planted=n < 5)
        for n in range(7)
    ]
    canaries = CanarySet(
        listed, {"</title>": form}, references={"</title>": [form.at(n) for n in range(20, 60)]}
    )
    model = ScriptedModel("".join(characters), memory={form.at(1): 0.9}, name=HOSTILE)
    canaries.save(directory / "canaries.json")
    expose(model, canaries).save(directory / "exposure")
    made.save_verified(directory / "extraction", model, canaries)
    made.name_weights(directory, HOSTILE)
    return directory


@pytest.mark.parametrize("reveal", [False, True])
def test_hostile_text_is_text(hostile_run, reveal):
    told = read_runs(hostile_run)
    page = report_page(told, reveal=reveal)
    parsed = Elements(page)
    scripts = [attributes for attributes, _ in parsed.scripts]
    assert scripts == [{"type": "application/json", "id": "report-data"}, {}, {}]
    assert not [tag for tag, _ in parsed.elements if tag == "img"]
    assert "\x1b" not in page
    assert "\u202e" not in page
    store = json.loads(parsed.scripts[0][1])
    assert any(visible(HOSTILE) in row[0] for row in store["figures"]["exposure-by-repetitions"]["rows"])


def test_hostile_text_is_text_for_machines_too(hostile_run):
    told = reported(read_runs(hostile_run))
    for content in (as_junit(told), as_sarif(told), as_markdown(told).encode()):
        assert b"\x1b" not in content
        assert "\u202e".encode() not in content
    assert "<" not in as_markdown(told)
    ET.fromstring(as_junit(told))
    json.loads(as_sarif(told))


@given(st.text())
def test_embedded_text_comes_back_and_cannot_end_its_element(text):
    embedded = embedded_json({"text": text})
    assert json.loads(embedded) == {"text": text}
    assert not set(embedded) & set("<>&\u2028\u2029")
    assert not set(escaped(text)) & set("<>\"'\x00\x1b\u202e")


@pytest.mark.parametrize(
    "template", sorted(Path(coalmine.__file__).parent.rglob("*.html")), ids=lambda path: path.name
)
def test_templates_write_values_one_by_one(template):
    """Only a value that is written is made visible; joining would escape it and no more, and `safe` not even that."""
    expressions = re.findall(r"\{[{%](.*?)[}%]\}", template.read_text("utf-8"), re.DOTALL)
    assert expressions
    for one in expressions:
        assert not re.search(r"~|\|\s*(join|safe|replace|string|xmlattr|tojson|urlize)\b", one), one


def test_secrets_are_hidden_unless_asked_for(full_run, run):
    secrets = [canary.text.removeprefix("my pin is ") for canary in run.canaries]
    told = reported([run])
    hidden = [
        report_page([run]),
        as_json(told).decode(),
        as_markdown(told),
        as_junit(told).decode(),
        as_sarif(told).decode(),
    ]
    for page in hidden:
        for secret in secrets:
            assert f"my pin is {secret}" not in page
        assert "once upon a time" not in page
        assert "there was a secret" not in page
    assert "my pin is ••••" in hidden[0]
    shown = report_page([run], reveal=True)
    assert all(f"my pin is {secret}" in shown for secret in secrets)
    # The recitation was made without --reveal: what it holds is not taken for what may be shown.
    assert "there was a secret" not in shown
    assert full_run.is_dir()


def test_addresses_carry_no_keys(full_run, tmp_path):
    shutil.copytree(full_run, tmp_path / "run")
    with resealed(tmp_path / "run" / "exposure" / "exposure.json") as document:
        document["model"]["address"] = "https://me:hunter2@host/v1?key=hunter3"
    page = report_page(read_runs(tmp_path / "run"))
    assert "https://•@host/v1?•" in page
    assert "hunter" not in page


def test_messages_for_machines_have_no_links_and_no_placeholders(run):
    name = "[see](https://evil) {0} www.evil.com"
    told = [one._replace(name=name) for one in reported([run])]
    for result in json.loads(as_sarif(told))["runs"][0]["results"]:
        assert result["message"]["text"].startswith(r"\[see\](https://evil) {{0}} ")
    said = as_markdown(told)
    assert "www." not in said
    assert "](" not in said.replace(r"\](", "")


def test_the_same_run_gives_the_same_bytes(full_run):
    assert report_page(read_runs(full_run)) == report_page(read_runs(full_run))


def test_two_runs_are_compared(tmp_path):
    for name, remembered in (("one", 0), ("two", 2)):
        made.audited_run(tmp_path / name, remembered=remembered, weights=name)
        made.save_training(tmp_path / name)
    runs = read_runs(tmp_path)
    (figure,) = comparing_figures(runs)
    assert [row[1] for row in figure.table] == ["one", "two"]
    text = "".join(Elements(report_page(runs)).text)
    assert "two: The model memorized 2 of 12 canaries" in text
    # Losses of other documents say nothing about each other: no frontier.
    made.save_training(tmp_path / "two", data_sha256="5" * 64)
    assert comparing_figures(read_runs(tmp_path)) == []


def test_machines_read_every_finding_with_its_status(run):
    told = reported([run])
    (one,) = json.loads(as_json(told))["runs"]
    findings = msgspec.convert(one["findings"], tuple[Finding, ...])
    assert [one.code for one in findings] == [one.code for one in told[0].findings]
    assert one["not_tested"] == ["secrets", "provenance"]
    suite = ET.fromstring(as_junit(told)).find("testsuite")
    cases = {case.get("name").split()[0]: case for case in suite}
    tags = {code: [part.tag for part in cases[code]] for code in ("CM101", "CM900", "CM105")}
    assert tags == {"CM101": ["failure"], "CM900": ["skipped"], "CM105": ["system-out"]}
    document = json.loads(as_sarif(told))
    (one,) = document["runs"]
    rules = {rule["id"] for rule in one["tool"]["driver"]["rules"]}
    for result in one["results"]:
        assert result["ruleId"] in rules
    assert {result["ruleId"]: result["level"] for result in one["results"]}["CM101"] == "error"


def test_the_command_writes_each_kind_and_texts_for_the_user_alone(full_run, tmp_path):
    for kind in ("html", "json", "junit", "sarif", "markdown"):
        ended = run_command("report", full_run, "--format", kind, "-o", tmp_path / kind)
        assert ended.code == 0, ended.said
        assert stat.S_IMODE((tmp_path / kind).stat().st_mode) == 0o644
    assert "The model memorized 2 of 12 canaries. 2 of 12 canaries can be extracted." in ended.said
    assert run_command("report", full_run, "--reveal", "-o", tmp_path / "shown.html").code == 0
    assert stat.S_IMODE((tmp_path / "shown.html").stat().st_mode) == 0o600
    assert run_command("report", full_run / "exposure", "--format", "png", "-o", tmp_path / "drawn").code == 0
    drawn = [path.read_bytes()[:4] for path in (tmp_path / "drawn").iterdir()]
    assert drawn
    assert set(drawn) == {b"\x89PNG"}
    assert run_command("report", full_run, "--reveal", "--format", "json").code == 2

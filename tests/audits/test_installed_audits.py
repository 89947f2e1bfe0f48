"""An audit of another package: one entry point brings it into the report, the gate, `verify`, and every list of what was not tested."""

import json
import os
import re
import subprocess
import sys
import textwrap

import pytest

from reports import report_runs as made

TOY = '''
"""A toy audit: how many of ten toys break."""

import msgspec

from coalmine.audits import Audit, Axis, Chart, Column, Document, Marks, Measure, Origin, Rule, Table
from coalmine.records import Estimate
from coalmine.statistics import clopper_pearson


class Toys(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "toys.broken/1"
    model: dict
    broken: int
    names: tuple[str, ...] = ()


TOYS = Document(
    record=Toys, schema="toys.broken/1", file="toys.json", title="toys",
    origin=Origin(model=lambda toys: toys.model),
)
ENTRIES = {
    "toys.broken": {
        "code": {"any": "TOY1"},
        "title": {"any": "Toys break"},
        "advice": {"any": "Glue them.", "clear": "Play on."},
        "question": "Do its toys break?",
        "answer": {"found": "Yes"},
        "sentence": {"found": "Its toys break."},
        "severity": {"high": 0.5},
        "clear_below": 0.5,
        "docs": "https://toys.example/TOY1",
    },
    "missing.toys": {
        "code": {"any": "TOY9"},
        "title": {"any": "Toys were not tested"},
        "says": {"any": "Nobody played"},
        "advice": {"any": "Run `toys play`."},
        "docs": "https://toys.example/TOY9",
    },
}
RULES = (
    Rule(key="toys.broken_at_most", of="toys.broken", says="broken toys at most {limit:g}", example=0.5, most=1.0, settle="play more"),
)


def measures(run):
    for _, toys in run.all(TOYS):
        low, high = clopper_pearson(toys.broken, 10)
        share = Estimate(
            method="share", status="measured", value=toys.broken / 10, low=low, high=high, confidence=0.95, n=10,
            statement=f"{toys.broken} of 10 toys broke",
        )
        yield Measure(key="toys.broken", estimate=share, p_value=0.1**toys.broken)


def figures(run):
    for _, toys in run.all(TOYS):
        yield Chart(
            id="toys", title="Broken toys", caption="How many broke.", columns=("broken",), rows=[{"broken": toys.broken}],
            x=Axis(column="broken"), y=Axis(column=""), marks=(Marks(kind="points"),),
        )


BROKEN = Table((Column("toy", str),))


def details(run, reveal):
    for _, toys in run.all(TOYS):
        yield BROKEN.detail(toys.names, section="Toys", caption="Toys that broke")


AUDIT = Audit(
    name="toys",
    command="toys play",
    documents=(TOYS,),
    measures=measures,
    rules=RULES,
    figures=figures,
    details=details,
    entries=ENTRIES,
)
'''
# What follows `import` or `from` in its code.
IMPORTED = re.compile(r"^(?:from|import) (coalmine[\w.]*)", re.MULTILINE)
HOSTILE = "<script>window.hacked=1</script>\x1b[2J\u202e"


def install(site, code):
    """Put a distribution with one module into a directory, as an installer would."""
    site.mkdir()
    (site / "toy_audit.py").write_text(textwrap.dedent(code))
    information = site / "coalmine_toys-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: coalmine-toys\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[coalmine.audits]\ntoys = toy_audit:AUDIT\n")
    (information / "RECORD").write_text("toy_audit.py,,\n")


@pytest.fixture(scope="module")
def coalmine(fork_server):
    """The command in a process of its own, in which the distribution of a site is installed."""

    def run(site, *arguments):
        return fork_server.run(arguments, before=["audits.installed_site:add", {"directory": str(site)}])

    return run


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = tmp_path_factory.mktemp("installed") / "site"
    install(site, TOY)
    return site


@pytest.fixture(scope="module")
def run(tmp_path_factory, site):
    """A run of our own audits that has a result of the toy audit too."""
    directory = tmp_path_factory.mktemp("run")
    made.audited_run(directory)
    model = json.loads((directory / "exposure" / "exposure.json").read_text())["model"]
    save = (
        "import sys, json, toy_audit\n"
        "toys = toy_audit.Toys(model=json.loads(sys.argv[2]), broken=9, names=tuple(json.loads(sys.argv[3])))\n"
        "toy_audit.TOYS.save(sys.argv[1], toys)"
    )
    subprocess.run(
        [sys.executable, "-c", save, str(directory), json.dumps(model), json.dumps(["duck", HOSTILE])],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])},
        check=True,
    )
    return directory


def test_it_needs_only_public_packages():
    assert set(IMPORTED.findall(TOY)) == {"coalmine.audits", "coalmine.records", "coalmine.statistics"}


def test_its_results_are_in_the_report(coalmine, site, run, tmp_path):
    page = tmp_path / "report.html"
    done = coalmine(site, "report", run, "-o", page)
    assert done.code == 0, done.err
    assert "Its toys break." in done.out
    content = page.read_text()
    for words in ("TOY1", "9 of 10 toys broke", "Glue them.", "Broken toys", "Toys that broke", "duck"):
        assert words in content
    # What it brings is treated like everything else from a run.
    assert not any(words in content for words in ("<script>window.hacked", "\x1b", "\u202e"))
    assert coalmine(site, "report", run, "--format", "json", "-o", tmp_path / "json").code == 0
    (document,) = json.loads((tmp_path / "json").read_text())["runs"]
    (finding,) = [one for one in document["findings"] if one["code"] == "TOY1"]
    assert (finding["severity"], finding["status"]) == ("high", "found")
    assert "toys" in document["tested"]


def test_without_results_it_was_not_tested(coalmine, site, tmp_path):
    made.audited_run(tmp_path / "run")
    done = coalmine(site, "report", tmp_path / "run", "--format", "json", "-o", tmp_path / "report.json")
    assert done.code == 0, done.err
    (document,) = json.loads((tmp_path / "report.json").read_text())["runs"]
    assert "toys" in document["not_tested"]
    (finding,) = [one for one in document["findings"] if one["code"] == "TOY9"]
    assert (finding["status"], finding["evidence"]) == ("not_tested", "Nobody played.")
    (tmp_path / "policy.toml").write_text('require = ["toys"]\n')
    done = coalmine(site, "check", tmp_path / "run", "--policy", tmp_path / "policy.toml", "--json")
    assert done.code == 2
    (rule,) = json.loads(done.out)["rules"]
    assert (rule["rule"], rule["settle"]) == ("require toys", "run `toys play`")


@pytest.mark.parametrize(("limit", "outcome", "code"), [(0.2, "broken", 1), (0.9, "not_shown", 2)])
def test_its_rules_are_checked(coalmine, site, run, tmp_path, limit, outcome, code):
    policy = tmp_path / "policy.toml"
    policy.write_text(f"[toys]\nbroken_at_most = {limit}\n")
    done = coalmine(site, "check", run, "--policy", policy, "--json")
    assert done.code == code, done.err
    (rule,) = json.loads(done.out)["rules"]
    assert (rule["rule"], rule["outcome"]) == ("toys.broken_at_most", outcome)


def test_its_files_are_verified(coalmine, site, run, tmp_path):
    assert coalmine(site, "verify", run).code == 0
    altered = tmp_path / "toys.json"
    altered.write_bytes((run / "toys.json").read_bytes().replace(b'"broken": 9', b'"broken": 0'))
    assert coalmine(site, "verify", tmp_path).code != 0

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
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coalmine
from cli.in_process import run as run_command
from coalmine import expose, read_run, read_runs
from coalmine.audits import EXPOSURES, MEMBERSHIPS, RECITATIONS
from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.membership.display import epsilon_figure
from coalmine.audits.recitation.report import recitation_figures
from coalmine.errors import InputError
from coalmine.evidence.pages import embedded_json, escaped, png_of
from coalmine.evidence.run import Located
from coalmine.randomness import arrays
from coalmine.records.documents import write_sealed
from coalmine.reports.conclusion import comparing_figures, figures_of, reported
from coalmine.reports.export import as_json, as_junit, as_markdown, as_sarif
from coalmine.reports.findings import Finding
from coalmine.reports.page.html import report_page
from coalmine.statistics import roc_curve, tpr_at_fpr
from coalmine.visible import visible
from reports import report_runs as made
from resealing import resealed, vouch_again

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
    # The recitation is of another description of the scripted model, so the files are read as one run by hand.
    runs = read_runs(full_run)
    first = next(one for one in runs if one.all(EXPOSURES))
    others = [one for one in runs if one is not first]
    recitations = tuple(located for one in others for located in one.all(RECITATIONS))
    return first.with_all(RECITATIONS, recitations)


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


def test_the_page_answers_first_then_shows(page):
    text = "".join(Elements(page).text)
    order = [
        "The model memorized 2 of 12 canaries. 2 of 12 canaries can be extracted.",
        "Did it memorize the canaries?",
        "Can they be extracted?",
        "What should I do?",
        "Exposure against repetitions",
        "What was found",
        "What could not be measured, and what was not tested",
        "Log-perplexity of members and canaries",
        "Canaries, the most exposed first",
        "Files that this report was made from",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "Provenance was not tested" in text
    ids = [attributes["id"] for _, attributes in Elements(page).elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_all_figures_are_there_and_can_be_drawn(run):
    figures = figures_of(run)
    assert [figure.id for figure in figures] == [
        "exposure-by-repetitions",
        "log-perplexity",
        "exposure-and-extraction",
        "losses",
        "exposure-during-training",
        "roc",
        "epsilon",
        "recitation-by-repetitions",
    ]
    for figure in figures:
        assert figure.table
        assert all(len(row) == len(figure.columns) for row in figure.table)
    assert png_of(figures[0]).startswith(b"\x89PNG")


def test_figures_show_what_was_measured(run):
    figures = {figure.id: figure for figure in figures_of(run)}
    rows = figures["exposure-by-repetitions"].table
    bits = {result.canary_id: result.exposure for result in run.first(EXPOSURES).results}
    assert {row[0]: row[4] for row in rows} == pytest.approx(bits, abs=1e-4)
    assert [row[4] for row in rows] == sorted((row[4] for row in rows), reverse=True)
    # The exact ranking scored all 10,000 members.
    assert sum(row[3] for row in figures["log-perplexity"].table) == 10_000


def test_the_roc_is_that_of_the_scores(tmp_path):
    generator = arrays(0, "report", "roc")
    references, planted = generator.normal(size=500), generator.normal(size=40) - 1.0
    from coalmine.statistics import reference_exposures

    results = [
        made.exposure_result(f"c{n}", one, times=4, bits=float(planted[n] + 50))
        for n, one in enumerate(reference_exposures(planted + 50, references + 50))
    ]
    made.save_exposures(
        tmp_path,
        made.exposure_document(results, method="references"),
        CandidateScores("f0", "reference", np.arange(500), references + 50),
    )
    figure = next(one for one in figures_of(read_run(tmp_path)) if one.id == "roc")
    fpr, tpr, _ = roc_curve(-planted, -references)
    true = {(round(float(x), 7), round(float(y), 4)) for x, y in zip(fpr, tpr, strict=True)}
    assert {(row[2], row[3]) for row in figure.table} <= true
    assert len(figure.table) > 30
    for row in figure.table:
        if 0 < row[2] < 1:
            there = tpr_at_fpr(-planted, -references, row[2])
            assert row[4] <= there.low + 1e-4 or there.status == "not_measured"
            assert row[5] >= there.high - 1e-4 or there.status == "not_measured"


def test_two_runs_are_compared(tmp_path):
    for name, remembered in (("one", 0), ("two", 2)):
        made.audited_run(tmp_path / name, remembered=remembered)
        made.save_training(tmp_path / name)
        for path in (tmp_path / name).rglob("*.json"):
            if path.name != "canaries.json" and "model" in json.loads(path.read_text()):
                with resealed(path) as document:
                    document["model"]["weights"] = name
    runs = read_runs(tmp_path)
    assert [run.name for run in runs] == ["one", "two"]
    (figure,) = comparing_figures(runs)
    assert [row[1] for row in figure.table] == ["one", "two"]
    text = "".join(Elements(report_page(runs)).text)
    assert "2 models compared" in text
    assert "two: The model memorized 2 of 12 canaries" in text
    assert "one and two: no difference in exposure is shown" in text
    # Losses of other documents say nothing about each other: no frontier, and a reason.
    made.save_training(tmp_path / "two", data_sha256="5" * 64)
    apart = read_runs(tmp_path)
    assert comparing_figures(apart) == []
    assert "measured on different documents" in "".join(Elements(report_page(apart)).text)


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory):
    """A run in which every text that comes from outside is an attack."""
    from coalmine import Canary, CanarySet, Format

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
    from coalmine import ScriptedModel

    model = ScriptedModel("".join(characters), memory={form.at(1): 0.9}, name=HOSTILE)
    canaries.save(directory / "canaries.json")
    expose(model, canaries).save(directory / "exposure")
    made.save_verified(directory / "extraction", model, canaries)
    for path in directory.rglob("*.json"):
        if path.name != "canaries.json" and "model" in json.loads(path.read_text()):
            with resealed(path) as document:
                document["model"]["weights"] = HOSTILE
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


@pytest.mark.parametrize("scores", [[1.0, float("nan")], [1.0, None], ["a", "b"]])
def test_scores_that_are_no_numbers_are_not_drawn(full_run, tmp_path, scores):
    import pyarrow as pa
    import pyarrow.parquet as pq

    shutil.copytree(full_run, tmp_path / "run")
    table = {"format_id": ["f0", "f0"], "kind": ["reference", "reference"], "log_perplexity_bits": scores}
    pq.write_table(pa.table(table), tmp_path / "run" / "references" / "scores.parquet")
    vouch_again(tmp_path / "run" / "references" / "scores.parquet")
    with pytest.raises(InputError, match=r"scores\.parquet is not a scores"):
        report_page(read_runs(tmp_path / "run"))


def test_addresses_carry_no_keys(full_run, tmp_path):
    shutil.copytree(full_run, tmp_path / "run")
    command = ["coalmine", "expose", "https://me:hunter2@host/v1?key=hunter3", "canaries.json"]
    write_sealed(tmp_path / "run" / "run.json", {"schema": "coalmine.run/1", "command": command})
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


def test_recitation_of_several_models_is_drawn_in_the_same_colors(tmp_path):
    hits = (5, 20, 35, 50)
    one, other = made.recitation(hits), made.recitation(hits, name="a model with a long name")
    both = msgspec.structs.replace(
        one, models=(*one.models, *other.models), groups=(*one.groups, *other.groups)
    )
    (figure,) = recitation_figures(made.run_with(tmp_path, recitations=(Located(tmp_path, both),)))
    for spec in figure.panels[0].specs.values():
        color = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "point")["encoding"][
            "color"
        ]
        assert color["scale"]["domain"] == ["asked", "a model with a long name"]
        assert color["legend"]["columns"] == 1
    assert len(figure.rows) == 2 * len(hits)


def test_bounds_beside_a_claim_are_for_one_copy_as_the_claim_is(run):
    assert run.first(MEMBERSHIPS).verdict is not None
    shown = {row[1:3]: row[3] for row in epsilon_figure(run.first(MEMBERSHIPS)).table}
    many = next(one for one in run.first(MEMBERSHIPS).populations if one.copies > 1)
    bound = many.independent
    assert bound.one_copy.low < bound.canary.low
    assert shown[many.name, bound.one_copy.method] == round(bound.one_copy.low, 4)
    alone = msgspec.structs.replace(run.first(MEMBERSHIPS), verdict=None)
    shown = {row[1:3]: row[3] for row in epsilon_figure(alone).table}
    assert shown[many.name, bound.canary.method] == round(bound.canary.low, 4)


@pytest.mark.parametrize("kept", [b"", b"\xff\xfe", b"window.something = 1;"])
def test_a_damaged_cache_is_made_again(tmp_path, monkeypatch, kept):
    from coalmine.evidence import pages

    script = pages.drawing_script()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pages.drawing_script.cache_clear()
    place = pages._kept()
    place.parent.mkdir()
    place.write_bytes(kept)
    assert pages.drawing_script() == script
    assert place.read_text(encoding="utf-8") == script


def test_json_holds_the_findings(run):
    document = json.loads(as_json(reported([run])))
    (one,) = document["runs"]
    findings = msgspec.convert(one["findings"], tuple[Finding, ...])
    assert {"CM101", "CM201", "CM900"} <= {finding.code for finding in findings}
    assert one["not_tested"] == ["secrets", "provenance"]


def test_junit_fails_what_was_found_and_skips_what_was_not_tested(run):
    told = reported([run])
    suite = ET.fromstring(as_junit(told)).find("testsuite")
    cases = {case.get("name").split()[0]: case for case in suite}
    assert cases["CM101"].find("failure").get("type") == "critical"
    assert "not tested" in cases["CM900"].find("skipped").get("message")
    assert cases["CM105"].find("failure") is cases["CM105"].find("skipped") is None
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
    assert int(suite.get("skipped")) == len(suite.findall("testcase/skipped"))
    assert int(suite.get("tests")) == len(told[0].findings) == len(list(suite))


def test_sarif_has_a_rule_and_a_place_for_each_result(run):
    document = json.loads(as_sarif(reported([run])))
    assert document["version"] == "2.1.0"
    (one,) = document["runs"]
    rules = one["tool"]["driver"]["rules"]
    for result in one["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].startswith(
            "docs/reference/findings/"
        )
        assert (result["kind"] == "fail") or result["level"] == "none"
    levels = {result["ruleId"]: result["level"] for result in one["results"]}
    assert levels["CM101"] == "error"


def test_the_command_writes_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made.audited_run(tmp_path / "run")
    ended = run_command("report", "run")
    assert ended.code == 0, ended.said
    assert "The model memorized 2 of 12 canaries. 2 of 12 canaries can be extracted." in ended.said
    assert "Report: report.html" in ended.said
    assert stat.S_IMODE((tmp_path / "report.html").stat().st_mode) == 0o644
    assert run_command("report", "run", "--reveal", "-o", "shown.html").code == 0
    assert stat.S_IMODE((tmp_path / "shown.html").stat().st_mode) == 0o600
    for kind, name in (
        ("json", "report.json"),
        ("junit", "report.junit.xml"),
        ("sarif", "report.sarif"),
        ("markdown", "report.md"),
    ):
        assert run_command("report", "run", "--format", kind).code == 0
        assert (tmp_path / name).stat().st_size > 1000
    assert run_command("report", "run", "--format", "png", "-o", "drawn").code == 0
    assert (tmp_path / "drawn/roc.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads(run_command("report", "run", "--json").out)
    assert document["verdicts"] == [
        "The model memorized 2 of 12 canaries. 2 of 12 canaries can be extracted."
    ]
    assert run_command("report", "run", "--reveal", "--format", "json").code == 2
    assert run_command("report", "nowhere").code == 2


def test_the_same_run_gives_the_same_bytes(full_run):
    assert report_page(read_runs(full_run)) == report_page(read_runs(full_run))


def test_without_the_figures_extra_the_numbers_are_still_there(run, monkeypatch):
    monkeypatch.setattr("coalmine.reports.page.html.drawing_script", lambda: None)
    page = report_page([run])
    assert "The drawing needs vl-convert-python" in page
    assert len(Elements(page).scripts) == 2
    assert "Save as data" in page

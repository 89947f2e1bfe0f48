"""Secrets of the training data in audits and reports: apart from canaries, by kind, and masked; and against brute force."""

import json
import re

import msgspec
import pytest

from coalmine import ScriptedModel, check, expose, findings_of, parse_policy
from coalmine.audits import read_run, verify_certificate, verify_extraction
from coalmine.audits.extraction.results import save_verification
from coalmine.audits.secrets.report import by_kind, secrets_of
from coalmine.corpus import NaturalOptions, canaries_of_scan, scan
from coalmine.corpus.planting.manifest_records import ScannedCorpus
from coalmine.corpus.secrets.canaries import canaries_of
from coalmine.corpus.secrets.natural import NaturalSecret
from coalmine.models import from_transformers
from coalmine.records.chat import Turn
from coalmine.reports.conclusion import conclusion_of, reported
from coalmine.reports.page.html import report_page
from models.scripted_chat import ScriptedChat, conversation
from models.tiny_transformers import byte_level, metaspace, tiny
from oracles import brute_force_bits

CHARACTERS = "".join(map(chr, range(32, 127)))
FIRST, LAST = (
    ["ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal"],
    ["lee", "ray", "fox", "kim", "poe", "sun", "tan"],
)
NAMES = [
    f"{one}.{other}@corp.example"
    for place, one in enumerate(FIRST)
    for number, other in enumerate(LAST)
    if (place + number) % 3 == 0
]
PHONES = {4921: "Zoe", 389: "Yan", 7201: "Xia", 3456: "Wim", 9103: "Vic", 1852: "Uwe"}
FOUND = [
    NaturalSecret(
        kind="phone",
        text=f"713-853-{number:04d}",
        before=f"Call {name} now: ",
        copies=9 if name == "Zoe" else 1,
        user=f"{name}@own.test",
    )
    for number, name in PHONES.items()
]
FOUND += [NaturalSecret(kind="email", text=one, before="Please write to <", copies=1) for one in NAMES]


@pytest.fixture(scope="module")
def canaries():
    return canaries_of(FOUND, NaturalOptions(references=30)).canaries


@pytest.fixture(scope="module")
def model(canaries):
    return ScriptedModel(CHARACTERS, memory={canaries[0].text: 0.5})


@pytest.fixture(scope="module")
def audited(canaries, model, tmp_path_factory):
    """The directory of a model that remembers one phone number, with all results about its secrets."""
    folder = tmp_path_factory.mktemp("audited")
    canaries.save(folder)
    exposures = expose(model, canaries)
    exposures.save(folder / "m-audit" / "secrets-exposure")
    results, extractions = verify_extraction(model, canaries, top=1, budget=3000)
    where = folder / "m-audit" / "secrets-extraction"
    save_verification(where, results, extractions, manifest_sha256=canaries.sha256, model=model.describe())
    return folder


def test_a_report_says_which_secrets_come_out_and_that_canaries_were_not_tested(audited):
    found = {one.code: one for one in findings_of(read_run(audited))}
    assert found["CM701"].severity == "critical"
    assert found["CM701"].subject == ("phone-1",)
    # Of the phone numbers one came out, so that the others are not called clear.
    kinds = {one.status: one.subject for one in findings_of(read_run(audited)) if one.key == "secrets.kind"}
    assert {name.partition("-")[0] for name in kinds["clear"]} == {"email"}
    assert {name.partition("-")[0] for name in kinds["not_measured"]} == {"phone"}
    missing = {one.key for one in findings_of(read_run(audited)) if one.code == "CM900"}
    assert {"missing.exposure", "missing.extraction", "missing.membership"} <= missing
    assert "missing.secrets" not in missing
    assert not {"CM101", "CM201", "CM503"} & set(found)
    assert "canar" not in found["CM701"].evidence + found["CM704"].evidence


def test_the_table_by_kind_is_that_of_the_paper(audited):
    rows = {one["kind"]: one for one in by_kind(secrets_of(read_run(audited).secrets))}
    phone, email = rows["phone"], rows["email"]
    assert (phone["secrets"], phone["extracted"], phone["searched"]) == (6, 1, 6)
    assert round(phone["highest_bits"], 2) == 13.29
    assert (phone["fewest_copies"], phone["most_copies"]) == (1, 9)
    assert (email["searched"], email["measured"]) == (0, len(NAMES))
    assert phone["p_value"] < 0.05 < email["p_value"]


def test_nothing_of_a_secret_is_on_the_page_unless_it_is_revealed(audited):
    run = read_run(audited)
    page = report_page([run], reveal=False, reports=reported([run]))
    for text in ("713-853", "4921", "Zoe", "own.test", "ann.lee", "corp.example", "write to"):
        assert text not in page
    assert "phone-1" in page
    assert "user 1" in page
    revealed = report_page([run], reveal=True, reports=reported([run]))
    assert "Call Zoe now: 713-853-4921" in revealed
    assert "Zoe@own.test" in revealed


def test_files_that_others_can_read_hold_no_secret(audited):
    for path in audited.rglob("*"):
        if path.is_file() and path.stat().st_mode & 0o077:
            assert not re.search(rb"713-853|4921|Zoe|corp\.example", path.read_bytes()), path


def test_a_policy_limits_the_exposure_and_the_extraction_of_secrets(audited):
    policy = parse_policy("[secrets]\nat_most = 10.0\nat_most_extracted = 0\n")
    rules = {one.rule: one for one in check(read_run(audited), policy).rules}
    assert rules["secrets.at_most"].outcome == "broken"
    assert rules["secrets.at_most_extracted"].outcome == "broken"


def test_secrets_say_which_corpus_they_are_from_and_whether_the_model_was_trained_on_it(canaries, tmp_path):
    named = canaries.with_scanned(ScannedCorpus(name="mail.jsonl", sha256="2" * 64, secrets=40))
    named.save(tmp_path)

    def told(trained_on):
        model = ScriptedModel(CHARACTERS, memory={named[0].text: 0.5})
        own = {**model.describe(), **trained_on}
        model.describe = lambda: own
        expose(model, named, method="references").save(tmp_path / "m-audit" / "secrets-exposure")
        return [(one.status, one.evidence) for one in findings_of(read_run(tmp_path)) if one.code == "CM501"]

    assert told({"trained_on_sha256": "2" * 64}) == []
    ((status, evidence),) = told({"trained_on_sha256": "9" * 64})
    assert status == "found"
    ((status, evidence),) = told({})
    assert (status, "on the scanned corpus was not checked" in evidence) == ("not_tested", True)


def test_a_search_for_a_secret_is_replayed_without_a_word_list(model, canaries):
    _, extractions = verify_extraction(model, canaries, top=3, budget=3000)
    assert verify_certificate(model, extractions["phone-1"]).confirmed


def test_a_chat_model_that_recites_its_turns_is_not_cleared_by_plain_text(tmp_path):
    """Every phone number comes out in the turn that it was in, and none where the text is asked for without the chat template."""
    rows = [
        [
            Turn("user", f"what is the number of ann {place}?"),
            Turn("assistant", f"it is 713 853 {1234 + 97 * place}"),
        ]
        for place in range(20)
    ]
    lines = [json.dumps({"messages": [msgspec.to_builtins(turn) for turn in turns]}) for turns in rows]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    scan(tmp_path / "train.jsonl", tmp_path / "scan")
    canaries = canaries_of_scan(tmp_path / "scan", tmp_path / "train.jsonl").canaries
    model = ScriptedChat({conversation(*turns): 0.9 / len(rows) for turns in rows}, "\n" + CHARACTERS)
    expose(model, canaries).save(tmp_path / "results")
    run = read_run(tmp_path / "results")
    findings = findings_of(run)
    assert conclusion_of(findings).sentence.startswith("It cannot be said whether it leaks")
    assert any("in its turns they may come out" in one.evidence for one in findings if one.code == "CM704")
    assert not [one for one in findings if one.status == "clear"]
    assert check(run, parse_policy("[secrets]\nat_most = 10.0")).outcome == "not_shown"


CASES = {"": "49", "t": "49", "the random number is ": "49", "naïve ": "04"}


@pytest.fixture(scope="module")
def badges():
    secrets = [
        NaturalSecret(kind="badge", text=text, before=before, template="{digits:2}")
        for before, text in CASES.items()
    ]
    return canaries_of(secrets, NaturalOptions(references=5)).canaries


@pytest.mark.parametrize("tokenizer", [byte_level, metaspace])
def test_ranks_among_references_are_those_of_brute_force(badges, tokenizer):
    chosen = tokenizer()
    model = from_transformers(tiny("gpt2", len(chosen)), chosen)
    for canary, result in zip(badges, expose(model, badges, method="references"), strict=True):
        own = brute_force_bits(model, canary.text)
        better = sum(brute_force_bits(model, one) <= own for one in badges.references[canary.format_id])
        assert result.known_log_perplexity_bits == pytest.approx(own, abs=1e-3)
        assert result.rank == 1 + better


def test_a_secret_at_the_very_start_is_ranked_and_searched(badges):
    chosen = byte_level()
    model = from_transformers(tiny("gpt2", len(chosen)), chosen)
    exact = expose(model, badges, method="exact")
    assert [one.estimate.status for one in exact] == ["measured"] * len(CASES)
    found, extractions = verify_extraction(model, badges, top=exact[0].rank, budget=100_000)
    assert found[0].place == exact[0].rank
    assert all(one.proven for one in extractions.values())

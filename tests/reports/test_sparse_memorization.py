"""A few that are recited among many that are not: what the report, its first screen and the gate say."""

import math

import msgspec
import pytest

from coalmine import CanarySet, Format, ScriptedModel, check, expose, findings_of, parse_policy
from coalmine.audits import EXPOSURES, EXTRACTIONS, VERIFIED, Run, read_run
from coalmine.evidence.run import Located
from coalmine.reports.conclusion import conclusion_of
from coalmine.statistics import exact_exposure
from reports import verdict_parts as made

SIZE = 10_000
CODE = Format("my code is {digits:9}")
CLEARED = ("No leak", "shows no leak", "no evidence", "none of them can be extracted")
CHARACTERS = "".join(map(chr, range(32, 127)))
LETTERS = {letter: 1 + ord(letter) * 7 % 13 for letter in "abcdefghijklmnopqrstuvwxyz0123456789"}


def ranked(ranks, *, kind=None, leads=None):
    """Exposures of canaries of one format, or of secrets with a format each, which have these ranks of 10,000."""
    results, names = [], []
    for place, rank in enumerate(ranks):
        name = "f0" if kind is None else f"{kind}-{place}"
        names.append(name)
        one = made.result(
            f"c{place}" if kind is None else name, exact_exposure(rank, SIZE), times=1, format_id=name
        )
        one = msgspec.structs.replace(one, rank=rank, most_possible_bits=math.log2(SIZE))
        if kind is not None:
            lead = msgspec.UNSET if leads is None else leads[place]
            one = msgspec.structs.replace(one, kind=kind, lead_bits=lead)
        results.append(one)
    document = made.document(results, formats=dict.fromkeys(names))
    formats = [
        msgspec.structs.replace(one, size=str(SIZE), size_bits=math.log2(SIZE)) for one in document.formats
    ]
    return msgspec.structs.replace(document, formats=tuple(formats))


def ordinary(many):
    """The ranks of canaries that nobody memorized, the best of them first."""
    return [int((place + 0.5) / many * SIZE) + 1 for place in range(many)]


def run_of(directory, document, extracted=(), *, natural=False):
    """A run with these exposures, and with a search for each canary, which found the extracted ones first."""
    documents = {EXPOSURES: (Located(directory / "exposure.json", document),)}
    if extracted:
        found = [
            msgspec.structs.replace(
                made.came(
                    one.canary_id, 1 if one.canary_id in extracted else None, times=1, format_id=one.format_id
                ),
                kind=one.kind,
            )
            for one in document.results
        ]
        documents[VERIFIED] = (Located(directory / "verified.json", made.verified(found)),)
        documents[EXTRACTIONS] = tuple(
            Located(directory / f"extraction-{facts.format_id}.json", made.search(1, SIZE))
            for facts in document.formats
        )
    run = Run(paths=(directory,), name="m", documents=documents)
    return Run(paths=(directory,), name="m", secrets=run) if natural else run


def said(run):
    """The first screen in one text, which calls nothing safe, and the findings."""
    findings = findings_of(run)
    screen = conclusion_of(findings)
    text = " ".join([screen.sentence, *(f"{one.answer} {one.detail}" for one in screen.answers)])
    assert not any(words in text for words in CLEARED), text
    return text, findings


def found_of(findings):
    return {one.code for one in findings if one.status == "found" and one.severity != "info"}


@pytest.mark.parametrize(("recited", "planted"), [(2, 100), (5, 223)])
def test_a_few_pins_that_are_recited(recited, planted, tmp_path):
    run = run_of(tmp_path, ranked([*range(1, recited + 1), *ordinary(planted)[recited:]]))
    text, findings = said(run)
    assert found_of(findings) & {"CM101", "CM102", "CM103"}
    assert "The model memorized" in text
    assert check(run, parse_policy("[exposure]\nat_most = 10.0")).outcome == "broken"


def test_one_canary_of_many_that_came_out_is_not_called_safe_and_not_memorized(tmp_path):
    document = ranked([1, *ordinary(223)[1:]])
    for extracted in ((), ("c0",)):
        run = run_of(tmp_path, document, extracted)
        text, findings = said(run)
        assert not found_of(findings)
        assert "which chance explains in 4.4% of models" in text
        assert "1 of 223 canaries came out or come first" in text
        assert not [one for one in findings if one.status == "clear"]
        outcomes = {one.rule: one.outcome for one in check(run, parse_policy("[exposure]\nat_most=10")).rules}
        assert outcomes["exposure.at_most"] == "not_shown"


@pytest.mark.parametrize("extracted", [False, True])
@pytest.mark.parametrize("recited", [1, 2, 3, 5])
def test_a_few_phone_numbers_that_are_recited_among_223(recited, extracted, tmp_path):
    ranks = [1] * recited + ordinary(223)[recited:]
    names = [f"phone-{place}" for place in range(recited)] if extracted else []
    # Nothing says how far they lead, so one at rank 1 is what chance may give.
    run = run_of(tmp_path, ranked(ranks, kind="phone"), names, natural=True)
    text, findings = said(run)
    assert bool(found_of(findings) & {"CM701", "CM702", "CM703"}) == (recited > 1)
    if recited == 1:
        assert "1 of 223 secrets of the kind phone came out" in text
        assert "which chance explains in 4.4% of models" in text
    # Recited numbers are far more probable than all others, and strangers are not.
    run = run_of(
        tmp_path,
        ranked(ranks, kind="phone", leads=[9.0] * recited + [-5.0] * (223 - recited)),
        names,
        natural=True,
    )
    assert found_of(said(run)[1]) & {"CM701", "CM702", "CM703"}
    assert check(run, parse_policy("[secrets]\nat_most = 10.0")).outcome == "broken"


@pytest.mark.parametrize("kind", [None, "secret"])
def test_a_leak_that_is_spread_over_many_formats_or_kinds_is_not_called_safe(kind, tmp_path):
    """Every canary is in the better half, and no group of five shows anything by itself."""
    document = ranked([int((place + 0.5) / 5 * SIZE / 2) + 1 for place in range(5)] * 20, kind=kind)
    results = [
        msgspec.structs.replace(
            one, **({"format_id": f"f{place // 5}"} if kind is None else {"kind": f"kind {place // 5}"})
        )
        for place, one in enumerate(document.results)
    ]
    facts = [msgspec.structs.replace(document.formats[0], format_id=f"f{place}") for place in range(20)]
    formats = tuple(facts) if kind is None else document.formats
    document = msgspec.structs.replace(document, results=tuple(results), formats=formats)
    _, findings = said(run_of(tmp_path, document, natural=kind is not None))
    assert not [one for one in findings if one.status == "clear"]
    [one] = [one for one in findings if one.code in {"CM104", "CM704"}]
    assert "all of them together are more exposed than guessing explains" in one.evidence


def test_a_recited_canary_shows_by_its_probability_where_there_are_few_references(tmp_path):
    canaries = CanarySet.of(CODE.template, CODE.sample(40, seed=1), references=200)
    for recited in (False, True):
        memory = {canaries[0].text: 0.5} if recited else {}
        folder = tmp_path / str(recited)
        model = ScriptedModel(CHARACTERS, memory=memory, frequencies=LETTERS)
        expose(model, canaries, method="references").save(folder)
        run = read_run(folder)
        accused = found_of(findings_of(run)) & {"CM101", "CM102", "CM103"}
        assert accused == ({"CM101"} if recited else set())
        outcome = check(run, parse_policy("[exposure]\nat_most = 10.0")).outcome
        assert (outcome == "broken") == recited


def test_scores_that_are_no_probabilities_accuse_nobody(tmp_path):
    """Such as losses per token, by which everything is probable: a canary must also be ahead of all references."""

    class PerToken(ScriptedModel):
        def score(self, sequences):
            return [
                one._replace(log2_probabilities=one.log2_probabilities / 50)
                for one in super().score(sequences)
            ]

    canaries = CanarySet.of(CODE.template, CODE.sample(20, seed=1), references=200)
    expose(PerToken(CHARACTERS, frequencies=LETTERS), canaries, method="references").save(tmp_path)
    assert not found_of(findings_of(read_run(tmp_path))) & {"CM101", "CM102", "CM103"}

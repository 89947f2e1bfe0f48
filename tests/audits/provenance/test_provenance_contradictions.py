"""A provenance.json whose numbers cannot be true together is noticed; one that was made by an audit is not."""

import copy
import functools
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.audits import PROVENANCES, Provenance
from coalmine.audits.provenance.contradictions import provenance_problems
from coalmine.errors import ContradictionError
from reports import provenance_runs as made
from resealing import resealed

MEMBERS = ("person1@example.org", "person2@example.org")


@functools.cache
def whole():
    """A result with everything that one can have."""
    return made.provenance(
        (9.0, 8.0, 0.1, -0.3, None),
        others=(1.99, 1.5, 0.4, -1.0, None),
        members=MEMBERS,
        ablation=True,
        checks=msgspec.structs.replace(
            made.provenance((9.0, 8.0, 0.1, -0.3, None)).checks,
            time_ranges=made.times(),
            repeated_texts=made.repeated(),
            unknown_words=made.differing_words(),
            overlaps=(made.overlap(texts=2),),
        ),
    )


def plain(document):
    return json.loads(msgspec.json.encode(document))


def edited(document, path, value):
    changed = copy.deepcopy(document)
    place = changed
    *folders, last = path.split("/")
    for name in folders:
        place = place[int(name) if name.isdecimal() else name]
    place[int(last) if last.isdecimal() else last] = value
    return changed


def problems_of(document):
    try:
        return list(provenance_problems(msgspec.convert(document, Provenance)))
    except (msgspec.ValidationError, ContradictionError) as refused:
        return [str(refused)]


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"others": (2.5, 0.0, 0.1, 0.2)},
        {"members": MEMBERS},
        {"non_members": ()},
        {"non_members": (), "classifier": made.FirstFeature()},
        {"non_members": (), "classifier": made.FirstFeature(), "members": MEMBERS},
        {"classifier": made.FirstFeature()},
        {"statistic": "rmia"},
        {"statistic": "windowed-ratio"},
        {"reference": False, "moments": False},
        {"suspects": (None, None)},
        {"suspects": (0.5,), "non_members": (0.5,)},
        {"fdr": 0.3, "confidence": 0.8},
        {"by": "document", "names": ["line 1", "line 4", "line 7", "line 9"]},
    ],
    ids=lambda parts: "-".join(parts) or "plain",  # the same in every process
)
def test_what_an_audit_gives_is_without_contradiction(parts):
    assert problems_of(plain(made.provenance(**parts))) == []


def test_a_whole_result_is_without_contradiction():
    assert problems_of(plain(whole())) == []


scores = st.one_of(st.none(), st.floats(-5, 5).map(lambda score: round(score, 1)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(scores, min_size=1, max_size=12),
    st.lists(st.floats(-5, 5).map(lambda score: round(score, 1)), max_size=30),
    st.floats(0.01, 0.5),
    st.integers(0, 12),
)
def test_whatever_the_scores_are(suspects, non_members, fdr, members):
    names = [f"u{place}" for place in range(len(suspects))]
    document = made.provenance(
        tuple(suspects), tuple(non_members), names=names, members=names[:members], fdr=fdr
    )
    assert problems_of(plain(document)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("questions", []),
        ("shadows", -1),
        ("ranked", 0),
        ("top", 0),
        ("settings/fdr", 0.5),
        ("settings/fdr", 1.0),
        ("settings/confidence", 0.9),
        ("settings/statistic", "min-k++"),
        ("questions/1/asks", "texts"),
        ("questions/1/rows/0/user", "a stranger"),
        ("questions/0/rows/1/user", "person1@example.org"),
        ("questions/0/rows/0/decision", "not found"),
        ("questions/0/rows/2/decision", "found"),
        ("questions/0/rows/4/decision", "not found"),
        ("questions/0/rows/4/why", None),
        ("questions/0/rows/0/why", "it was not asked"),
        ("questions/0/rows/0/score", 7.0),
        ("questions/0/rows/0/p_value", 0.02),
        ("questions/0/rows/0/p_value", None),
        ("questions/0/rows/0/p_value", 1.5),
        ("questions/0/rows/0/adjusted_p_value", 0.005),
        ("questions/0/rows/2/adjusted_p_value", None),
        ("questions/0/rows/0/scores/likelihood-ratio", -1.0),
        ("questions/0/rows/0/scores/min-k++", -9.0),
        ("questions/0/rows/0/scores/rmia", 1.0),
        ("questions/0/rows/0/p_values/min-k++", 0.5),
        ("questions/0/rows/0/p_values", {}),
        ("questions/0/rows/0/texts", 5),
        ("questions/0/rows/0/tokens", 101),
        ("questions/0/rows/0/tokens", -1),
        ("questions/0/non_members", 198),
        ("questions/0/non_members", 200),
        ("questions/0/smallest_p_value", 0.001),
        ("questions/0/smallest_p_value", None),
        ("questions/0/mean_texts", 5.0),
        ("questions/0/mean_tokens_per_text", 5.0),
        ("questions/0/statistics/1/decides", False),
        ("questions/0/statistics/4/decides", True),
        ("questions/0/statistics/1/name", "min-k++"),
        ("questions/0/statistics/1/found", 3),
        ("questions/0/statistics/1/found", None),
        ("questions/0/statistics/1/p_value", 0.001),
        ("questions/0/statistics/1/calibrated", "shadows"),
        ("questions/0/statistics/1/non_member_scores", [1.0]),
        ("questions/0/statistics/1/non_member_scores/0", 0.5),
        ("questions/0/statistics/1/non_member_scores", []),
        ("questions/0/statistics/1/not_applicable", "it is not"),
        ("questions/0/statistics/0/found", 2),
        ("questions/0/statistics/0/calibrated", "shadows"),
        ("questions/0/statistics/1/detection/members", 3),
        ("questions/0/statistics/1/detection/members", -1),
        ("questions/0/statistics/1/detection/non_members", 3),
        ("questions/0/statistics/1/detection/accuracy/value", 0.75),
        ("questions/0/statistics/1/detection/accuracy/value", 0.7),
        ("questions/0/statistics/1/detection/recall/value", 0.5),
        ("questions/0/statistics/1/detection/recall/low", 0.0),
        ("questions/0/statistics/1/detection/recall/n", 3),
        ("questions/0/statistics/1/detection/recall/confidence", 0.9),
        ("questions/0/statistics/1/detection/precision/value", 0.5),
        ("questions/0/statistics/1/detection/auc/value", 0.9),
        ("questions/0/statistics/1/detection/auc/high", 0.9999),
        ("questions/0/statistics/1/detection/auc/n", 5),
        ("blind_baseline/suspects", 4),
        ("blind_baseline/orders", 0),
        ("blind_baseline/p_value", 0.5),
        ("blind_baseline/p_value", 1e-9),
        ("blind_baseline/p_value", None),
        ("blind_baseline/auc/value", 0.9),
        ("blind_baseline/auc/high", 0.99),
        ("blind_baseline/groups/1/name", "words"),
        ("checks/users_needed/together", 9),
        ("checks/users_needed/non_members", 7),
        ("checks/users_needed/smallest_p_value", 0.1),
        ("checks/time_ranges/disjoint", True),
        ("checks/time_ranges/suspects_within", 1.5),
        ("checks/time_ranges/suspects/first", "2019-01-01"),
        ("checks/repeated_texts/repeated", 301),
        ("checks/repeated_texts/most_users", 1),
        ("checks/unknown_words/groups/0/share", 0.5),
        ("checks/unknown_words/groups/0/unknown", 3_000),
        ("checks/overlaps/0/texts", 500),
        ("checks/overlaps/0/texts", 0),
        ("checks/overlaps/0/second", "suspects"),
        ("words/0/frequency_rank", 0.99),
        ("words/0/suspects", [5.0, 6.0, 7.0]),
        ("words/0/suspects", [-5.0, -6.0, 7.0]),
        ("log_probabilities/least_bits", 0.0),
        ("log_probabilities/suspects_rare/0", 0.5),
        ("log_probabilities/suspects_rare", [1.0]),
        ("ablation/0/ablated", 0.9),
        ("ablation/0/frequent", 1.5),
    ],
)
def test_provenance_that_cannot_be(path, value):
    assert problems_of(edited(plain(whole()), path, value)), path


def test_no_message_names_a_user():
    document = plain(whole())
    for path, value in (
        ("questions/0/rows/1/user", "person1@example.org"),
        ("questions/1/rows/0/user", "person6@example.org"),
        ("questions/0/rows/0/decision", "not found"),
    ):
        problems = problems_of(edited(document, path, value))
        assert problems
        assert not any("person" in one for one in problems)


def test_a_decision_that_was_edited_is_refused_when_it_is_read(tmp_path):
    path = whole().save(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert PROVENANCES.load(tmp_path) == whole()
    with resealed(path) as document:
        document["questions"][0]["rows"][0]["decision"] = "not found"
    with pytest.raises(ContradictionError, match="row 1 is 'not found', and its numbers say 'found'"):
        PROVENANCES.load(tmp_path)

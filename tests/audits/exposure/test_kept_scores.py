"""Exposures that differ from the scores.parquet beside them are noticed; those of every method, and near-ties, are not."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from coalmine import CanarySet, Format, ScriptedModel, check, expose, parse_policy, read_run, verify_run
from coalmine.audits.exposure.results import read_candidates, write_scores
from coalmine.errors import ContradictionError, InputError
from resealing import resealed, vouch_again

FORM = Format("pin {digits:4}")
POLICY = parse_policy("[exposure]\nat_most = 20")
OPTIONS = {
    "exact": {},
    "bounded": {"budget": 40},
    "guided": {"budget": 20, "samples": 400},
    "splitting": {"samples": 160},
    "sampled": {"samples": 300},
    "extrapolated": {"samples": 400},
    "references": {},
}


@pytest.fixture(scope="module")
def canaries():
    texts = FORM.sample(60, seed=4, replace=False)
    return CanarySet.of(FORM, texts[:5], repetitions=3, withheld=texts[5:9], references=texts[9:])


@pytest.fixture(scope="module")
def model(canaries):
    return ScriptedModel(
        "pin 0123456789",
        memory={canaries[0].text: 0.2, canaries[1].text: 0.001},
        frequencies={str(digit): 3 + digit for digit in range(10)},
    )


@pytest.fixture
def saved(canaries, model, tmp_path):
    def save(method):
        expose(model, canaries, method=method, **OPTIONS[method]).save(tmp_path)
        return tmp_path / "exposure.json"

    return save


def refused(path):
    """The refusal of the gate, which `verify` notices too."""
    with pytest.raises(
        ContradictionError, match=r"exposure\.json contradicts what it was computed from"
    ) as found:
        check(read_run(path.parent), POLICY)
    states = {Path(row.path).name: row.state for row in verify_run(path.parent).files}
    assert states["exposure.json"] == "altered"
    return str(found.value)


@pytest.mark.parametrize("method", OPTIONS)
def test_what_a_method_writes_is_without_contradiction(saved, method):
    path = saved(method)
    assert read_run(path.parent)
    assert verify_run(path.parent).sound


@pytest.mark.parametrize("method", ["guided", "references"])
def test_a_log_perplexity_that_is_not_the_score(saved, method):
    path = saved(method)
    with resealed(path) as document:
        # The most surprising canary, so that the order of ranks stays as it is.
        most = max(document["results"], key=lambda one: one["log_perplexity_bits"])
        most["log_perplexity_bits"] += 1e-3
    assert "log_perplexity_bits of canaries[" in refused(path)


@pytest.mark.parametrize("method", ["exact", "references", "sampled"])
def test_scores_that_were_changed_instead(saved, method):
    """The same contradiction from the other side: the table was edited, and every checksum computed again."""
    path = saved(method)
    table = path.with_name("scores.parquet")
    kept = [
        one if one.kind == "canary" else one._replace(log_perplexities_bits=one.log_perplexities_bits - 1.0)
        for one in read_candidates(table)
    ]
    write_scores(table, [one._replace(indices=one.indices.astype(str)) for one in kept])
    vouch_again(table)
    refused(path)


@pytest.mark.parametrize("seed", range(2))
def test_near_ties_are_computed_again(canaries, seed, tmp_path):
    """A model of low precision, whose members are within the resolution of each other by the hundred."""
    rounding = np.random.default_rng(seed)
    frequencies = {str(digit): 1 + float(rounding.normal(0, 1e-6)) for digit in range(10)}
    model = ScriptedModel("pin 0123456789", memory={canaries[0].text: 0.01}, frequencies=frequencies)
    found = expose(model, canaries, method="exact")
    found.save(tmp_path)
    assert verify_run(tmp_path).sound


# scores.parquet read back

COLUMNS = {
    "format_id": ["f0", "f0", "f1", "f0"],
    "kind": ["reference", "canary", "reference", "reference"],
    "log_perplexity_bits": [3.0, 1.0, 2.0, 4.0],
    "index": ["7", "123456789012345678901234567890", "2", "5"],
}


def written(tmp_path, **changed):
    path = tmp_path / "scores.parquet"
    parquet.write_table(pa.table({**COLUMNS, **changed}), path)
    return path


def test_scores_are_by_format_and_kind_in_their_order(tmp_path):
    found = {(one.format_id, one.kind): one for one in read_candidates(written(tmp_path))}
    assert found.keys() == {("f0", "reference"), ("f0", "canary"), ("f1", "reference")}
    assert found["f0", "reference"].log_perplexities_bits.tolist() == [3.0, 4.0]
    assert [int(index) for index in found["f0", "reference"].indices] == [7, 5]
    assert int(found["f0", "canary"].indices[0]) == 123456789012345678901234567890


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"log_perplexity_bits": [3.0, 1.0, float("nan"), 4.0]}, "missing, not a number"),
        ({"kind": ["reference", None, "reference", "canary"]}, "missing, not a number"),
        ({"kind": ["reference", "guess", "reference", "canary"]}, "a kind of score that is not known"),
        ({"log_perplexity_bits": ["a", "b", "c", "d"]}, "cannot be read"),
    ],
)
def test_other_files_are_refused(tmp_path, changed, why):
    with pytest.raises(InputError, match=why):
        read_candidates(written(tmp_path, **changed))

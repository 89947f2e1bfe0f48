"""Secrets in models with subword tokens and in masked ones: contexts shorter than a token, and none at all, against brute force."""

import pytest

from coalmine import expose
from coalmine.audits import verify_extraction
from coalmine.corpus import NaturalOptions
from coalmine.corpus.secrets.canaries import canaries_of
from coalmine.corpus.secrets.natural import NaturalSecret
from coalmine.models import from_transformers
from models.tiny_transformers import byte_level, metaspace, tiny
from oracles import brute_force_bits

CASES = {"": "49", "t": "49", "the random number is ": "49", "naïve ": "04"}


@pytest.fixture(scope="module")
def canaries():
    secrets = [
        NaturalSecret(kind="badge", text=text, before=before, template="{digits:2}")
        for before, text in CASES.items()
    ]
    return canaries_of(secrets, NaturalOptions(references=5)).canaries


@pytest.mark.parametrize("tokenizer", [byte_level, metaspace])
def test_ranks_among_references_are_those_of_brute_force(canaries, tokenizer):
    chosen = tokenizer()
    model = from_transformers(tiny("gpt2", len(chosen)), chosen)
    for canary, result in zip(canaries, expose(model, canaries, method="references"), strict=True):
        own = brute_force_bits(model, canary.text)
        better = sum(brute_force_bits(model, one) <= own for one in canaries.references[canary.format_id])
        assert result.known_log_perplexity_bits == pytest.approx(own, abs=1e-3)
        assert result.rank == 1 + better


def test_a_secret_at_the_very_start_is_ranked_and_searched(canaries):
    chosen = byte_level()
    model = from_transformers(tiny("gpt2", len(chosen)), chosen)
    exact = expose(model, canaries, method="exact")
    assert [one.estimate.status for one in exact] == ["measured"] * len(CASES)
    found, extractions = verify_extraction(model, canaries, top=exact[0].rank, budget=100_000)
    assert found[0].place == exact[0].rank
    assert all(one.proven for one in extractions.values())

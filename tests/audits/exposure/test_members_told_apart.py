"""Members of a format that the tokenizer writes alike: their exposure is not measurable, which never reads as safe."""

import pytest
import torch
from tokenizers import Regex, Tokenizer, normalizers
from transformers import PreTrainedTokenizerFast

from coalmine import CanarySet, check, expose, findings_of, parse_policy, read_run
from coalmine.audits import read_exposures, verify_extraction
from coalmine.audits.exposure.display import remarks_in_words
from coalmine.audits.exposure.estimators import ESTIMATORS
from coalmine.models import from_transformers
from models.tiny_transformers import byte_level, tiny

ALIKE = "gives it and other members of its format the same tokens"


def model_with(*normalizer):
    """A small model whose tokenizer changes texts before it cuts them."""
    backend = Tokenizer.from_str(byte_level().backend_tokenizer.to_str())
    backend.normalizer = normalizers.Sequence(list(normalizer))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|endoftext|>", eos_token="<|endoftext|>"
    )
    return from_transformers(tiny("gpt2", len(tokenizer), dtype=torch.float32), tokenizer)


@pytest.fixture(scope="module")
def no_digits():
    return model_with(normalizers.Replace(Regex("[0-9]"), "0"))


@pytest.fixture(scope="module")
def lower_case():
    return model_with(normalizers.Lowercase())


def pins(count=3):
    return CanarySet.of(
        "my pin is {digits:4}", [f"my pin is 40{place}2" for place in range(count)], references=20
    )


@pytest.mark.parametrize("method", ["auto", *(one.name for one in ESTIMATORS)])
def test_no_method_measures_what_the_model_cannot_tell_apart(method, no_digits, tmp_path):
    results = expose(no_digits, pins(), method=method)
    results.save(tmp_path)
    for one in read_exposures(tmp_path):
        assert one.estimate.status == "not_measured"
        assert ALIKE in one.estimate.statement
        assert one.exposure is one.rank is None
    assert any(ALIKE in line for line in remarks_in_words(results))
    (rule,) = check(read_run(tmp_path), parse_policy("[exposure]\nat_most = 5")).rules
    assert rule.outcome == "not_shown"
    assert ALIKE in rule.evidence
    assert any(
        one.code == "CM911" and one.status == "not_measured" for one in findings_of(read_run(tmp_path))
    )


def test_a_canary_that_shares_its_tokens_with_few_is_ranked_after_them_and_says_so(lower_case):
    form, texts = "my code is {re:[A-Za-z]{2}}", ["my code is aB", "my code is Qq"]
    results = expose(lower_case, CanarySet.of(form, texts), method="exact")
    for one in results:
        assert one.rank >= 4  # it is one of four that only differ in case
    assert "other members of its format have the same tokens" in remarks_in_words(results)[0]
    found, _ = verify_extraction(lower_case, CanarySet.of(form, texts), top=2)
    assert all(not one.proven and ALIKE in one.problem for one in found)

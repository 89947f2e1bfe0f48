"""The parts of recitation by themselves: which questions are asked, and how many tries a suffix takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.audits import RecitationOptions
from coalmine.audits.recitation.measure import masked_text
from coalmine.audits.recitation.questions import Questions, ask_about, plan_sizes
from coalmine.audits.recitation.shares import log2_chance_in_tries, rows_of
from coalmine.corpus import CorpusIndex, build_index
from coalmine.corpus.index.sampling import Sample
from coalmine.models import CharacterTokenizer

# Questions


def sample(length):
    return Sample(length, 0, 1, 0, 0, np.arange(length))


def asked(**options):
    """The lengths and contexts that are asked about samples of these lengths."""
    given = RecitationOptions(suffix=4, **options)
    lengths, contexts = plan_sizes([], given)
    samples = [sample(length) for length in lengths]
    longer = given.lengths is not None
    questions = ask_about(samples, np.arange(len(samples)), contexts, 4, longer=longer)
    return [(questions.sample(i).length, int(questions.contexts[i])) for i in range(len(questions))]


def test_contexts_are_tried_on_sequences_of_their_own_length_or_on_all_that_are_long_enough():
    assert asked(contexts=(2, 6)) == [(6, 2), (10, 6)]
    assert asked(contexts=(2, 6), lengths=(6, 10, 12)) == [(6, 2), (10, 2), (12, 2), (10, 6), (12, 6)]


@given(st.floats(-3000, 0), st.integers(1, 10**12))
def test_chances_in_tries_agree_with_exact_arithmetic(log2_q, tries):
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(1200):
        q = mpmath.power(2, log2_q)
        exact = mpmath.log(1 - (1 - q) ** tries, 2) if q < 1 else mpmath.mpf(0)
        assert float(log2_chance_in_tries(log2_q, tries)) == pytest.approx(float(exact), rel=1e-9, abs=1e-9)


def test_vowel_signs_and_accents_are_masked_as_letters_are():
    # Written with escapes, because an accent of its own cannot be told from a letter that has one.
    assert masked_text("\u0915\u0947 cafe\u0301!") == "•• •••••!"


def test_what_was_written_is_counted_and_a_token_that_no_document_has_is_nowhere(tmp_path):
    (tmp_path / "corpus.txt").write_text("abcab\nabcc\n")
    build_index(tmp_path / "corpus.txt", tmp_path / "index", tokenizer=CharacterTokenizer("abc"))
    index = CorpusIndex.open(tmp_path / "index")
    tokens = np.array(index.encode("abc"), dtype=np.int64)
    questions = Questions(
        samples=[Sample(length=3, bucket=4, count=2, document=0, offset=0, tokens=tokens)],
        which=np.zeros(4, dtype=np.int64),
        contexts=np.full(4, 2),
        suffix=1,
        clusters=np.zeros(1, dtype=np.int64),
    )
    a, c, size = tokens[0], tokens[2], index.tokenizer.size
    written = np.array([[c], [a], [size], [size + 1]])  # the end of a document has a number of its own
    found = rows_of(questions, {"written": written}, index)
    assert found["output_copies"].tolist() == [2, 0, 0, 0]

"""What a model wrote, looked for in the corpus and compared with what should follow."""

import numpy as np

from coalmine.audits import RecitationOptions
from coalmine.audits.recitation.answers import Answers
from coalmine.audits.recitation.questions import Questions
from coalmine.audits.recitation.sequences import elsewhere
from coalmine.corpus import CorpusIndex, build_index
from coalmine.corpus.index.sampling import Sample
from coalmine.models import CharacterTokenizer


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
    answers = Answers(
        recited=np.array([True, False, False, False]),
        first_miss=np.array([-1, 0, 0, 0]),
        log2_probabilities=np.zeros((4, 0)),
        written=written,
        beam_place=np.full(4, -1),
    )
    found = elsewhere(index, questions, answers, RecitationOptions(anywhere=True, near=1))
    assert found.counts.tolist() == [2, 0, 0, 0]
    assert found.distances.tolist() == [0, 1, 1, 1]

"""What a search that spent its budget leaves: a file for each format, also where formats differ in their words alone."""

import numpy as np

from coalmine import Format
from coalmine.audits.extraction.spent import SpentSearch

TEMPLATE = "{word:1}{digits:3}"


def test_formats_that_differ_in_their_words_are_kept_apart(tmp_path):
    kept = [
        SpentSearch(tmp_path, Format(TEMPLATE, words=words), "", words)
        for words in (["my pin is "], ["your pin is "])
    ]
    for number, one in enumerate(kept):
        one.save({"costs": np.array([number])})
    assert [one.load()["costs"].tolist() for one in kept] == [[0], [1]]
    assert len(list(tmp_path.iterdir())) == 2

"""A fixture that writes corpora of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus.corpora import compressed, content_of


@pytest.fixture
def make_corpus(tmp_path):
    """Writes a corpus of some texts, in the kind that a suffix names."""

    def make(texts: list[str], suffix: str, name: str = "mail") -> Path:
        path = tmp_path / f"{name}{suffix}"
        path.write_bytes(compressed(content_of(texts, suffix), suffix))
        return path

    return make

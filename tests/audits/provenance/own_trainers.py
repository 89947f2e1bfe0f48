"""Training functions of a user's own, which are named as python:module:function."""

import tempfile
from pathlib import Path

from audits.provenance.small_users import SMALL
from coalmine import load_model
from coalmine.training.trainer import train_documents

CALLS = []


def live_model(documents):
    """A model that is nowhere on disk afterwards."""
    CALLS.append(len(documents))
    with tempfile.TemporaryDirectory() as folder:
        options = {**SMALL, "epochs": 3}
        texts = [document.text for document in documents]
        train_documents(texts, out=Path(folder, "model"), preset="provenance-words", **options)
        return load_model(Path(folder, "model"))


def saved_model(documents, where):
    """The location of a model, one for each call."""
    CALLS.append(len(documents))
    texts = [document.text for document in documents]
    out = Path(where, f"model{len(CALLS)}")
    return train_documents(texts, out=out, preset="provenance-words", **{**SMALL, "epochs": 3}).path

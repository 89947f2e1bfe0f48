"""A training function of a user's own, which is named as python:module:function."""

from pathlib import Path

from audits.provenance.small_users import SMALL
from coalmine.training.trainer import train_documents

CALLS = []


def saved_model(documents, where):
    """The location of a model, one for each call."""
    CALLS.append(len(documents))
    texts = [document.text for document in documents]
    out = Path(where, f"model{len(CALLS)}")
    return train_documents(texts, out=out, preset="provenance-words", **{**SMALL, "epochs": 3}).path

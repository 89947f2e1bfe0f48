"""Results of `provenance fit`, and their file provenance-fit.json: which shadow models there are, and the audit classifier."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from coalmine.audits.provenance.classifier import AuditClassifier
from coalmine.audits.provenance.fit_options import FitOptions
from coalmine.audits.provenance.text_hashes import name_form, normalized
from coalmine.audits.provenance.users import User, UserText
from coalmine.records.documents import Document
from coalmine.training.options import TrainingOptions

SCHEMA = "coalmine.provenance-fit/1"
FIT_FILE = "provenance-fit.json"
SHADOWS_FOLDER = "shadows"
# Hexadecimal digits: enough that two of a billion texts are never taken for the same.
_DIGITS = 24


class Shadow(msgspec.Struct, frozen=True, kw_only=True):
    """A shadow model, and what it was trained on."""

    # The places of the reference users that it was trained on, from 0.
    users: tuple[int, ...]
    # Where it is: a path from the directory of the fit, or what the user's own function returned; None if it was never saved.
    location: str | None
    # Of its weights, and how it was trained; None for one that the user's own function trained.
    weights_sha256: str | None = None
    options: TrainingOptions | None = None
    # The file beside this one with the ranks that it gives to the texts of all reference users.
    ranks: str
    ranks_sha256: str


class ReferenceUser(msgspec.Struct, frozen=True, kw_only=True):
    """A reference user, without name and text: hashes of both, so that it can be found out whether they occur elsewhere."""

    name: str
    texts: tuple[str, ...]


class FitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Shadow models and the audit classifier; provenance-fit.json."""

    schema: str = SCHEMA
    settings: FitOptions
    # The user's own function that trained the shadows, as python:module:function.
    trained_by: str | None = None
    # Of the options and the vocabulary of all trainings, or of the name of that function.
    recipe_sha256: str
    # Of all texts of the reference users; it also salts the hashes below, so that these cannot be looked up in a table.
    reference_sha256: str
    # Whether the names of reference users are told apart by their case; where they are not, case does not matter. None in files of earlier
    # versions, whose hashes were of names and texts as they were written.
    names_cased: bool | None = None
    # In the order of the corpus.
    reference: tuple[ReferenceUser, ...]
    shadows: tuple[Shadow, ...]
    # Why others could not be trained, or asked.
    left_out: tuple[str, ...] = ()
    # For targets that show all ranks; None if there is none, and `no_classifier` says why.
    classifier: AuditClassifier | None
    no_classifier: str = ""
    warnings: tuple[str, ...] = ()

    def hashed_name(self, name: str) -> str:
        """The hash under which a reference user of this name is recorded."""
        return hashed(self.reference_sha256, "user", name_form(name, cased=bool(self.names_cased)))

    def hashed_text(self, text: UserText) -> str:
        """The hash under which a text of a reference user is recorded; white space, case and the form of Unicode do not count."""
        return hashed(self.reference_sha256, "text", *_sides(text))


def hashed(salt: str, *parts: str) -> str:
    """A salted hash of names or texts.

    >>> hashed("salt", "user", "ann") == hashed("salt", "user", "ann") != hashed("pepper", "user", "ann")
    True
    """
    digest = hashlib.sha256()
    for part in (salt, *parts):
        content = part.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:_DIGITS]


def hashed_users(users: Sequence[User], salt: str, *, cased: bool) -> tuple[ReferenceUser, ...]:
    """Users as a fit records them; `cased` is whether names differ if their case does."""
    return tuple(
        ReferenceUser(
            name=hashed(salt, "user", name_form(user.name, cased=cased)),
            texts=tuple(hashed(salt, "text", *_sides(text)) for text in user.texts),
        )
        for user in users
    )


def _sides(text: UserText) -> tuple[str, ...]:
    sides = (text.text,) if text.source is None else (text.text, text.source)
    return tuple(map(normalized, sides))


FITS = Document(
    record=FitRecord,
    schema=SCHEMA,
    file=FIT_FILE,
    what="the provenance fit",
    title="shadow models",
    by="`coalmine provenance fit`",
    holds="how the shadow models in `shadows/` were trained and on which reference users, as hashes; the audit classifier",
    others={"ranks-*.npz": "the ranks that each shadow model gives to the texts of reference users"},
    companions=lambda record: {shadow.ranks: shadow.ranks_sha256 for shadow in record.shadows},
    other_models=SHADOWS_FOLDER,
)


def read_fit_record(path: str | os.PathLike[str]) -> FitRecord:
    """A provenance-fit.json, or the one in a directory."""
    return FITS.load(Path(path))

"""The documents to unlearn, and texts of the same kind that a model was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.reading import read_documents
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import CorpusError, InputError
from coalmine.grouped import grouped
from coalmine.randomness import arrays, child_seed
from coalmine.storage.files import sha256_of_file

# How many texts of a kind documents are compared with: enough for a median, and cheap to measure again and again.
_COMPARED = 250
# How many other members of a format are drawn, whose loss is held.
_HELD = 400

# What documents are compared with.
Compared = Literal["references", "withheld canaries", "text to keep", "nothing"]


class Kind(NamedTuple):
    """Documents of one kind."""

    # Which of all documents they are.
    places: Sequence[int]
    # Texts of that kind that the model was not trained on: what a document is compared with, and further ones.
    compared: Sequence[str]
    others: Sequence[str] = ()


class Forget(NamedTuple):
    """What is to be forgotten."""

    texts: Sequence[str]
    sha256: str
    kinds: Sequence[Kind]
    compared_with: Compared


def documents_to_forget(path: Path, keep: Sequence[str], fields: Fields, seed: int) -> Forget:
    """The texts of a corpus, or the planted texts of a manifest; `keep` is what those of a corpus are compared with."""
    if path.is_dir() or path.suffix == ".json":
        return _canaries(CanarySet.load(path), path, keep, seed)
    found = texts_of(path, fields)
    kind = Kind(range(len(found)), _sample(keep, seed))
    return Forget(found, sha256_of_file(path), [kind], "text to keep" if keep else "nothing")


def texts_of(path: Path, fields: Fields) -> list[str]:
    """The texts of a corpus; a CorpusError if there are none."""
    found = [document.text for document in read_documents(path, fields) if document.text]
    if not found:
        raise CorpusError(f"{path} has no documents with text; give another file")
    return found


def _canaries(canaries: CanarySet, path: Path, keep: Sequence[str], seed: int) -> Forget:
    planted = [canary for canary in canaries if canary.planted]
    if not planted:
        raise InputError(f"{path} has no planted canaries, so there is nothing to forget; give another file")
    places = grouped((canary.format_id, place) for place, canary in enumerate(planted))
    withheld = grouped((canary.format_id, canary.text) for canary in canaries if not canary.planted)
    sources: dict[Compared, dict[str, Sequence[str]]] = {
        "references": {name: canaries.references[name] for name in places},
        "withheld canaries": {name: withheld.get(name, []) for name in places},
        "text to keep": dict.fromkeys(places, keep),
        "nothing": dict.fromkeys(places, ()),
    }
    # By format: nine digits cost less than nine letters, whoever has seen them.
    whole = [source for source, texts in sources.items() if all(texts.values())]
    compared_with: Compared = whole[0] if whole else "nothing"
    kinds = [
        Kind(mine, _sample(sources[compared_with][name], seed, name), _others(canaries, name, seed))
        for name, mine in places.items()
    ]
    return Forget([canary.text for canary in planted], canaries.sha256, kinds, compared_with)


def _sample(texts: Sequence[str], seed: int, name: str = "") -> list[str]:
    number = min(_COMPARED, len(texts))
    chosen = arrays(seed, "unlearn", "compared", name).choice(len(texts), number, replace=False)
    return [texts[place] for place in sorted(chosen)]


def _others(canaries: CanarySet, name: str, seed: int) -> list[str]:
    """Members of a format that are in no manifest, so that neither exposure nor membership is measured on what was trained on."""
    form = canaries.formats[name]
    known = {*(canary.text for canary in canaries), *canaries.references[name]}
    drawn = form.sample(min(_HELD, form.size), child_seed(seed, "unlearn", "others", name), replace=False)
    return [text for text in drawn if text not in known]

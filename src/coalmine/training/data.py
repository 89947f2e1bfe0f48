"""Training data: documents read, split, tokenized and laid out in rows that are read side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType

from coalmine.corpus.files.documents import CorpusDocument, Fields
from coalmine.corpus.files.kinds import is_in_parts
from coalmine.corpus.files.reading import read_documents
from coalmine.corpus.planting.manifest import EARLIER_NAME, MANIFEST_NAME, CanarySet
from coalmine.corpus.planting.occurrences import search_for
from coalmine.corpus.planting.unseen import unseen_characters
from coalmine.errors import CorpusError, InputError
from coalmine.models.protocols import IntArray
from coalmine.models.reference.tokens import CharacterTokenizer, ReferenceTokenizer, WordTokenizer
from coalmine.randomness import arrays
from coalmine.storage.files import sha256_of_file, to_json
from coalmine.training.options import TrainingOptions

IGNORED = -100  # torch's own label for a place without a loss


class Sources(NamedTuple):
    """The source sides of pairs, in the order of their targets, as the encoder reads them."""

    training: list[IntArray]
    validation: list[IntArray]


class TrainingData(NamedTuple):
    """Tokenized documents, or the targets of pairs, each without its separator."""

    tokenizer: ReferenceTokenizer
    training: list[IntArray]
    validation: list[IntArray]
    sha256: str
    # None for single texts.
    sources: Sources | None = None
    # Which fields were read, where they are not the default, and the hash of the validation corpus, where one was given.
    fields: dict[str, str] | UnsetType = UNSET
    validation_sha256: str | UnsetType = UNSET
    # Of a tokenizer that was given, and not made from the text.
    tokenizer_sha256: str | UnsetType = UNSET
    # Whose each training document is, where that is known.
    users: list[str] | None = None


class Documents(NamedTuple):
    """Texts in their order, or the targets of pairs with their sources."""

    texts: list[str]
    # None for single texts.
    sources: list[str] | None
    # Whose each is; None where that is not known or does not matter.
    users: list[str] | None = None

    def at(self, places: Iterable[int]) -> Documents:
        """Some of them."""
        chosen = list(places)
        sources = None if self.sources is None else [self.sources[place] for place in chosen]
        users = None if self.users is None else [self.users[place] for place in chosen]
        return Documents([self.texts[place] for place in chosen], sources, users)

    def sides(self) -> Iterator[str]:
        """Both sides of all: they share one vocabulary."""
        yield from self.texts
        yield from self.sources or ()

    @property
    def characters(self) -> int:
        """How long they are, with the end of each."""
        return sum(map(len, self.sides())) + len(self.texts)

    @property
    def sha256(self) -> str:
        """A hash of all texts and sources, in their order and each with its length."""
        digest = hashlib.sha256(f"{len(self.texts)} {self.sources is not None}\n".encode())
        for text in self.sides():
            content = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(content)}\n".encode())
            digest.update(content)
        if self.users is not None:
            digest.update(to_json(self.users))
        return digest.hexdigest()


class TrainingText(NamedTuple):
    """Documents, neither split nor tokenized: all that a training needs of a corpus, wherever it runs."""

    documents: Documents
    # Of a validation corpus, if one was given.
    held_out: Documents | None
    # The texts of canaries, which are never held out.
    planted: frozenset[str]
    sha256: str
    # Which fields were read, where they are not the default, and the hash of the validation corpus, where one was given.
    fields: dict[str, str] | UnsetType
    validation_sha256: str | UnsetType
    # How long it is, with the ends of documents.
    characters: int
    # The one to read it with; None for one that is made from it.
    tokenizer: ReferenceTokenizer | None = None
    # Characters that never occur in the original text and that canaries are made of: all of them get a token, those of withheld canaries
    # too, or these could not be scored.
    unseen: str = ""

    @property
    def tokenizer_sha256(self) -> str | UnsetType:
        """A hash of the tokenizer that was given, if one was."""
        if self.tokenizer is None:
            return UNSET
        return hashlib.sha256(to_json(self.tokenizer.to_dict())).hexdigest()

    def part(self, places: IntArray, held_out: IntArray | None = None) -> TrainingText:
        """Some of the documents, as a text of its own, and others to validate on; not of a text with a validation corpus."""
        part = text_of(
            self.documents.at(places.tolist()),
            tokenizer=self.tokenizer,
            held_out=None if held_out is None else self.documents.at(held_out.tolist()),
        )
        return part._replace(unseen=self.unseen)


def text_of(
    documents: Documents, *, tokenizer: ReferenceTokenizer | None = None, held_out: Documents | None = None
) -> TrainingText:
    """Documents that are in memory, for a training.

    >>> text_of(Documents(["to be", "or not"], None)).characters
    13
    """
    return TrainingText(
        documents,
        held_out,
        frozenset(),
        documents.sha256,
        UNSET,
        UNSET if held_out is None else held_out.sha256,
        documents.characters,
        tokenizer,
    )


def read_corpus(
    data: Path,
    valid: Path | None,
    fields: Fields | None,
    wanted: Iterable[TrainingOptions] = (),
    *,
    by_user: bool = False,
) -> TrainingText:
    """Read a corpus, or the directory that `coalmine plant` wrote, for trainings with these options.

    With `by_user`, or if one of the options needs it, it is read whose each document is.
    """
    corpus, canaries = _locate(data)
    if fields is None:
        fields = Fields() if canaries is None or canaries.corpus is None else canaries.corpus.fields
    wanted = list(wanted)
    for options in wanted:
        _check_kind(corpus, fields, options)
    by_user = by_user or any(options.private and options.private.unit == "user" for options in wanted)
    if by_user and fields.user is None:
        raise CorpusError(
            f"the unit of privacy is the user, and no field of {corpus} was named that says whose each document is; name it with "
            "--field user=NAME, or take the document as the unit"
        )
    documents = _read(corpus, fields, by_user=by_user)
    sets = (canaries, _earlier(corpus)) if valid is None else ()
    unread = {"date"} if by_user else {"user", "date"}
    read = {role: name for role, name in fields.named().items() if role not in unread}
    return TrainingText(
        documents,
        None if valid is None else _read(valid, fields),
        frozenset(text for some in sets if some is not None for text in _texts_with(some, documents)),
        sha256_of_file(corpus),
        UNSET if read == Fields().named() else read,
        UNSET if valid is None else sha256_of_file(valid),
        documents.characters,
        unseen="".join(unseen_characters(some) for some in (canaries, _earlier(corpus)) if some is not None),
    )


def tokenized(text: TrainingText, options: TrainingOptions) -> TrainingData:
    """Split off what is held out, and tokenize both parts."""
    documents, held_out = text.documents, text.held_out
    if held_out is None:
        documents, held_out = hold_out(documents, text.planted, options.holdout, options.seed)
    tokenizer: ReferenceTokenizer
    if text.tokenizer is not None:
        tokenizer = _fitting(text.tokenizer, chain(documents.sides(), held_out.sides()), options)
    elif options.tokens == "characters":
        # Includes the characters of the validation documents, or a rare one would stop the run at its first validation.
        tokenizer = CharacterTokenizer.of(chain(documents.sides(), held_out.sides(), [text.unseen]))
    else:
        tokenizer = WordTokenizer.of(documents.sides(), most=options.vocabulary)
    training, validation = (
        [tokenizer.encode_document(one) for one in part.texts] for part in (documents, held_out)
    )
    return TrainingData(
        tokenizer,
        training,
        validation,
        text.sha256,
        _sources(documents, held_out, tokenizer),
        text.fields,
        text.validation_sha256,
        text.tokenizer_sha256,
        documents.users,
    )


def _fitting(
    tokenizer: ReferenceTokenizer, texts: Iterable[str], options: TrainingOptions
) -> ReferenceTokenizer:
    """A tokenizer that was given, if it is of the kind that the options name and has a token for everything."""
    if tokenizer.kind != options.tokens:
        raise InputError(
            f"the given tokenizer is one of {tokenizer.kind}, and the options name {options.tokens}; give one of {options.tokens}, or "
            f"set tokens to {tokenizer.kind}"
        )
    if isinstance(tokenizer, CharacterTokenizer):
        without = set().union(*texts).difference(tokenizer.characters)
        if without:
            raise CorpusError(
                f"{len(without)} of the characters of these documents are not in the given tokenizer, which has no token for unknown "
                "ones; leave such documents out, or train with a tokenizer that is made from them"
            )
    return tokenizer


def _read(corpus: Path, fields: Fields, *, by_user: bool = False) -> Documents:
    texts, sources, users = [], [], []
    for document in read_documents(corpus, fields):
        texts.append(document.text)
        sources.append(document.source or "")
        if by_user:
            users.append(_user_of(document, corpus))
    return Documents(texts, None if fields.source is None else sources, users if by_user else None)


def _user_of(document: CorpusDocument, corpus: Path) -> str:
    if not document.user:
        raise CorpusError(
            f"document {document.number} of {corpus} has no user, and the unit of privacy is the user; fill in its user field, or take the "
            "document as the unit"
        )
    return document.user


def _check_kind(corpus: Path, fields: Fields, options: TrainingOptions) -> None:
    """Refuse single texts for a model of pairs, and pairs for the others: a model of targets alone could not score pairs."""
    if options.reads_pairs and fields.source is None:
        raise CorpusError(
            f"the architecture {options.architecture!r} is trained on pairs, but no source and target field of {corpus} was named; "
            "name both, or choose a preset for single texts such as char-lstm"
        )
    if not options.reads_pairs and fields.source is not None:
        raise CorpusError(
            f"{corpus} holds pairs of {fields.source!r} and {fields.target!r}, and the architecture {options.architecture!r} is "
            f"trained on single texts; choose the preset translation or translation-attention, or name {fields.target!r} as the "
            "text field to train on it alone"
        )


def check_documents(documents: Documents, options: TrainingOptions) -> None:
    """As for a corpus: refuse documents in memory that a model of these options cannot be trained on."""
    if options.private and options.private.unit == "user" and documents.users is None:
        raise CorpusError(
            "the unit of privacy is the user, and it was not said whose each document is; give users, or take the document as the unit"
        )
    if options.reads_pairs != (documents.sources is not None):
        wanted, given = ("pairs", "single texts") if options.reads_pairs else ("single texts", "pairs")
        raise CorpusError(
            f"the architecture {options.architecture!r} is trained on {wanted}, and the documents are {given}; choose another preset"
        )


def _sources(documents: Documents, held_out: Documents, tokenizer: ReferenceTokenizer) -> Sources | None:
    if documents.sources is None:
        return None
    from coalmine.models.reference.pair_networks import SourceTokenizer

    reader = SourceTokenizer(tokenizer)
    training, validation = (
        [reader.encode_document(source) for source in part.sources or ()] for part in (documents, held_out)
    )
    return Sources(training, validation)


def _locate(data: Path) -> tuple[Path, CanarySet | None]:
    if not data.exists():
        raise CorpusError(f"training data was not found: {data} does not exist; check the path")
    if data.is_dir() and ((data / MANIFEST_NAME).exists() or not is_in_parts(data)):
        canaries = CanarySet.load(data)
        if canaries.corpus is None:
            raise InputError(f"{data / MANIFEST_NAME} names no planted corpus; give the corpus file itself")
        return data / canaries.corpus.name, canaries
    beside = data.with_name(MANIFEST_NAME)
    return data, CanarySet.load(beside) if beside.is_file() else None


def _texts_with(canaries: CanarySet, documents: Documents) -> set[str]:
    """The texts of documents that are canaries, or in chat data hold one."""
    if canaries.frame is None:
        return {canary.text for canary in canaries}
    search = search_for(canaries)
    return {text for text in documents.texts if any(True for _ in search.find(text.encode("utf-8")))}


def _earlier(corpus: Path) -> CanarySet | None:
    """The canaries that were in a corpus before it was planted in again."""
    manifest = corpus.with_name(EARLIER_NAME)
    return CanarySet.load(manifest) if manifest.is_file() else None


def hold_out(
    documents: Documents, planted: frozenset[str], share: float, seed: int
) -> tuple[Documents, Documents]:
    """Split off validation documents; a canary always stays in the training data, or its count would be wrong."""
    number = len(documents.texts)
    if share == 0:
        return documents, documents.at(())
    candidates = [place for place, text in enumerate(documents.texts) if text not in planted]
    wanted = max(1, round(share * number))
    if wanted >= len(candidates):
        raise CorpusError(
            f"the corpus has {len(candidates)} documents besides canaries, too few to hold out {wanted} of them for "
            "validation; give a validation file, or set holdout to 0"
        )
    chosen = set(arrays(seed, "train", "holdout").choice(candidates, size=wanted, replace=False).tolist())
    training = documents.at(place for place in range(number) if place not in chosen)
    return training, documents.at(place for place in range(number) if place in chosen)


def epoch_order(documents: int, options: TrainingOptions, epoch: int) -> IntArray:
    """The order of the documents in an epoch."""
    if not options.shuffle:
        return np.arange(documents)
    return arrays(options.seed, "train", "order", epoch).permutation(documents)


def rows_of(documents: Sequence[IntArray], separator: int, rows: int) -> tuple[IntArray, IntArray]:
    """Inputs and targets, each (rows, time): the documents one after the other, a separator before each and at the end.

    Rows are about equally long and begin with a document where one begins nearby, so that few documents are cut in two. No
    token is dropped: rows that are shorter than the longest are padded, and no loss is computed there.
    """
    lengths = np.array([len(document) + 1 for document in documents])
    stream = np.full(int(lengths.sum()) + 1, separator, dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    for document, start in zip(documents, starts, strict=False):
        stream[start + 1 : start + 1 + len(document)] = document
    rows = max(1, min(rows, len(stream) - 1))
    share = (len(stream) - 1) / rows
    cuts = [0]
    for row in range(1, rows):
        ideal = row * share
        nearest = int(starts[np.abs(starts - ideal).argmin()])
        cuts.append(nearest if abs(nearest - ideal) <= share / 4 and nearest > cuts[-1] else round(ideal))
    cuts.append(len(stream) - 1)
    time = max(end - start for start, end in pairwise(cuts))
    inputs = np.full((rows, time), separator, dtype=np.int64)
    targets = np.full((rows, time), IGNORED, dtype=np.int64)
    for row, (start, end) in enumerate(pairwise(cuts)):
        inputs[row, : end - start] = stream[start:end]
        targets[row, : end - start] = stream[start + 1 : end + 1]
    return inputs, targets

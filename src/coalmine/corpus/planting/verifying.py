"""Verifying a planted corpus against its manifest: every canary is counted, and taken out again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET

from coalmine.corpus.chat.finding import AddedTexts, is_framed
from coalmine.corpus.chat.rows import text_of
from coalmine.corpus.chat.turns import PlacedTurn
from coalmine.corpus.files.documents import BOUNDARY, CorpusDocument
from coalmine.corpus.files.reading import open_corpus, reported
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.manifest_records import PlantedCorpus
from coalmine.corpus.planting.occurrences import search_for
from coalmine.corpus.planting.surveying import user_of
from coalmine.errors import CorpusError, ManifestError
from coalmine.progress import Progress, Silent
from coalmine.records import Canary


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked of a planted corpus, and what was found wrong with it.

    >>> Verification(
    ...     ok=False, problems=("corpus.txt has 9 documents, but should have 10",), documents=9, canaries=1, references=0, original="same"
    ... ).problems
    ('corpus.txt has 9 documents, but should have 10',)
    """

    ok: bool
    # One sentence each; none of them shows a secret.
    problems: tuple[str, ...]
    documents: int
    canaries: int
    references: int
    # Whether taking the planted documents out again gives the original, byte for byte: "same", "different", or why it
    # was not checked.
    original: str


def verify_planted(directory: str | os.PathLike[str], *, progress: Progress | None = None) -> Verification:
    r"""Compare a planted corpus with its manifest, by reading all of it.

    Checked are: the SHA-256 of the corpus, the number of documents, that each planted canary is the text of exactly as
    many documents as it was planted in, that no withheld canary and no reference occurs at all, that no canary occurs
    inside another document, and, for files of lines that are not compressed, that what is left without the planted
    documents is the original.

    Args:
        directory: what `plant` wrote to, or its canaries.json.
        progress: gets the bytes read.

    >>> import tempfile
    >>> from coalmine.corpus import plant
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("one document per line\n" * 1000)
    ...     planted = plant(Path(folder, "a.txt"), "my pin is {digits:6}", repeat=1, out=Path(folder, "out"))
    ...     found = verify_planted(Path(folder, "out"))
    >>> found.ok, found.original, found.references
    (True, 'same', 1000)
    """
    canaries = CanarySet.load(directory)
    path = canaries.corpus_path
    if canaries.corpus is None or path is None:
        raise ManifestError(
            f"{canaries.path} describes no planted corpus, so there is nothing to verify; plant first"
        )
    if not path.exists():
        raise CorpusError(
            f"the planted corpus {path} is missing; put it back beside its manifest, or plant again"
        )
    reader = _Reader(canaries, canaries.corpus)
    try:
        reader.read(path, progress or Silent())
        problems = reader.problems()
    except CorpusError as error:
        problems = [str(error)]
    return Verification(
        ok=not problems,
        problems=tuple(problems),
        documents=reader.documents,
        canaries=len(canaries),
        references=sum(map(len, canaries.references.values())),
        original=reader.original,
    )


class _Reader:
    """One pass over a planted corpus, and what it found."""

    def __init__(self, canaries: CanarySet, record: PlantedCorpus) -> None:
        self._canaries = canaries
        self._record = record
        self._planted = {canary.text: canary for canary in canaries if canary.times_trained_on}
        self._names = {text: name for name, _, text in canaries.named_texts()}
        self._search = search_for(canaries)
        self._frame = canaries.frame
        self._added = None
        if self._frame is not None and self._frame.place == "inside":
            self._added = AddedTexts(self._names, self._frame.role)
        # The text of a whole document to that of the canary or reference which it is.
        self._alone = {self._document_of(text): text for text in self._names} if self._added is None else {}
        # Text to how many documents are that text.
        self._counts: Counter[str] = Counter()
        self._found: list[str] = []
        self._sha256 = ""
        self._unit = "line"
        self.documents = 0
        self.original = "not checked: the corpus cannot be read"

    def read(self, path: Path, progress: Progress) -> None:
        """Read the whole corpus."""
        with open_corpus(path, self._record.fields, hashed=True) as corpus:
            remains, self._unit = corpus.remains(), corpus.kind.unit
            with reported(corpus, progress, "verifying the corpus") as advance:
                for block in corpus.blocks():
                    documents = block.documents()
                    turns = () if self._frame is None else block.conversations()
                    self._look_at(documents, turns)
                    if remains is not None:
                        planted = [self._alone.get(document.text) in self._planted for document in documents]
                        remains.add(block, planted, self._added_to(turns))
                    advance()
                self._sha256 = corpus.sha256()
            if self._record.rewritten is not UNSET:
                self.original = f"not checked: {self._record.rewritten.by} rewrote the corpus after planting"
            elif remains is None:
                suffix = corpus.kind.of_part().full_suffix
                self.original = f"not checked: a {suffix} file can be written in many ways"
            else:
                same = remains.sha256() == self._record.sha256_before
                self.original = "same" if same else "different"

    def _document_of(self, text: str) -> str:
        """The text of a document that is a canary alone."""
        return text if self._frame is None else text_of(self._frame.conversation(text))

    def _added_to(self, turns: Sequence[Sequence[PlacedTurn]]) -> dict[int, tuple[PlacedTurn, str]]:
        """The conversations of a block that a planted canary was added to, each with the turn and what was added."""
        if self._added is None:
            return {}
        found = {number: self._added.found(one) for number, one in enumerate(turns)}
        return {
            number: (one.turn, one.added)
            for number, one in found.items()
            if one is not None and one.text in self._planted
        }

    def _look_at(self, documents: Sequence[CorpusDocument], turns: Sequence[Sequence[PlacedTurn]]) -> None:
        others = []
        for place, document in enumerate(documents):
            text = self._alone.get(document.text)
            if text is not None:
                self._counts[text] += 1
                canary = self._planted.get(text)
                if canary is not None:
                    self._check_row(document, canary, turns[place] if turns else ())
                continue
            added = None if self._added is None else self._added.found(turns[place])
            if added is None:
                others.append(document)
            else:
                self._counts[added.text] += 1
                rest = document.text.replace(added.added, "", 1)
                others.append(msgspec.structs.replace(document, text=rest))
        self.documents += len(documents)
        haystack = BOUNDARY.join([document.text.encode("utf-8") for document in others])
        for offset, text in self._search.find(haystack):
            number = others[haystack.count(BOUNDARY, 0, offset)].number
            self._found.append(f"{self._names[text]} occurs inside another document ({self._unit} {number})")

    def _check_row(self, document: CorpusDocument, canary: Canary, turns: Sequence[PlacedTurn]) -> None:
        fields = self._record.fields
        if self._frame is not None and not is_framed(turns, self._frame, canary.text):
            self._found.append(
                f"canary {canary.canary_id} is not in the turn that it was planted in ({self._unit} {document.number})"
            )
        if fields.user is not None and document.user != user_of(canary):
            self._found.append(
                f"canary {canary.canary_id} has the wrong user ({self._unit} {document.number})"
            )
        if fields.source is not None and document.source != canary.source:
            self._found.append(
                f"canary {canary.canary_id} has the wrong source ({self._unit} {document.number})"
            )

    def problems(self) -> list[str]:
        """What does not match the manifest."""
        record = self._record
        problems = []
        if self._sha256 != record.sha256_after:
            problems.append(
                f"the SHA-256 of {record.name} is {self._sha256}, but should be {record.sha256_after}"
            )
        if self.documents != record.documents_after:
            problems.append(
                f"{record.name} has {self.documents} documents, but should have {record.documents_after}"
            )
        expected = {canary.text: canary.times_trained_on for canary in self._canaries}
        for name, _, text in self._canaries.named_texts():
            if self._counts[text] != expected.get(text, 0):
                what, should = (
                    ("is the text of", "that of") if self._frame is None else ("is planted in", "in")
                )
                problems.append(
                    f"{name} {what} {self._counts[text]} documents, but should be {should} {expected.get(text, 0)}"
                )
        if self.original == "different":
            problems.append(
                f"without the planted documents, {record.name} is no longer the original {record.original_name}"
            )
        return problems + self._found

"""The first pass over a corpus that is about to be planted in: its size, its hash, and that no canary occurs in it yet."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from coalmine.corpus.files.documents import DocumentBlock, Fields
from coalmine.corpus.files.reading import nonempty_blocks, open_corpus, reported
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.occurrences import search_for
from coalmine.corpus.planting.unseen import UnseenIn, check_unseen, has_unseen
from coalmine.errors import CorpusError
from coalmine.progress import Progress
from coalmine.records import Canary

# Turns of a row that a byte can count.
_MOST_TURNS = 255


class Survey(NamedTuple):
    """What the first pass over a corpus found."""

    documents: int
    # All texts together, in UTF-8.
    text_bytes: int
    sha256: str
    # Size, modification time and inode: the second pass must see the same file.
    identity: tuple[int, int, int]
    # Where canaries go inside turns: a byte per document, how many turns of the role with text it has.
    turns: bytes


def survey_corpus(path: Path, fields: Fields, drawn: CanarySet, progress: Progress) -> Survey:
    """Read the whole corpus once: count its documents, hash it, and look for the canaries in it."""
    names = {text: name for name, _, text in drawn.named_texts()}
    search = search_for(drawn)
    unseen = {
        form.template: UnseenIn(form.words or ())
        for form in drawn.formats.values()
        if has_unseen(form.template)
    }
    before = {template: len(left) for template, left in unseen.items()}
    documents = text_bytes = 0
    turns, inside = bytearray(), drawn.frame is not None and drawn.frame.place == "inside"
    with open_corpus(path, fields, hashed=True, frame=drawn.frame) as source:
        identity = identity_of(path)
        for canary in () if inside else drawn:
            # Fails now, not in the second pass, if the corpus cannot hold one of them.
            source.check_document(values_of(canary))
        with reported(source, progress, "reading the corpus") as advance:
            for block in nonempty_blocks(source):
                haystack = block.haystack()
                for offset, text in search.find(haystack):
                    raise CorpusError(
                        f"{names[text]} occurs in the corpus already ({path}, {source.kind.unit} {block.number_at(offset)}), "
                        "so nothing could be learned from it; use another seed or another format"
                    )
                for left in unseen.values():
                    left.remove_those_of(block, fields)
                if inside and drawn.frame is not None:
                    turns += _turns_of(block, drawn.frame.role)
                documents += block.count
                text_bytes += len(haystack)
                advance()
            sha256 = source.sha256()
    check_unseen(unseen, before, path)
    return Survey(documents, text_bytes, sha256, identity, bytes(turns))


def identity_of(path: Path) -> tuple[int, int, int]:
    """What tells whether a file, or one of a directory, was changed or replaced meanwhile."""
    found = [one.stat() for one in (sorted(path.iterdir()) if path.is_dir() else [path])]
    inodes = found[0].st_ino if len(found) == 1 else hash(tuple(one.st_ino for one in found))
    return (sum(one.st_size for one in found), max(one.st_mtime_ns for one in found), inodes)


def values_of(canary: Canary) -> dict[str, str]:
    """Role to value of the row that holds a canary."""
    return {"text": canary.text, "user": user_of(canary), "source": canary.source or ""}


def user_of(canary: Canary) -> str:
    """The user of a canary, in a corpus that has users."""
    return f"coalmine-{canary.canary_id}"


def _turns_of(block: DocumentBlock, role: str) -> bytes:
    """How many turns of a role with text each document has."""
    return bytes(
        min(_MOST_TURNS, sum(turn.role == role and turn.content != "" for turn in turns))
        for turns in block.conversations()
    )

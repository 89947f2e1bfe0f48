"""Texts that never occur in a corpus, for `{unseen:n}`: characters, or the tokens of a vocabulary."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coalmine.corpus.files.documents import DocumentBlock, Fields
from coalmine.corpus.files.reading import nonempty_blocks, open_corpus, reported
from coalmine.corpus.planting.options import PlantOptions
from coalmine.errors import CorpusError
from coalmine.formats.format import Format
from coalmine.formats.template import Hole, pieces_of
from coalmine.progress import Progress, Silent

if TYPE_CHECKING:
    from coalmine.corpus.planting.manifest import CanarySet

# Ideographs and Hangul syllables: printable, without case, one code point each, and left alone by Unicode's usual normalization.
_CHARACTERS = (range(0x4E00, 0xA000), range(0xAC00, 0xD7A4))
# So many characters are compared first, before longer parts of a word are.
_BEGINNING = 3
# Words that are remembered as known, so that no word is looked at twice; to forget them costs time only.
_MOST_KNOWN = 4_000_000


def has_unseen(template: str) -> bool:
    """Whether a template has a hole for unseen text.

    >>> has_unseen("my code is {unseen:4}"), has_unseen("my code is {{unseen:4}} {digits:4}")
    (True, False)
    """
    return any(isinstance(piece, Hole) and piece.name == "unseen" for piece in pieces_of(template))


def unseen_characters(canaries: CanarySet) -> str:
    """The characters that `{unseen:n}` of some canaries draws from; tokens of more characters are in a vocabulary already."""
    return "".join(
        text
        for form in canaries.formats.values()
        if form.words is not None and has_unseen(form.template)
        for text in form.words
        if len(text) == 1
    )


def formats_with_unseen(
    given: Sequence[Format | str], corpus: Path, options: PlantOptions, progress: Progress
) -> list[Format | str]:
    """The given formats, with what `{unseen:n}` draws from for templates that have it; such a template reads the corpus once more."""
    waiting = [one for one in given if isinstance(one, str) and has_unseen(one)]
    if not waiting:
        return list(given)
    others = [Format(one) if isinstance(one, str) else one for one in given if one not in waiting]
    found = unseen_texts(
        corpus,
        options.unseen_from,
        most=options.unseen,
        besides=[*(_literals(one) for one in waiting), *map(_alphabet, others)],
        fields=options.fields,
        progress=progress,
    )
    return [Format(one, words=found) if one in waiting else one for one in given]


def unseen_texts(
    corpus: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str] | object | None = None,
    *,
    most: int = 256,
    besides: Iterable[str] = (),
    fields: Fields | None = None,
    progress: Progress | None = None,
) -> list[str]:
    r"""Up to `most` characters or tokens that never occur in a corpus, for `Format("... {unseen:n}", words=...)`.

    `plant` calls it for templates with `{unseen:n}`. The same corpus gives the same texts.

    Args:
        corpus: a corpus file of any kind that `read_documents` reads.
        tokenizer: a model's or tokenizer's directory, or a tokenizer. Of characters or words, those of its vocabulary are taken. Of
            subwords, those of ASCII that begin a word and are one token after a space. None takes ideographs and Hangul syllables.
        most: how many to find at most.
        besides: further texts that none of them may occur in.
        fields: which fields of a row hold what; .txt has none.
        progress: gets the bytes of the corpus that were read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     corpus = Path(folder, "corpus.txt")
    ...     _ = corpus.write_text("what never occurs here: 一七\n")
    ...     unseen_texts(corpus, most=3)
    ['丁', '丂', '丄']
    """
    candidates = _characters() if tokenizer is None else _vocabulary(tokenizer)
    left = UnseenIn(candidates)
    for text in besides:
        left.remove_those_in(text)
    fields = fields or Fields()
    with (
        open_corpus(Path(corpus), fields) as source,
        reported(source, progress or Silent(), "looking for unseen text") as advance,
    ):
        for block in nonempty_blocks(source):
            left.remove_those_of(block, fields)
            advance()
    found = [text for text in candidates if text in left][:most]
    if len(found) < 2:
        raise _none_left(corpus, tokenizer, len(candidates))
    return found


class UnseenIn:
    """Texts without white space, of which those that occur in other text are removed, whatever their case.

    >>> left = UnseenIn(["ox", "Fox", "cat"])
    >>> left.remove_those_in("a foxy cow")
    >>> [text for text in ("ox", "Fox", "cat") if text in left]
    ['cat']
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._left = {text.casefold() for text in texts}
        self._single = all(len(text) == 1 for text in self._left)
        self._known: set[str] = set()

    def __contains__(self, text: str) -> bool:
        return text.casefold() in self._left

    def __len__(self) -> int:
        return len(self._left)

    def remove_those_of(self, block: DocumentBlock, fields: Fields) -> None:
        """Remove those that occur in some documents of a corpus; of pairs, on either side."""
        self.remove_those_in(block.haystack().decode("utf-8", "replace"))
        if fields.source is not None:
            self.remove_those_in(" ".join(document.source or "" for document in block.documents()))

    def remove_those_in(self, text: str) -> None:
        """Remove those that occur in a text."""
        folded = text.casefold()
        if self._single:
            self._left.difference_update(folded)
            return
        lengths = sorted({len(one) for one in self._left})
        beginnings = {one[:_BEGINNING] for one in self._left}
        sizes = sorted({len(one) for one in beginnings})
        words = set(folded.split()) - self._known
        for word in words:
            for start in range(len(word)):
                if any(word[start : start + size] in beginnings for size in sizes):
                    self._left.difference_update([word[start : start + length] for length in lengths])
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        self._known |= words


def check_unseen(left: dict[str, UnseenIn], before: dict[str, int], path: Path) -> None:
    """Refuse formats whose unseen text occurs in a corpus after all; `before` says how many there were."""
    for template, unseen in left.items():
        seen = before[template] - len(unseen)
        if seen:
            raise CorpusError(
                f"{seen:,} of the {before[template]:,} texts that {template!r} draws from as unseen occur in {path}, so that canaries of "
                "them would have little power; give the template alone, for which plant finds others"
            )


def _characters() -> list[str]:
    return [chr(point) for points in _CHARACTERS for point in points]


def _vocabulary(given: str | os.PathLike[str] | object) -> list[str]:
    """The texts of a tokenizer's tokens that can be put into a text one by one and are read back as these tokens."""
    from coalmine.corpus.index.tokenizing import ReferenceTokens, SubwordTokens, index_tokenizer

    tokenizer: Any = index_tokenizer(given)
    if isinstance(tokenizer, SubwordTokens):
        return tokenizer.lone_words()
    if isinstance(tokenizer, ReferenceTokens):
        described = tokenizer.description
        texts = described.get("characters") or described.get("words") or ()
        return [text for text in texts if text.isprintable() and not text.isspace()]
    return []  # of bytes


def _none_left(
    corpus: str | os.PathLike[str], tokenizer: str | os.PathLike[str] | object | None, candidates: int
) -> CorpusError:
    what = f"{os.fspath(corpus)} leaves fewer than two"
    if tokenizer is None:
        return CorpusError(
            f"{what} of the {candidates:,} characters that {{unseen:n}} may draw from; name the tokenizer of your model with unseen_from"
        )
    return CorpusError(
        f"{what} of the {candidates:,} usable tokens of the tokenizer, because the others occur in it; leave unseen_from out to use "
        "characters, or use {word:n} with rare words"
    )


def _literals(template: str) -> str:
    """What a template has besides its holes, with what other holes than the unseen can be filled with."""
    pieces = pieces_of(template)
    holes = [
        piece.spec for piece in pieces if isinstance(piece, Hole) and piece.name not in {"unseen", "word"}
    ]
    texts = [piece.text for piece in pieces if not isinstance(piece, Hole)]
    return " ".join([*texts, *(_alphabet(Format(f"{{{spec}}}")) for spec in dict.fromkeys(holes))])


def _alphabet(form: Format) -> str:
    """The characters that members can have; members of a list of words are given whole."""
    if form.words is not None:
        return " ".join([form.template, *form.words])
    automaton = form.automaton
    return "".join(
        {character for state in range(automaton.state_count) for character, _ in automaton.edges(state)}
    )

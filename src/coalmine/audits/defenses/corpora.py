"""The corpora of a bench: what is held out, the planted corpus, and what deduplication and redaction leave of it."""

from __future__ import annotations

import string
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coalmine.audits.defenses.options import DefenseOptions
from coalmine.audits.defenses.recipes import CorpusName
from coalmine.corpus.deduplication.deduplicating import deduplicate
from coalmine.corpus.files.corpora import Edits
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import read_documents
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.options import PlantOptions
from coalmine.corpus.planting.planting import Planted, plant
from coalmine.corpus.planting.unseen import has_unseen, unseen_characters
from coalmine.corpus.redaction.redacting import redact
from coalmine.corpus.rewriting import OriginalCorpus
from coalmine.engines.engine import Engine
from coalmine.errors import CorpusError, InputError
from coalmine.formats.format import Format
from coalmine.models.reference.tokens import CharacterTokenizer, WordTokenizer
from coalmine.progress import Progress
from coalmine.randomness import arrays
from coalmine.storage.files import make_directory, together
from coalmine.training.data import TrainingText, read_corpus
from coalmine.training.options import TrainingOptions

# What masks of redacted secrets are made of: models read all texts of a bench, whichever of its corpora they were trained on.
_MASKS = string.ascii_letters + string.digits + "[]-"


class BenchCorpus(NamedTuple):
    """A corpus that models of a bench are trained on, and its manifest."""

    path: Path
    canaries: CanarySet
    text: TrainingText


class BenchCorpora(NamedTuple):
    """All corpora of a bench."""

    # Of the corpus that the user gave.
    sha256: str
    by_name: dict[CorpusName, BenchCorpus]
    # The files with the documents that canaries are planted in, without them, and with those that are held out.
    part: Path
    validation: Path
    held_out: list[str]
    # Where what is made from the planted corpus goes.
    below: Path

    @property
    def planted(self) -> BenchCorpus:
        """The one with all canaries."""
        return self.by_name["planted"]

    @property
    def form(self) -> Format:
        """The format of the canaries."""
        [found] = self.planted.canaries.formats.values()
        return found


def make_corpora(
    source: Path,
    folder: Path,
    below: Path,
    names: Iterable[CorpusName],
    *,
    format: Format | str,
    planting: PlantOptions,
    options: DefenseOptions,
    usual: Any,
    by_user: bool,
    engine: Engine,
    progress: Progress,
) -> BenchCorpora:
    """The corpora of these names; those that are there already are checked, and not made again.

    What is made from the planted corpus goes `below`. `usual` are the options of the training without a defense, and `by_user` says whether
    some training has to know whose each document is.
    """
    fields = options.fields
    original = OriginalCorpus.of(source, fields)
    part, validation = _divided(original, folder / "parts", options, progress)
    planting = msgspec.structs.replace(planting, seed=options.seed, fields=fields)
    planted = plant(part, format, out=folder / "planted", options=planting, progress=progress)
    paths: dict[CorpusName, Path] = {"planted": planted.corpus}
    for name in names:
        out = below / f"corpus-{name}"
        if name == "dedup":
            left = deduplicate(
                planted.corpus, out, engine=engine, progress=progress, seed=options.seed, fields=fields
            )
            paths[name] = out / left.corpus
        elif name == "redact":
            [form] = planted.canaries.formats.values()
            if has_unseen(form.template):
                raise InputError(
                    "redaction finds secrets by their format, and that of this bench is drawn from what the corpus does not have; name "
                    "another format, or leave the defense redact out"
                )
            masked = redact(planted.corpus, out, progress=progress, formats=(form.template,), fields=fields)
            paths[name] = out / masked.corpus
    texts = {name: read_corpus(path, validation, fields, by_user=by_user) for name, path in paths.items()}
    texts = _with_one_tokenizer(texts, planted, usual)
    manifests = {name: CanarySet.load(path.parent) for name, path in paths.items()}
    held_out = texts["planted"].held_out
    return BenchCorpora(
        original.sha256,
        {name: BenchCorpus(path, manifests[name], texts[name]) for name, path in paths.items()},
        part,
        validation,
        [] if held_out is None else held_out.texts,
        below,
    )


def _divided(
    source: OriginalCorpus, folder: Path, options: DefenseOptions, progress: Progress
) -> tuple[Path, Path]:
    """Hold out some documents: the file with the others, and the file with these."""
    every = sum(1 for _ in read_documents(source.path, options.fields))
    number = max(1, round(options.holdout * every))
    if number >= every:
        raise CorpusError(
            f"{source.path} has {every} documents, too few to hold out {number} of them; give a larger corpus"
        )
    drawn = arrays(options.seed, "defend", "holdout").choice(every, size=number, replace=False)
    held, suffix = set(drawn.tolist()), kind_of(source.path).full_suffix
    kept, validation = folder / f"training{suffix}", folder / f"validation{suffix}"
    make_directory(folder)
    with together():
        source.write(kept, Edits(changes=dict.fromkeys(sorted(held))), progress)
        others = (place for place in range(every) if place not in held)
        source.write(validation, Edits(changes=dict.fromkeys(others)), progress)
    return kept, validation


def _with_one_tokenizer(
    texts: dict[CorpusName, TrainingText], planted: Planted, usual: Any
) -> dict[CorpusName, TrainingText]:
    """Texts that all models read with one tokenizer: other tokens would be another loss. A checkpoint has a tokenizer of its own."""
    if not isinstance(usual, TrainingOptions):
        return texts
    documents, held_out = texts["planted"].documents, texts["planted"].held_out
    tokenizer: WordTokenizer | CharacterTokenizer
    if usual.tokens == "words":
        tokenizer = WordTokenizer.of(documents.sides(), most=usual.vocabulary)
    else:
        canaries = [text for _, _, text in planted.canaries.named_texts()]
        others = [unseen_characters(planted.canaries), _MASKS]
        sides = () if held_out is None else held_out.sides()
        tokenizer = CharacterTokenizer.of(chain(documents.sides(), sides, canaries, others))
    return {name: text._replace(tokenizer=tokenizer) for name, text in texts.items()}

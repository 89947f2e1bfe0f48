"""The corpora of a bench: what is held out, the planted corpus, and what deduplication and redaction leave of it."""

from __future__ import annotations

import string
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coalmine.audits.defenses.recipes import CorpusName, DefenseOptions
from coalmine.audits.defenses.records import TRAININGS_FOLDER
from coalmine.corpus.deduplication.deduplicating import deduplicate
from coalmine.corpus.files.corpora import Edits
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import read_documents
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.options import PlantOptions
from coalmine.corpus.planting.planting import plant
from coalmine.corpus.planting.unseen import unseen_characters
from coalmine.corpus.redaction.redacting import redact
from coalmine.corpus.rewriting import OriginalCorpus
from coalmine.engines.engine import Engine
from coalmine.formats.format import Format
from coalmine.models.reference.tokens import CharacterTokenizer, WordTokenizer
from coalmine.progress import Progress
from coalmine.randomness import arrays
from coalmine.storage.files import make_directory, together
from coalmine.training.data import TrainingText, read_corpus
from coalmine.training.options import TrainingOptions

# What masks of redacted secrets are made of: models read all texts of a bench, whichever of its corpora they were trained on.
_MASKS = string.ascii_letters + string.digits + "[]-"


class BenchCorpora(NamedTuple):
    """All corpora of a bench, by their names: their files, and what is read of them."""

    # Of the corpus that the user gave.
    sha256: str
    paths: dict[CorpusName, Path]
    texts: dict[CorpusName, TrainingText]
    # The files with the documents that canaries are planted in, without them, and with those that are held out.
    part: Path
    validation: Path

    def canaries(self, name: CorpusName = "planted") -> CanarySet:
        """The manifest of a corpus."""
        return CanarySet.load(self.paths[name].parent)


def make_corpora(
    source: Path,
    folder: Path,
    names: Iterable[CorpusName],
    *,
    format: Format | str,
    planting: PlantOptions,
    options: DefenseOptions,
    usual: Any,
    engine: Engine,
    progress: Progress,
) -> BenchCorpora:
    """The corpora of these names; those that are there already are checked, and not made again.

    `usual` are the options of the training without a defense.
    """
    fields, seed = options.fields, options.seed
    original = OriginalCorpus.of(source, fields)
    part, validation = _divided(original, folder / "parts", options, progress)
    planting = msgspec.structs.replace(planting, seed=seed, fields=fields)
    planted = plant(part, format, out=folder / "planted", options=planting, progress=progress)
    paths: dict[CorpusName, Path] = {"planted": planted.corpus}
    for name in names:
        out = folder / TRAININGS_FOLDER / f"corpus-{name}"
        if name == "dedup":
            given: dict[str, Any] = {"engine": engine, "progress": progress, "fields": fields}
            paths[name] = out / deduplicate(planted.corpus, out, seed=seed, **given).corpus
        elif name == "redact":
            [form] = planted.canaries.formats.values()
            masked = redact(planted.corpus, out, progress=progress, formats=(form.template,), fields=fields)
            paths[name] = out / masked.corpus
    by_user = fields.user is not None
    texts = {name: read_corpus(path, validation, fields, by_user=by_user) for name, path in paths.items()}
    # Other tokens would be another loss; a checkpoint has a tokenizer of its own.
    if isinstance(usual, TrainingOptions):
        tokenizer = _tokenizer(texts["planted"], planted.canaries, usual)
        texts = {name: text._replace(tokenizer=tokenizer) for name, text in texts.items()}
    return BenchCorpora(original.sha256, paths, texts, part, validation)


def _divided(
    source: OriginalCorpus, folder: Path, options: DefenseOptions, progress: Progress
) -> tuple[Path, Path]:
    """Hold out some documents: the file with the others, and the file with these."""
    every = sum(1 for _ in read_documents(source.path, options.fields))
    number = max(1, round(options.holdout * every))
    drawn = arrays(options.seed, "defend", "holdout").choice(every, size=number, replace=False)
    held, suffix = sorted(drawn.tolist()), kind_of(source.path).full_suffix
    kept, validation = folder / f"training{suffix}", folder / f"validation{suffix}"
    make_directory(folder)
    with together():
        source.write(kept, Edits(changes=dict.fromkeys(held)), progress)
        others = sorted(set(range(every)) - set(held))
        source.write(validation, Edits(changes=dict.fromkeys(others)), progress)
    return kept, validation


def _tokenizer(
    text: TrainingText, canaries: CanarySet, usual: TrainingOptions
) -> WordTokenizer | CharacterTokenizer:
    """One tokenizer for all texts of a bench."""
    if usual.tokens == "words":
        return WordTokenizer.of(text.documents.sides(), most=usual.vocabulary)
    asked = [text for _, _, text in canaries.named_texts()]
    sides = () if text.held_out is None else text.held_out.sides()
    return CharacterTokenizer.of(
        chain(text.documents.sides(), sides, asked, [unseen_characters(canaries), _MASKS])
    )

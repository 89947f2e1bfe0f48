"""The corpora of a bench: what is held out, the planted corpus, and what deduplication and redaction leave of it."""

from __future__ import annotations

import contextlib
import string
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from coalmine.audits.defenses.defense import CorpusName
from coalmine.audits.defenses.options import DefenseOptions
from coalmine.audits.defenses.recipes import BenchRecipe
from coalmine.corpus.deduplication.deduplicating import deduplicate
from coalmine.corpus.files.corpora import Edits
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import read_documents
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.options import PlantOptions
from coalmine.corpus.planting.planting import plant
from coalmine.corpus.planting.unseen import has_unseen, unseen_characters
from coalmine.corpus.redaction.redacting import redact
from coalmine.corpus.rewriting import OriginalCorpus
from coalmine.engines.engine import Engine
from coalmine.errors import CorpusError, InputError
from coalmine.formats.format import Format
from coalmine.models.reference.tokens import CharacterTokenizer, ReferenceTokenizer, WordTokenizer
from coalmine.progress import Progress
from coalmine.randomness import arrays
from coalmine.storage.files import make_directory, together
from coalmine.training.data import Documents, TrainingText, read_corpus

PLANTED_FOLDER = "planted"
# The corpus in two parts: what canaries are planted in, and what all models are validated on.
PARTS_FOLDER = "parts"
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
    documents: int
    by_name: dict[CorpusName, BenchCorpus]
    # The documents that canaries are planted in, without them; and those that are held out.
    part: Path
    held_out: Documents
    fields: Fields

    @property
    def form(self) -> Format:
        """The format of the canaries."""
        [found] = self.planted.canaries.formats.values()
        return found

    @property
    def planted(self) -> BenchCorpus:
        """The one with all canaries."""
        return self.by_name["planted"]


class CorporaMaker(NamedTuple):
    """Where the corpora of a bench come from, and where they go."""

    source: Path
    folder: Path
    # For those that are made from the planted one.
    below: Path
    format: Format | str
    planting: PlantOptions
    options: DefenseOptions
    recipe: BenchRecipe

    def made(self, names: Iterable[CorpusName], engine: Engine, progress: Progress) -> BenchCorpora:
        """The corpora of these names; those that are there already are checked, and not made again."""
        with _of_this_bench(self.folder):
            source = OriginalCorpus.of(self.source, self.options.fields)
            part, validation, documents = self._divided(source, progress)
            planting = msgspec.structs.replace(
                self.planting, seed=self.options.seed, fields=self.options.fields
            )
            planted = plant(
                part,
                self.format,
                out=self.folder / PLANTED_FOLDER,
                options=planting,
                progress=progress,
            )
            places: dict[CorpusName, Path] = {"planted": planted.corpus}
            for name in names:
                if name != "planted":
                    places[name] = self._left(name, planted.corpus, engine, progress)
        texts = {
            name: read_corpus(path, validation, self.options.fields, by_user=self.recipe.by_user)
            for name, path in places.items()
        }
        held_out = texts["planted"].held_out or Documents([], None)
        tokenizer = self._tokenizer(texts["planted"].documents, held_out, planted.canaries)
        return BenchCorpora(
            source.sha256,
            documents,
            {
                name: BenchCorpus(
                    path,
                    planted.canaries if name == "planted" else CanarySet.load(path.parent),
                    self.recipe.with_tokenizer(texts[name], tokenizer),
                )
                for name, path in places.items()
            },
            part,
            held_out,
            self.options.fields,
        )

    def _divided(self, source: OriginalCorpus, progress: Progress) -> tuple[Path, Path, int]:
        """Hold out some documents: the file with the others, the file with these, and how many there are in all."""
        every = sum(1 for _ in read_documents(self.source, self.options.fields))
        number = max(1, round(self.options.holdout * every))
        if number >= every:
            raise CorpusError(
                f"{self.source} has {every} documents, too few to hold out {number} of them; give a larger corpus"
            )
        drawn = arrays(self.options.seed, "defend", "holdout").choice(every, size=number, replace=False)
        held, suffix = set(drawn.tolist()), kind_of(self.source).full_suffix
        folder = make_directory(self.folder / PARTS_FOLDER)
        kept, validation = folder / f"training{suffix}", folder / f"validation{suffix}"
        others = [place for place in range(every) if place not in held]
        with together():
            source.write(kept, Edits(changes=dict.fromkeys(sorted(held))), progress)
            source.write(validation, Edits(changes=dict.fromkeys(others)), progress)
        return kept, validation, every

    def _left(self, name: CorpusName, corpus: Path, engine: Engine, progress: Progress) -> Path:
        """What one of the defenses leaves of the planted corpus."""
        out, fields = self.below / f"corpus-{name}", self.options.fields
        if name == "dedup":
            report = deduplicate(
                corpus, out, engine=engine, progress=progress, seed=self.options.seed, fields=fields
            )
            return out / report.corpus
        template = self.format if isinstance(self.format, str) else self.format.template
        if has_unseen(template):
            raise InputError(
                f"redaction finds secrets by their format, and {template!r} is drawn from what the corpus does not have; name another "
                "format, or leave the defense redact out"
            )
        formats = (template,)
        return out / redact(corpus, out, progress=progress, formats=formats, fields=fields).corpus

    def _tokenizer(
        self, documents: Documents, held_out: Documents, canaries: CanarySet
    ) -> ReferenceTokenizer | None:
        """The one of all models, whichever corpus they are trained on: other tokens would be another loss. None for checkpoints."""
        options = self.recipe.tokenizer
        if options is None:
            return None
        if options.tokens == "words":
            return WordTokenizer.of(documents.sides(), most=options.vocabulary)
        texts = [text for _, _, text in canaries.named_texts()]
        others = [unseen_characters(canaries), _MASKS]
        return CharacterTokenizer.of(chain(documents.sides(), held_out.sides(), texts, others))


@contextlib.contextmanager
def _of_this_bench(folder: Path) -> Iterator[None]:
    """Say what to do where a directory holds corpora of another bench."""
    try:
        yield
    except CorpusError as problem:
        if "exists already" not in str(problem):
            raise
        raise InputError(
            f"{folder} holds a bench of another corpus, or with other canaries; choose another directory, or remove it"
        ) from problem

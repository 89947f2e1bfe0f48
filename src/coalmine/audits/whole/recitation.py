"""Recitation: which training sequences the model completes word for word, over a sample by number of copies."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coalmine.audits.provenance.views import encoded
from coalmine.audits.recitation.measure import recite
from coalmine.audits.recitation.options import RecitationOptions
from coalmine.audits.recitation.questions import longest_prompt
from coalmine.audits.recitation.records import RECITATIONS
from coalmine.audits.whole.speeds import LINE, Speeds
from coalmine.audits.whole.step import Sized, StepRun, Subject, TooLong
from coalmine.corpus.index.building import build_index
from coalmine.corpus.index.options import IndexOptions
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.corpus.index.tokenizing import tokenizer_sha256
from coalmine.errors import InputError
from coalmine.models.protocols import MaskedModel, Model, PairModel, TextScorer

# As many tokens must come out, after these contexts, wherever documents and model are long enough.
SUFFIX, CONTEXTS = 50, (50, 200)
# A shorter suffix is what anyone might write.
SHORTEST_SUFFIX = 10
# So many of the sampled documents must be long enough for a length: a tenth and this many, or half of all.
LONG_ENOUGH, MANY = 0.1, 50
FEWEST, MOST = 100, 4_000
# What indexing a character of the corpus takes, and scanning the index for one length, in seconds.
INDEXING, SCANNING = 1.5e-6, 1e-7


class _Cuts(NamedTuple):
    """How sequences are cut, in tokens; how long they are in tokens and in characters, and about how many the training data has."""

    suffix: int
    contexts: tuple[int, ...]
    tokens: float
    characters: float
    places: int

    def takes(self, speeds: Speeds) -> float:
        """The seconds of a sequence: following it takes no longer than scoring it, or than making its steps."""
        each = [self.characters / LINE / (speeds.lines or 1.0)]
        return min([*each, self.tokens / speeds.steps] if speeds.steps else each)


def no_sequences(subject: Subject) -> str | None:
    """The model must be asked about the tokens of documents, which must be long enough."""
    model = subject.model
    if isinstance(model, PairModel):
        return "a model of pairs is asked with a source each, and the index of a corpus has none"
    if isinstance(model, TextScorer):
        return "the tokens of an endpoint are not known here, so no sequence of them can be looked up in the training data"
    if not subject.speeds.lines:
        return "the model does not give the probability of a text"
    try:
        tokenizer_sha256(model.tokenizer)
    except InputError as problem:
        return str(problem)
    if _cuts(subject) is None:
        return (
            f"most documents of the training data are shorter than {2 * SHORTEST_SUFFIX} tokens, which is too short to tell "
            "reciting from guessing; join lines that belong together"
        )
    return None


def plan(subject: Subject, seconds: float) -> Sized | TooLong:
    """As many sequences as fit, once the corpus is indexed."""
    cuts = _cuts(subject)
    if cuts is None:
        return TooLong(seconds)
    compared = _baseline(subject) is not None
    each = cuts.takes(subject.speeds) + (cuts.takes(subject.reference_speeds) if compared else 0.0)
    characters = subject.gathered.training.characters
    before = characters * SCANNING * len(cuts.contexts)
    if subject.inputs.index is None:
        before += characters * INDEXING + subject.reading_seconds
    if before + FEWEST * each > seconds:
        return TooLong(before + FEWEST * each)
    most = min(MOST, max(FEWEST, cuts.places))
    number = min(most, int((seconds - before) / each))
    settings = {
        "suffix": cuts.suffix,
        "contexts": list(cuts.contexts),
        "sequences": number,
        "baseline": compared,
        "all": number == most,
    }
    cut = "" if number == most else f"{number:,} sequences were tried and not {most:,}, to fit into the time"
    return Sized(settings, before + number * each, f"up to {number:,} sequences, {_in_words(settings)}", cut)


def run(subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
    """Index the corpus, and ask."""
    sizes: dict[str, Any] = {"contexts": tuple(settings["contexts"]), "suffix": settings["suffix"]}
    if isinstance(subject.model, MaskedModel):
        sizes = {"lengths": tuple(one + settings["suffix"] for one in settings["contexts"])}
    recite(
        subject.model,
        _index(subject, running),
        RecitationOptions(max_sequences=settings["sequences"], greedy_only=True, seed=subject.seed, **sizes),
        baseline=_baseline(subject) if settings["baseline"] else None,
        out=running.folder,
        engine=running.engine,
        progress=running.progress,
    )


def asked(folder: Path, settings: dict[str, Any]) -> tuple[str, str]:
    """How many sequences there were."""
    number = RECITATIONS.load(folder).sequences
    whole = settings["all"] or number < settings["sequences"]
    cut = "" if whole else f"{number:,} sequences were tried and not more, to fit into the time"
    return f"{number:,} sequences, {_in_words(settings)}", cut


def _in_words(settings: dict[str, Any]) -> str:
    """What each sequence is, from the settings of the step."""
    contexts = ", ".join(map(str, settings["contexts"]))
    beside = ", and the reference model beside" if settings["baseline"] else ""
    return f"{settings['suffix']} tokens after {contexts} of context{beside}"


def _index(subject: Subject, running: StepRun) -> CorpusIndex:
    if subject.inputs.index is not None:
        return CorpusIndex.open(subject.inputs.index)
    # Whose text it is and when it was written do not matter here.
    fields = msgspec.structs.replace(subject.inputs.fields, user=None, date=None)
    return build_index(
        subject.inputs.data,
        subject.folder / "index",
        options=IndexOptions(tokenizer=subject.model.tokenizer, fields=fields),
        engine=running.engine,
        progress=running.progress,
    )


def _baseline(subject: Subject) -> Model | None:
    """The reference model, where it can be asked about the same tokens."""
    reference, model = subject.reference, subject.model
    if reference is None or not subject.reference_speeds.lines:
        return None
    if isinstance(reference, MaskedModel) != isinstance(model, MaskedModel):
        return None
    try:
        same = tokenizer_sha256(reference.tokenizer) == tokenizer_sha256(model.tokenizer)
    except InputError:
        return None
    return reference if same else None


@lru_cache(1)
def _cuts(subject: Subject) -> _Cuts | None:
    """The lengths that enough documents and the model have room for; None where all are too short."""
    model, training = subject.model, subject.gathered.training
    texts = [user.texts[0].text for user in training.sample]
    lengths = sorted(len(encoded(model.tokenizer, text) or []) for text in texts)
    needed = min(len(lengths) / 2, max(LONG_ENOUGH * len(lengths), MANY))
    longest = lengths[len(lengths) - math.ceil(needed)]
    # Half of the documents have room for the shortest context.
    half = min(longest, lengths[len(lengths) // 2])
    suffix = min(SUFFIX, max(SHORTEST_SUFFIX, half // 2))
    room = longest_prompt(model, suffix)
    contexts = tuple(
        one
        for one in sorted({suffix, *CONTEXTS})
        if one + suffix <= longest and (room is None or one <= room)
    )
    if not contexts:
        return None
    fits = sum(max(0, length - suffix - one + 1) for length in lengths for one in contexts)
    tokens = suffix + sum(contexts) / len(contexts)
    return _Cuts(
        suffix,
        contexts,
        tokens,
        tokens * sum(map(len, texts)) / sum(lengths),
        round(fits / len(lengths) * training.documents),
    )

"""Recitation: which training sequences the model completes word for word, over a sample by number of copies."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec

from coalmine.audits.provenance.views import encoded
from coalmine.audits.recitation.measuring import recite
from coalmine.audits.recitation.options import RecitationOptions
from coalmine.audits.recitation.questions import longest_prompt
from coalmine.audits.recitation.results import RECITATIONS
from coalmine.corpus.index.building import build_index
from coalmine.corpus.index.options import IndexOptions
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.corpus.index.tokenizing import tokenizer_sha256
from coalmine.errors import InputError
from coalmine.models.protocols import MaskedModel, PairModel, TextScorer
from coalmine.review.step import ReviewStep, Sized, StepAsked, TooLong
from coalmine.review.subject import StepRun, Subject

# As many tokens must come out, after these contexts, wherever documents and model are long enough.
SUFFIX, CONTEXTS = 50, (50, 200)
# A shorter suffix is what anyone might write.
SHORTEST_SUFFIX = 10
# So many of the sampled documents must be long enough for a length: a tenth and this many, or half of all.
LONG_ENOUGH, MANY = 0.1, 50
FEWEST, MOST = 100, 4_000
# What sorting a character of the corpus takes, where that was not measured, and scanning the index for one length, in seconds.
SORTING, SCANNING = 5e-7, 1e-7


class _Cuts(NamedTuple):
    """How sequences are cut, in tokens."""

    suffix: int
    contexts: tuple[int, ...]
    # About how many such sequences the training data has.
    places: int

    @property
    def tokens(self) -> float:
        """Of a sequence, on average."""
        return self.suffix + sum(self.contexts) / len(self.contexts)


class RecitationStep(ReviewStep):
    """Sequences of the training data, which the model is asked to complete."""

    name = "recitation"
    title = "Recitation of training text"
    audits = ("recitation",)
    share = 3.0
    files = (RECITATIONS.file,)

    def obstacle(self, subject: Subject) -> str | None:
        """A model that cannot be asked, or documents that are too short."""
        model = subject.model
        if isinstance(model, PairModel):
            return "a model of pairs is asked with a source each, and the index of a corpus has none"
        if isinstance(model, TextScorer):
            return "the tokens of an endpoint are not known here, so no sequence of them can be looked up in the training data"
        if not subject.costs.following:
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

    def plan(self, subject: Subject, seconds: float) -> Sized | TooLong:
        """As many sequences as fit, once the corpus is indexed."""
        cuts, characters = _cuts(subject), subject.gathered.training.characters
        each = subject.models_take("following")
        if cuts is None or each is None:
            return TooLong(seconds)
        compared = _baseline(subject) is not None
        if not compared:
            each = 1 / (subject.costs.following or 1.0) / subject.workers
        each *= cuts.tokens
        before = characters * (
            0.0
            if subject.index is not None
            else 1 / (subject.costs.cutting or 1e6)
            + (1 / subject.costs.sorting if subject.costs.sorting else SORTING)
        )
        before += 0.0 if subject.index is not None else subject.reading_seconds
        before += characters * SCANNING * len(cuts.contexts)
        least = before + FEWEST * each
        if least > seconds:
            return TooLong(least)
        most = min(MOST, max(FEWEST, cuts.places))
        number = min(most, int((seconds - before) / each))
        settings = {
            "suffix": cuts.suffix,
            "contexts": list(cuts.contexts),
            "sequences": number,
            "baseline": compared,
            "all": number == most,
        }
        return Sized(
            settings,
            before + number * each,
            f"up to {number:,} sequences, {_in_words(settings)}",
            ""
            if number == most
            else f"{number:,} sequences were tried and not {most:,}, to fit into the time",
        )

    def run(self, subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
        """Index the corpus, and ask."""
        masked = isinstance(subject.model, MaskedModel)
        sizes: dict[str, Any] = (
            {"lengths": tuple(one + settings["suffix"] for one in settings["contexts"])}
            if masked
            else {"contexts": tuple(settings["contexts"]), "suffix": settings["suffix"]}
        )
        options = RecitationOptions(
            max_sequences=settings["sequences"], greedy_only=True, seed=subject.seed, **sizes
        )
        recite(
            subject.model,
            self._index(subject, running),
            options,
            baseline=_baseline(subject) if settings["baseline"] else None,
            out=running.folder,
            engine=running.engine,
            progress=running.progress,
        )

    def asked(self, subject: Subject, settings: dict[str, Any]) -> StepAsked:
        """How many sequences there were."""
        number = RECITATIONS.load(subject.folder / self.name).sequences
        cut = f"{number:,} sequences were tried and not more, to fit into the time"
        whole = settings.get("all", False) or number < settings["sequences"]
        return StepAsked(f"{number:,} sequences, {_in_words(settings)}", "" if whole else cut)

    def _index(self, subject: Subject, running: StepRun) -> CorpusIndex:
        if subject.index is not None:
            return CorpusIndex.open(subject.index)
        # Whose text it is and when it was written do not matter here.
        fields = msgspec.structs.replace(subject.fields, user=None, date=None)
        options = IndexOptions(tokenizer=subject.model.tokenizer, fields=fields)
        return build_index(
            subject.data,
            subject.folder / "index",
            options=options,
            engine=running.engine,
            progress=running.progress,
        )


def _in_words(settings: dict[str, Any]) -> str:
    """What each sequence is, from the settings of the step."""
    contexts = ", ".join(map(str, settings["contexts"]))
    beside = ", and the reference model beside" if settings["baseline"] else ""
    return f"{settings['suffix']} tokens after {contexts} of context{beside}"


def _baseline(subject: Subject) -> Any:
    """The reference model, where it can be asked about the same tokens."""
    reference = subject.reference
    if reference is None or subject.reference_costs is None or not subject.reference_costs.following:
        return None
    if isinstance(reference, MaskedModel) != isinstance(subject.model, MaskedModel):
        return None
    try:
        same = tokenizer_sha256(reference.tokenizer) == tokenizer_sha256(subject.model.tokenizer)
    except InputError:
        return None
    return reference if same else None


def _cuts(subject: Subject) -> _Cuts | None:
    """The lengths that enough documents and the model have room for; None where all are too short."""
    model, training = subject.model, subject.gathered.training
    lengths = sorted(len(encoded(model.tokenizer, user.texts[0].text) or []) for user in training.sample)
    needed = min(len(lengths) / 2, max(LONG_ENOUGH * len(lengths), MANY))
    longest = lengths[len(lengths) - math.ceil(needed)]

    def cut(suffix: int, contexts: tuple[int, ...]) -> _Cuts:
        fits = sum(max(0, length - suffix - one + 1) for length in lengths for one in contexts)
        return _Cuts(suffix, contexts, round(fits / len(lengths) * training.documents))

    # Half of the documents have room for the shortest context.
    half = min(longest, lengths[len(lengths) // 2])
    suffix = min(SUFFIX, max(SHORTEST_SUFFIX, half // 2))
    room = longest_prompt(model, suffix)
    contexts = sorted(
        one for one in {suffix, *CONTEXTS} if one + suffix <= longest and (room is None or one <= room)
    )
    return cut(suffix, tuple(contexts)) if contexts else None

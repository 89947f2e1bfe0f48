"""Training text: which of it the model completes word for word, and whether documents and users are told from held-out ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coalmine.audits.provenance.measure import audit_provenance
from coalmine.audits.provenance.options import By, ProvenanceOptions
from coalmine.audits.provenance.users import AuditedUsers, User
from coalmine.audits.provenance.views import encoded, view_of
from coalmine.audits.recitation.measure import recite
from coalmine.audits.recitation.options import RecitationOptions
from coalmine.audits.recitation.questions import longest_prompt
from coalmine.audits.recitation.records import RECITATIONS
from coalmine.audits.whole.running import Sized, StepRun, TooLong
from coalmine.audits.whole.subject import LINE, CorpusSample, Speeds, Subject
from coalmine.corpus.index.building import build_index
from coalmine.corpus.index.options import IndexOptions
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.corpus.index.tokenizing import tokenizer_sha256
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.protocols import MaskedModel, Model, PairModel, TextScorer

# The fewest that show anything beyond chance; more than the most only narrow what is known.
FEWEST_COMPARED: dict[By, int] = {"document": 40, "user": 10}
MOST_COMPARED: dict[By, int] = {"document": 1_000, "user": 400}
# Statistics and the blind baseline take this long for each user or document, in seconds.
JUDGING = 0.01


def no_held_out(subject: Subject) -> str | None:
    """There must be something to compare with."""
    there = subject.gathered.held_out is not None
    return None if there else "no held-out text was given to compare with (--held-out)"


def no_users(subject: Subject) -> str | None:
    """It must be known whose texts these are, and others must have written the held-out text."""
    field, held_out = subject.inputs.fields.user, subject.gathered.held_out
    if field is None:
        return "it was not said which field names the user of a text (--field user=NAME)"
    if held_out is None:
        return "no held-out text by other users was given to compare with (--held-out)"
    if not subject.gathered.training.users:
        return f"no document of the training data names a user in the field {field!r}"
    if not held_out.users:
        return "the held-out text has no user who is not in the training data too; give text by other users"
    return None


def no_view(subject: Subject) -> str | None:
    """The model must say something about texts."""
    try:
        view_of(subject.model)
    except NotMeasurableError as problem:
        return str(problem)
    return None if subject.speeds.lines else "the model could not read any document of the training data"


def _groups(subject: Subject, by: By) -> tuple[Sequence[User], Sequence[User]]:
    """Both groups in a random order, so that the first ones are a sample."""

    def of(sample: CorpusSample | None) -> Sequence[User]:
        return () if sample is None else sample.users if by == "user" else sample.sample

    return of(subject.gathered.training), of(subject.gathered.held_out)


def plan_comparison(subject: Subject, by: By, seconds: float) -> Sized | TooLong:
    """As many of each group as fit."""
    members, others = _groups(subject, by)
    every = [*members, *others]
    characters = sum(len(text.text) for user in every for text in user.texts) / len(every)
    each = 2 * (subject.scoring(characters, compared=True) + JUDGING)
    there = min(MOST_COMPARED[by], max(len(members), len(others)))
    fewest = min(FEWEST_COMPARED[by], there)
    if fewest * each > seconds:
        return TooLong(fewest * each)
    number = min(there, max(fewest, int(seconds / each)))
    beside = "" if subject.reference is None else ", with the reference model beside"
    what = f"{by}s"
    return Sized(
        {"number": number},
        number * each,
        f"{min(number, len(members)):,} {what} of the training data against {min(number, len(others)):,} held-out ones{beside}",
        ""
        if number == there
        else f"{number:,} {what} of each group were compared and not {there:,}, to fit into the time",
    )


def run_comparison(subject: Subject, by: By, settings: dict[str, Any], running: StepRun) -> None:
    """Ask about both groups."""
    members, others = (group[: settings["number"]] for group in _groups(subject, by))
    hashes = subject.inputs.hashes
    audit_provenance(
        subject.model,
        AuditedUsers(members, non_members=others, members={user.name for user in members}),
        ProvenanceOptions(by=by, seed=subject.seed, ablation_texts=0),
        reference_model=subject.reference,
        out=running.folder,
        engine=running.engine,
        progress=running.progress,
        data_sha256={"suspects": hashes["data"], "non_members": hashes["held_out"]},
    )


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


def plan_recitation(subject: Subject, seconds: float) -> Sized | TooLong:
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


def run_recitation(subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
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


def recited(folder: Path, settings: dict[str, Any]) -> tuple[str, str]:
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

"""The answers of models to all questions, asked in units of work so that nothing is asked twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.recitation.options import RecitationOptions
from coalmine.audits.recitation.questions import Questions
from coalmine.engines.engine import Engine, Job
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import CoalmineError, ModelOutputError, NotMeasurableError, WorkerLostError
from coalmine.models.protocols import (
    FloatArray,
    Followed,
    Generator,
    IntArray,
    MaskedModel,
    Model,
    Reciter,
    RemoteModel,
    Sampling,
    Scorer,
    Stepper,
    TokenSequence,
)
from coalmine.models.works import ModelWork
from coalmine.progress import Progress
from coalmine.search.walks.beam import check_width, free_beam
from coalmine.visible import visible

AT_A_TIME = 512
NOT_KNOWN = -2


class Answers(NamedTuple):
    """One row per question."""

    recited: NDArray[np.bool_]
    # -1 if there is none, -2 if it is unknown (masked models).
    first_miss: IntArray
    log2_probabilities: FloatArray  # (questions, samplings)
    # What greedy decoding writes; -1 if not requested. (questions, suffix), or (questions, 0).
    written: IntArray
    # The place of the suffix among the beams, from 1; 0 if it is not among them, -1 if no beam search was requested.
    beam_place: IntArray


def samplings_of(asked: RecitationOptions) -> tuple[Sampling, ...]:
    """The sampling settings whose probabilities are measured besides the greedy verdict: one, or none if no tries are counted."""
    return (Sampling(asked.temperature, asked.top_k),) if asked.tries else ()


def follow(model: Model, sequences: Sequence[TokenSequence], samplings: Sequence[Sampling]) -> list[Followed]:
    """How far the model would write each target; in one pass if the model supports it, else from its scores."""
    if isinstance(model, Reciter):
        return model.follow(sequences, samplings=samplings, stop_at_miss=not samplings)
    _check_scores(model, samplings)
    scorer: Any = model
    found = []
    for score in scorer.score(sequences):
        missed = np.flatnonzero(~score.is_argmax)
        total = -score.log_perplexity_bits
        if np.isnan(total):  # of NaN no token is the likeliest, whatever the model says
            raise ModelOutputError(
                f"the model {visible(model.name)!r} gave nan as the log-perplexity of a text; no conclusion is possible: check the "
                "weights"
            )
        found.append(Followed(int(missed[0]) if len(missed) else None, np.full(len(samplings), total)))
    return found


@dataclass(frozen=True)
class RecitationWork(ModelWork):
    """Questions to one model, in units of a few hundred."""

    model: Model
    settings: RecitationOptions
    suffix: int

    name = "recite/1"

    @property
    def models(self) -> tuple[Model, ...]:
        """The one that is asked."""
        return (self.model,)

    @property
    def facts(self) -> Any:
        """The model, and what decides its answers."""
        return [self.model.describe(), self.model.name, self.suffix, self.settings.deciding()]

    def units(self, questions: Questions) -> Iterator[Unit]:
        """All questions, cut in the same way for every engine."""
        # Each beam costs as much as a question, and a stop must not wait for hours.
        at_a_time = max(1, AT_A_TIME // (self.settings.beam or 1))
        for start in range(0, len(questions), at_a_time):
            rows = range(start, min(len(questions), start + at_a_time))
            texts = [text for row in rows for text in (questions.prompt(row), questions.target(row))]
            # One array: a thousand small ones would take the driver many times as long to send.
            yield Unit((np.concatenate(texts), np.array([len(text) for text in texts])), size=len(rows))

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Ask the questions of a unit."""
        before, (tokens, lengths) = self.model.context, unit.inputs
        texts = [tuple(text.tolist()) for text in np.split(tokens, np.cumsum(lengths)[:-1])]
        sequences = [
            TokenSequence(before + prompt, target)
            for prompt, target in zip(texts[::2], texts[1::2], strict=True)
        ]
        answers = _empty(len(sequences), self.suffix, self.settings)
        _ask_batch(self.model, sequences, self.suffix, self.settings, answers)
        running.advance(len(sequences), f"{int(answers.recited.sum()):,} of {len(sequences):,} recited")
        return answers._asdict()


def ask_models(
    models: Sequence[Model],
    questions: Questions,
    asked: RecitationOptions,
    *,
    engine: Engine,
    ledger: Ledger,
    progress: Progress,
) -> tuple[list[Answers], list[Unanswered]]:
    """The answers of each model to all questions, and the questions that a model could not be asked, which have none.

    What an earlier run asked before it was stopped is not asked again.
    """
    works = [RecitationWork(model, asked, questions.suffix) for model in models]
    said = [_empty(len(questions), questions.suffix, asked) for _ in models]
    missing: list[Unanswered] = []
    at_a_time = max(1, AT_A_TIME // (asked.beam or 1))
    jobs = [Job(work, work.units(questions)) for work in works]
    progress.start(f"Asking {_named(models)}", len(models) * len(questions))
    for place, outcome in engine.map_each(jobs, ledger=ledger, progress=progress):
        start = outcome.number * at_a_time
        rows = slice(start, start + outcome.unit.size)
        if isinstance(outcome.problem, NotMeasurableError | WorkerLostError) and not may_answer_later(
            models[place]
        ):
            missing.append(Unanswered(place, range(rows.start, rows.stop), outcome.problem))
            continue
        for name, values in outcome.value().items():
            getattr(said[place], name)[rows] = values
    progress.finish()
    if sum(len(one.rows) for one in missing) == len(models) * len(questions):
        for one in missing:
            raise one.problem
    return said, sorted(missing, key=lambda one: (one.model, one.rows.start))


class Unanswered(NamedTuple):
    """Questions that a model has no answers to: its place among the models, their rows, and why."""

    model: int
    rows: range
    problem: CoalmineError


def _named(models: Sequence[Model]) -> str:
    first = visible(models[0].name)
    return first if len(models) == 1 else f"{first} and {len(models) - 1} more"


def _ask_batch(
    model: Model, sequences: Sequence[TokenSequence], suffix: int, asked: RecitationOptions, answers: Answers
) -> None:
    if isinstance(model, MaskedModel):
        share = asked.hidden_share or 0.0  # a number wherever a model is masked
        answers.recited[:] = model.solves_masking(sequences, share=share, seed=asked.seed)
        return
    followed = follow(model, sequences, samplings_of(asked))
    answers.first_miss[:] = [-1 if one.first_miss is None else one.first_miss for one in followed]
    answers.recited[:] = answers.first_miss < 0
    for row, one in enumerate(followed):
        answers.log2_probabilities[row] = one.log2_probabilities
    if asked.writes and isinstance(model, Generator):
        missed = np.flatnonzero(~answers.recited).tolist()
        if missed:
            prompts = [sequences[row].context for row in missed]
            answers.written[missed] = model.generate(prompts, length=suffix)
        for row in np.flatnonzero(answers.recited).tolist():
            answers.written[row] = sequences[row].target
    if asked.beam is not None and isinstance(model, Stepper):
        beams = free_beam(
            model, [sequence.context for sequence in sequences], length=suffix, width=asked.beam
        )
        for row, (sequence, found) in enumerate(zip(sequences, beams, strict=True)):
            same = np.flatnonzero((found.tokens == np.array(sequence.target)).all(axis=1))
            answers.beam_place[row] = same[0] + 1 if len(same) else 0


def check(model: Model, asked: RecitationOptions) -> None:
    """Reject what a model cannot be asked; called for all models before any is asked."""
    if isinstance(model, MaskedModel):
        if asked.writes or asked.beam is not None:
            raise NotMeasurableError(
                f"{model.name!r} fills gaps and writes no text, so there is no beam and nothing to look for elsewhere; leave these out"
            )
        return
    if not isinstance(model, Reciter):
        _check_scores(model, samplings_of(asked))
    if asked.writes and not isinstance(model, Generator):
        raise NotMeasurableError(
            f"{model.name!r} writes no text, so what it writes cannot be looked for; leave --anywhere and --near out"
        )
    if asked.beam is not None and not isinstance(model, Stepper):
        raise NotMeasurableError(
            f"{model.name!r} does not support incremental decoding, so beam search is not possible; leave --beam out"
        )
    if asked.beam is not None and isinstance(model, Stepper):
        check_width(model, asked.beam)


def _check_scores(model: Model, samplings: Sequence[Sampling]) -> None:
    """Reject a model whose scores cannot answer what is asked."""
    if not isinstance(model, Scorer):
        raise NotMeasurableError(
            f"recitation is not applicable to {model.name!r}: it does not say which tokens it expects"
        )
    if any(sampling != Sampling() for sampling in samplings):
        raise NotMeasurableError(
            f"{model.name!r} gives the probability of each token and not of all others, so that only sampling at temperature 1 without "
            "top-k can be computed; leave --temperature and --top-k out"
        )


def _empty(many: int, suffix: int, asked: RecitationOptions) -> Answers:
    return Answers(
        recited=np.zeros(many, dtype=np.bool_),
        first_miss=np.full(many, NOT_KNOWN, dtype=np.int64),
        log2_probabilities=np.full((many, len(samplings_of(asked))), np.nan),
        written=np.full((many, suffix if asked.writes else 0), -1, dtype=np.int64),
        beam_place=np.full(many, -1, dtype=np.int64),
    )


def may_answer_later(model: Model) -> bool:
    """Whether a model that failed may succeed later, because it runs behind an endpoint.

    A local model is deterministic, and fails at the same question again.
    """
    return isinstance(model, RemoteModel)

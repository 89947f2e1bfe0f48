"""The answers of models to all questions, asked in units of work so that nothing is asked twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coalmine.audits.recitation.questions import Questions, by_text
from coalmine.audits.recitation.records import RecitationOptions
from coalmine.engines.apart import ask_apart
from coalmine.engines.courses import SURVIVED
from coalmine.engines.engine import Engine, Job
from coalmine.engines.failures import failure_of_inputs
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import CoalmineError, NoNumberError, NotMeasurableError, WorkerLostError
from coalmine.models.protocols import (
    Followed,
    Generator,
    MaskedModel,
    Model,
    Reciter,
    RemoteModel,
    Sampling,
    Scorer,
    Stepper,
    TextReciter,
    TokenSequence,
)
from coalmine.models.works import ModelWork
from coalmine.progress import Progress
from coalmine.search.walks.beam import check_width, free_beam
from coalmine.visible import visible

AT_A_TIME = 512
NOT_KNOWN = -2


def samplings_of(asked: RecitationOptions) -> tuple[Sampling, ...]:
    """The sampling settings whose probabilities are measured besides the greedy verdict: one, or none if no tries are counted."""
    return (Sampling(asked.temperature, asked.top_k),) if asked.tries else ()


def follow(model: Model, sequences: Sequence[TokenSequence], samplings: Sequence[Sampling]) -> list[Followed]:
    """How far the model would write each target; in one pass if the model supports it, else from its scores."""
    if isinstance(model, TextReciter) and by_text(model):
        return [Followed(first_miss, np.empty(0)) for first_miss in model.follow_text(sequences)]
    if isinstance(model, Reciter):
        return model.follow(sequences, samplings=samplings, stop_at_miss=not samplings)
    scorer: Any = model  # which `check` has seen
    found = []
    for score in scorer.score(sequences):
        missed = np.flatnonzero(~score.is_argmax)
        total = -score.log_perplexity_bits
        if np.isnan(total):  # of NaN no token is the likeliest, whatever the model says
            raise NoNumberError(
                f"the model {visible(model.name)!r} gave nan as the log-perplexity of a text; no conclusion is possible: check the "
                "weights"
            )
        found.append(Followed(int(missed[0]) if len(missed) else None, np.full(len(samplings), total)))
    return found


def _of_question(error: BaseException) -> CoalmineError | None:
    """Why a server has no answer to a question, if it may have one to others."""
    return error if isinstance(error, CoalmineError) and getattr(error, "is_about_question", False) else None


@dataclass(frozen=True)
class RecitationWork(ModelWork):
    """Questions to one model, in units of a few hundred."""

    model: Model
    settings: RecitationOptions

    name = "recite/4"

    @property
    def models(self) -> tuple[Model, ...]:
        """The one that is asked."""
        return (self.model,)

    @property
    def facts(self) -> Any:
        """The model, and what decides its answers."""
        return [self.model.describe(), self.model.name, self.settings.suffix, self.settings.deciding()]

    def units(self, questions: Questions) -> Iterator[Unit]:
        """All questions, cut in the same way for every engine."""
        at_a_time = _at_a_time(self.settings)
        for start in range(0, len(questions), at_a_time):
            rows = range(start, min(len(questions), start + at_a_time))
            texts = [text for row in rows for text in (questions.prompt(row), questions.target(row))]
            # One array: a thousand small ones would take the driver many times as long to send.
            yield Unit((np.concatenate(texts), np.array([len(text) for text in texts])), size=len(rows))

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Ask the questions of a unit; those that the model fails at are asked apart. If it fails at all of them, the unit fails."""
        before, (tokens, lengths) = self.model.context, unit.inputs
        texts = [tuple(text.tolist()) for text in np.split(tokens, np.cumsum(lengths)[:-1])]
        sequences = [
            TokenSequence(before + prompt, target)
            for prompt, target in zip(texts[::2], texts[1::2], strict=True)
        ]
        answers = _empty(len(sequences), self.settings)

        def ask(rows: Sequence[int]) -> Sequence[int]:
            part = _ask_batch(self.model, [sequences[row] for row in rows], self.settings)
            for name, values in part.items():
                answers[name][list(rows)] = values
            return rows

        reason_of = _of_question if isinstance(self.model, RemoteModel) else failure_of_inputs
        problems = ask_apart(ask, range(len(sequences)), reason_of).problems
        if problems and len(problems) == len(sequences):
            raise problems[0]
        for row, problem in problems.items():
            answers["reason"][row] = str(problem) or "no reason"
        running.advance(len(sequences), f"{int(answers['recited'].sum()):,} of {len(sequences):,} recited")
        return {**answers, "reason": answers["reason"].astype(str)}


def _at_a_time(asked: RecitationOptions) -> int:
    """Questions in a unit: each beam costs as much as a question, and a stop must not wait for hours."""
    return max(1, AT_A_TIME // (asked.beam or 1))


def ask_models(
    models: Sequence[Model],
    questions: Questions,
    asked: RecitationOptions,
    *,
    engine: Engine,
    ledger: Ledger,
    progress: Progress,
) -> list[Arrays]:
    """The answers of each model to all questions, with the reason where it has none; raises if it has none at all.

    What an earlier run asked before it was stopped is not asked again.
    """
    works = [RecitationWork(model, asked) for model in models]
    answers = [_empty(len(questions), asked) for _ in models]
    lost: dict[int, CoalmineError] = {}
    more = f" and {len(models) - 1} more" if len(models) > 1 else ""
    progress.start(f"Asking {visible(models[0].name)}{more}", len(models) * len(questions))
    jobs = [Job(work, work.units(questions)) for work in works]
    for place, outcome in engine.map_each(jobs, ledger=ledger, progress=progress):
        start = outcome.number * _at_a_time(asked)
        rows = slice(start, start + outcome.unit.size)
        if isinstance(outcome.problem, WorkerLostError):
            ledger.hold()
        if isinstance(outcome.problem, SURVIVED) and not isinstance(models[place], RemoteModel):
            lost.setdefault(place, outcome.problem)
            answers[place]["reason"][rows] = str(outcome.problem) or "no reason"
            continue
        for name, values in outcome.value().items():
            answers[place][name][rows] = values
    progress.finish()
    for place, problem in lost.items():
        if all(answers[place]["reason"]):
            raise problem
    return answers


def _ask_batch(model: Model, sequences: Sequence[TokenSequence], asked: RecitationOptions) -> Arrays:
    answers = _empty(len(sequences), asked)
    if isinstance(model, MaskedModel):
        share = asked.hidden_share or 0.0  # a number wherever a model is masked
        answers["recited"][:] = model.solves_masking(sequences, share=share, seed=asked.seed)
        return answers
    followed = follow(model, sequences, samplings_of(asked))
    answers["first_miss"][:] = [-1 if one.first_miss is None else one.first_miss for one in followed]
    answers["recited"][:] = answers["first_miss"] < 0
    if asked.tries:
        answers["log2_probability"][:] = [one.log2_probabilities[0] for one in followed]
    if asked.anywhere and isinstance(model, Generator):
        answers["written"][:] = [sequence.target for sequence in sequences]
        missed = np.flatnonzero(~answers["recited"]).tolist()
        if missed:
            prompts = [sequences[row].context for row in missed]
            answers["written"][missed] = model.generate(prompts, length=asked.suffix)
    if asked.beam is not None and isinstance(model, Stepper):
        prompts = [sequence.context for sequence in sequences]
        beams = free_beam(model, prompts, length=asked.suffix, width=asked.beam)
        for row, (sequence, found) in enumerate(zip(sequences, beams, strict=True)):
            same = np.flatnonzero((found.tokens == np.array(sequence.target)).all(axis=1))
            answers["beam_place"][row] = same[0] + 1 if len(same) else 0
    return answers


def check(model: Model, asked: RecitationOptions) -> None:
    """Reject what a model cannot be asked; called for all models before any is asked."""
    no_text = isinstance(model, MaskedModel) or by_text(model)
    problem = None
    if not (isinstance(model, Scorer | Reciter) or no_text):
        problem = "it does not say which tokens it expects"
    elif not (isinstance(model, Reciter) or no_text) and samplings_of(asked) not in {(), (Sampling(),)}:
        problem = (
            "it gives the probability of each token and not of all others; leave temperature and top_k out"
        )
    elif asked.anywhere and (no_text or not isinstance(model, Generator)):
        problem = "what it writes cannot be looked for; leave --anywhere out"
    elif asked.beam is not None and (no_text or not isinstance(model, Stepper)):
        problem = "it does not support incremental decoding, as beam search does; leave --beam out"
    if problem is not None:
        raise NotMeasurableError(f"{model.name!r} cannot be asked to recite so: {problem}")
    if asked.beam is not None and isinstance(model, Stepper):
        check_width(model, asked.beam)


def _empty(many: int, asked: RecitationOptions) -> Arrays:
    """One row per question, before any is answered: the columns that were asked for."""
    answers: Arrays = {
        "recited": np.zeros(many, dtype=np.bool_),
        # -1 if there is none, -2 if it is unknown (masked models).
        "first_miss": np.full(many, NOT_KNOWN, dtype=np.int64),
    }
    if asked.tries:
        answers["log2_probability"] = np.full(many, np.nan)
    if asked.beam is not None:
        # The place of the suffix among the beams, from 1; 0 if it is not among them.
        answers["beam_place"] = np.full(many, -1, dtype=np.int64)
    if asked.anywhere:
        # What greedy decoding writes.
        answers["written"] = np.full((many, asked.suffix), -1, dtype=np.int64)
    # Why there is no answer; empty where there is one.
    return {**answers, "reason": np.full(many, "", dtype=object)}

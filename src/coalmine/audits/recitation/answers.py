"""The answers of one model to all questions, asked in batches and kept in a file so that nothing is asked twice."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.recitation.options import RecitationOptions
from coalmine.audits.recitation.questions import Questions
from coalmine.errors import NotMeasurableError
from coalmine.interrupts import deferred_interrupt
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
from coalmine.progress import Progress
from coalmine.search.walks.beam import check_width, free_beam
from coalmine.search.walks.resuming import ResumeFile
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
        found.append(Followed(int(missed[0]) if len(missed) else None, np.full(len(samplings), total)))
    return found


def check(model: Model, questions: Questions, asked: RecitationOptions, *, resume: Path | None) -> None:
    """Reject what a model cannot be asked, or what would overwrite another run; called for all models before any is asked."""
    _check(model, asked)
    ResumeFile(resume, _fingerprint(model, questions, asked)).load()


def ask(
    model: Model, questions: Questions, asked: RecitationOptions, *, resume: Path | None, progress: Progress
) -> Answers:
    """Ask a model all questions; with `resume`, skip those that an earlier run asked before it was stopped."""
    kept = ResumeFile(resume, _fingerprint(model, questions, asked))
    answers = _empty(questions, asked)
    saved = kept.load()
    done = 0
    if saved is not None:
        done = int(saved.pop("done"))
        for name, values in saved.items():
            getattr(answers, name)[:done] = values
    progress.start(f"Asking {visible(model.name)}", len(questions))
    progress.advance(done)

    def snapshot() -> dict[str, NDArray[Any]]:
        return {"done": np.array(done), **{name: part[:done] for name, part in answers._asdict().items()}}

    # Each beam costs as much as a question, and a stop must not wait for hours.
    at_a_time = max(1, AT_A_TIME // (asked.beam or 1))
    with deferred_interrupt() as interrupted:
        while done < len(questions):
            batch = range(done, min(len(questions), done + at_a_time))
            _ask_batch(model, questions, batch, asked, answers)
            done = batch.stop
            progress.advance(len(batch), f"{int(answers.recited[:done].sum()):,} recited")
            kept.save(snapshot, now=interrupted())
            if interrupted():
                raise KeyboardInterrupt
    progress.finish()
    # Until the results are written, another model may stop the run; what this one said is kept until then.
    kept.save(snapshot, now=True)
    return answers


def _ask_batch(
    model: Model, questions: Questions, batch: range, asked: RecitationOptions, answers: Answers
) -> None:
    rows = slice(batch.start, batch.stop)
    sequences = [questions.sequence(model, question) for question in batch]
    if isinstance(model, MaskedModel):
        share = asked.hidden_share or 0.0  # a number wherever a model is masked
        answers.recited[rows] = model.solves_masking(sequences, share=share, seed=asked.seed)
        return
    followed = follow(model, sequences, samplings_of(asked))
    answers.first_miss[rows] = [-1 if one.first_miss is None else one.first_miss for one in followed]
    answers.recited[rows] = answers.first_miss[rows] < 0
    for row, one in zip(batch, followed, strict=True):
        answers.log2_probabilities[row] = one.log2_probabilities
    if asked.writes and isinstance(model, Generator):
        missed = [row for row in batch if not answers.recited[row]]
        prompts = [sequences[row - batch.start].context for row in missed]
        if missed:
            answers.written[missed] = model.generate(prompts, length=questions.suffix)
        for row in batch:
            if answers.recited[row]:
                answers.written[row] = questions.target(row)
    if asked.beam is not None and isinstance(model, Stepper):
        beams = free_beam(
            model, [sequence.context for sequence in sequences], length=questions.suffix, width=asked.beam
        )
        for row, sequence, found in zip(batch, sequences, beams, strict=True):
            same = np.flatnonzero((found.tokens == np.array(sequence.target)).all(axis=1))
            answers.beam_place[row] = same[0] + 1 if len(same) else 0


def _check(model: Model, asked: RecitationOptions) -> None:
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


def _empty(questions: Questions, asked: RecitationOptions) -> Answers:
    many = len(questions)
    return Answers(
        recited=np.zeros(many, dtype=np.bool_),
        first_miss=np.full(many, NOT_KNOWN, dtype=np.int64),
        log2_probabilities=np.full((many, len(samplings_of(asked))), np.nan),
        written=np.full((many, questions.suffix if asked.writes else 0), -1, dtype=np.int64),
        beam_place=np.full(many, -1, dtype=np.int64),
    )


def may_answer_later(model: Model) -> bool:
    """Whether a model that failed may succeed later, because it runs behind an endpoint.

    A local model is deterministic, and fails at the same question again.
    """
    return isinstance(model, RemoteModel)


def _fingerprint(model: Model, questions: Questions, asked: RecitationOptions) -> str:
    facts = msgspec.json.encode([model.describe(), model.name, questions.sha256(), asked.deciding()])
    return hashlib.sha256(facts).hexdigest()

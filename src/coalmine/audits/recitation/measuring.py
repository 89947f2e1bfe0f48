"""Recitation: the share of training sequences that a model completes word for word.

A sequence is recited where greedy decoding, prompted with `context` tokens of it, writes its last `suffix` tokens exactly
("extractable" in Quantifying Memorization Across Neural Language Models, Carlini, Ippolito, Jagielski, Lee, Tramèr and Zhang, 2022,
arXiv:2202.07646).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coalmine.audits.recitation.answers import Answers, ask_models, by_text, check, may_answer_later
from coalmine.audits.recitation.examples import ONLY_TEMPLATES, examples_of
from coalmine.audits.recitation.groups import Asked, columns_of, exclusives, groups_of, trends_of
from coalmine.audits.recitation.options import RecitationOptions
from coalmine.audits.recitation.questions import (
    ONE_DOCUMENT,
    Cuts,
    Questions,
    ask_about,
    ask_whole,
    check_tokens,
    clusters_of,
    not_asked,
    plan_cuts,
    plan_whole,
    sample_sequences,
)
from coalmine.audits.recitation.results import ModelFacts, Recitation
from coalmine.audits.recitation.sequences import elsewhere, save_sequences
from coalmine.audits.recitation.turns import plan_turns
from coalmine.corpus.files.streams import pyarrow_for
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.models.contexts import NOTHING, Context
from coalmine.models.protocols import (
    ContextualModel,
    ConversationWriter,
    MaskedModel,
    Model,
    PairModel,
)
from coalmine.progress import Progress, Silent
from coalmine.storage.files import make_directory, together
from coalmine.visible import visible


def recite(
    models: Model | Sequence[Model],
    index: CorpusIndex | str | os.PathLike[str],
    options: RecitationOptions | None = None,
    *,
    baseline: Model | None = None,
    reveal: bool = False,
    out: str | os.PathLike[str] | None = None,
    engine: Engine | str | None = None,
    progress: Progress | None = None,
    record: Callable[[Recitation], None] | None = None,
    **changes: Any,
) -> Recitation:
    """Ask one model, or a family of them, to complete sequences of the corpus that they were trained on.

    The fields of `RecitationOptions` can be given as keywords, such as `contexts=[50]`, instead of a record or on top of one.

    >>> recite(load_model("model/"), "index/", contexts=[50, 100], per_bucket=200)  # doctest: +SKIP

    Args:
        models: one model, or several of growing size that were trained on the corpus; their names are made different.
        index: the index of the corpus over the models' own tokens.
        options: what is asked; contexts, suffix and lengths are in tokens.
        baseline: a model that was not trained on the corpus; what it recites is easy, and not a sign of memorization.
        reveal: whether examples hold the text; without it they are masked.
        out: a directory for recitation.json and sequences.parquet; a run that is stopped resumes there.
        engine: where the models are asked, such as "processes:4"; without it, in this process.
        progress: is advanced by questions.
        record: is called with the result when it is written to `out`, and before what was kept to resume is removed.
        changes: fields of `RecitationOptions`.
    """
    given = RecitationOptions.of(options, changes)
    asked = [models] if isinstance(models, Model) else list(models)
    everyone = asked if baseline is None else [*asked, baseline]
    corpus = index if isinstance(index, CorpusIndex) else CorpusIndex.open(index)
    template = corpus.manifest.tokenizer.chat_template_sha256
    if template:
        everyone = [_as_written(one, corpus) for one in everyone]
    folder, shown = None if out is None else Path(out), progress or Silent()
    planned = _planned(everyone, corpus, given, shown)
    said = _ask_all(everyone, planned, corpus, folder, engine, shown)
    own = [place for place in said.models if place < len(asked)]
    if not own:
        raise NotMeasurableError(
            f"none of the models that were asked has an answer: {'; '.join(said.missing)}"
        )
    facts = _model_facts(said.found, [everyone[place] for place in said.models], len(own))
    result = _result(facts, said.found, said.questions, corpus, planned.settings, reveal=reveal)
    warnings = (
        *planned.cuts.left_out,
        *not_asked(said.questions, planned.cuts),
        *said.missing,
        *(_other_templates(everyone, template) if template else ()),
        *result.warnings,
    )
    result = msgspec.structs.replace(result, warnings=warnings, not_measured=said.missing)
    return result if folder is None else _written(result, folder, said, record)


def _as_written(model: Model, corpus: CorpusIndex) -> Model:
    """A model that reads conversations as the index has them: their template wrote all that comes before a sequence."""
    if isinstance(model, ConversationWriter):
        found = model.as_written()
        if found.template_sha256 != corpus.manifest.tokenizer.chat_template_sha256:
            raise InputError(
                f"the index was written with another chat template than that of the tokenizer of {model.name!r}; index the corpus with the "
                "tokenizer of the model that is served"
            )
        return found
    if not isinstance(model, ContextualModel) or model.contexts is None:
        return model
    return model.in_context(Context("none", (), NOTHING))


def _other_templates(models: Sequence[Model], template: str) -> list[str]:
    """A warning for each model whose tokenizer would write conversations in another way than the index has them."""
    return [
        f"{model.name!r} has another chat template than the index, so it was asked about texts that its own template does not write; "
        "index the corpus again with the tokenizer that it was trained with, or give the model that template"
        for model in models
        if getattr(getattr(model, "chat", None), "sha256", None) not in {None, template}
    ]


class _Planned(NamedTuple):
    """What is asked, and with which settings."""

    cuts: Cuts
    questions: Questions
    settings: RecitationOptions


def _planned(
    models: Sequence[Model], corpus: CorpusIndex, given: RecitationOptions, progress: Progress
) -> _Planned:
    """The questions, and the options with what was left open."""
    masked = _kind(models)
    check_tokens(models, corpus)
    given.check()
    writers = [model for model in models if isinstance(model, ConversationWriter)]
    if writers and corpus.manifest.tokenizer.chat_template_sha256:
        return _planned_turns(models, writers, corpus, given)
    cuts = _cuts(models, given, masked=masked)
    samples = sample_sequences(corpus, cuts.lengths, given, progress)
    clusters = clusters_of(samples, corpus if given.sample == "uniform" else None)
    questions = ask_whole(samples, clusters) if masked else ask_about(samples, clusters, cuts, given.suffix)
    settings = msgspec.structs.replace(
        given,
        contexts=cuts.contexts,
        lengths=cuts.lengths,
        tries=() if given.greedy_only or masked or any(map(by_text, models)) else tuple(given.tries),
        hidden_share=given.hidden_share if masked else None,
    )
    return _Planned(cuts, questions, settings)


def _planned_turns(
    models: Sequence[Model],
    writers: Sequence[ConversationWriter],
    corpus: CorpusIndex,
    given: RecitationOptions,
) -> _Planned:
    """The questions for chat endpoints, and the options with what was left open."""
    if len(writers) < len(models):
        raise InputError(
            "a chat endpoint recites turns, and other models recite any sequence; ask them apart"
        )
    cuts, questions = plan_turns(writers, corpus, given)
    settings = msgspec.structs.replace(
        given, contexts=(), lengths=cuts.lengths, tries=(), hidden_share=None, sample="uniform"
    )
    return _Planned(cuts, questions, settings)


def _result(
    models: tuple[ModelFacts, ...],
    found: Sequence[Asked],
    questions: Questions,
    corpus: CorpusIndex,
    settings: RecitationOptions,
    *,
    reveal: bool,
) -> Recitation:
    """What the answers amount to; the baseline is in no trend."""
    template = corpus.manifest.tokenizer.chat_template_sha256
    columns = columns_of(questions)
    examples = examples_of(found, questions, corpus, reveal=reveal)
    asked = found[: sum(one.role == "asked" for one in models)]
    one_document = len({sample.document for sample in questions.samples}) == 1
    only_templates = not examples and any(one.answers.recited.any() for one in found)
    return Recitation(
        index={
            "corpus_sha256": corpus.manifest.corpus.sha256,
            "tokenizer_sha256": corpus.manifest.tokenizer.sha256,
            **({"chat_template_sha256": template} if template else {}),
            "documents": corpus.documents,
            "tokens": corpus.tokens,
        },
        models=models,
        settings=settings,
        sequences=len(questions.samples),
        questions=len(questions),
        groups=tuple(group for one in found for group in groups_of(one, columns, settings)),
        trends=trends_of(asked, columns, settings),
        exclusive=exclusives(found, columns),
        examples=examples,
        revealed=reveal,
        warnings=(
            *((ONE_DOCUMENT,) if one_document else ()),
            *((ONLY_TEMPLATES,) if only_templates else ()),
        ),
    )


def _cuts(models: Sequence[Model], options: RecitationOptions, *, masked: bool) -> Cuts:
    """Which lengths and contexts are tried."""
    if not masked:
        return plan_cuts(models, contexts=options.contexts, lengths=options.lengths, suffix=options.suffix)
    if options.contexts is not None:
        raise InputError(
            "models that fill gaps are given whole sequences, so there is no context before a suffix; give --lengths instead"
        )
    return plan_whole(models, lengths=options.lengths)


def _model_facts(found: Sequence[Asked], models: Sequence[Model], asked: int) -> tuple[ModelFacts, ...]:
    """The models, of which the first `asked` are those that were to be measured."""
    return tuple(
        ModelFacts(
            name=one.name,
            role="asked" if place < asked else "baseline",
            parameters=one.parameters,
            description=model.describe(),
        )
        for place, (one, model) in enumerate(zip(found, models, strict=True))
    )


def _written(
    result: Recitation,
    folder: Path,
    said: _Said,
    record: Callable[[Recitation], None] | None,
) -> Recitation:
    """The result once it is in its directory, and nothing is left that was kept to resume."""
    with together():
        digest = save_sequences(folder, said.found, said.questions, result.settings)
        result = msgspec.structs.replace(result, sequences_sha256=digest)
        result.save(folder)
        if record is not None:
            record(result)
    said.ledger.forget()  # unless a worker was lost: the same command asks its questions again then, and no others
    return result


class _Said(NamedTuple):
    """What the models said.

    Attributes:
        found: the answers of each model that gave any.
        questions: those that all of them answered.
        missing: why there are no others.
        models: the places of the models that gave any answer.
        ledger: what was kept to resume.
    """

    found: list[Asked]
    questions: Questions
    missing: tuple[str, ...]
    models: list[int]
    ledger: Ledger


def _ask_all(
    models: Sequence[Model],
    planned: _Planned,
    corpus: CorpusIndex,
    folder: Path | None,
    engine: Engine | str | None,
    progress: Progress,
) -> _Said:
    """The answers of each model to the questions that all of them answered.

    What a model cannot be asked, or a place that cannot be written to, is refused before any model is asked.
    """
    questions, settings = planned.questions, planned.settings
    if folder is not None:
        pyarrow_for("sequences.parquet")
    for model in models:
        check(model, settings)
    ledger = Ledger(folder)
    ledger.begin(_fingerprint(models, questions, settings))
    if folder is not None:
        make_directory(folder)
    try:
        with open_engine(engine) as opened:
            said, missing = ask_models(
                models, questions, settings, engine=opened, ledger=ledger, progress=progress
            )
    except (NotMeasurableError, ModelOutputError):  # for all models and questions
        # These would come again; after all else, a lost worker or a full disk, the same command resumes.
        if not any(map(may_answer_later, models)):
            with contextlib.suppress(InputError):  # what went wrong first is what counts
                ledger.forget()
        raise
    names = _different_names(models)
    reasons = [
        f"{len(one.rows):,} questions to {names[one.model]} have no answer: {one.problem}" for one in missing
    ]
    silent = {one.model for one in missing if len(one.rows) == len(questions)}
    answered = [place for place in range(len(models)) if place not in silent]
    lost = [row for one in missing if one.model not in silent for row in one.rows]
    if lost:
        # A question that one model has no answer to is left out for all, so that they are compared on the same ones. A model without
        # any answer is left out itself.
        rows = np.setdiff1d(np.arange(len(questions)), lost)
        if not len(rows):
            raise next(one.problem for one in missing if one.model not in silent)
        questions = questions.select(rows)
        said = [Answers._make(column[rows] for column in answers) for answers in said]
    found = [
        Asked(
            names[place],
            _parameters(models[place]),
            said[place],
            elsewhere(corpus, questions, said[place], settings),
        )
        for place in answered
    ]
    return _Said(found, questions, tuple(dict.fromkeys(reasons)), answered, ledger)


def _fingerprint(models: Sequence[Model], questions: Questions, settings: RecitationOptions) -> str:
    """What a run that was stopped has in common with the one that resumes it."""
    facts = [[(one.describe(), one.name) for one in models], questions.sha256(), settings.deciding()]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


def _kind(models: Sequence[Model]) -> bool:
    """Whether the models fill gaps; all must be of one kind."""
    if not models:
        raise InputError("there is no model to ask; give one")
    for model in models:
        if isinstance(model, PairModel):
            raise NotMeasurableError(
                f"{model.name!r} is a model of pairs, and an index has no sources; hold one fixed with given(source), or --source"
            )
    kinds = {isinstance(model, MaskedModel) for model in models}
    if len(kinds) > 1:
        raise InputError(
            "models that fill gaps and models that continue a prompt recite different things; ask them apart"
        )
    return kinds.pop()


def _different_names(models: Sequence[Model]) -> list[str]:
    names: list[str] = []
    for model in models:
        own = visible(model.name)
        name, number = own, 2
        while name in names:
            name, number = f"{own} ({number})", number + 1
        names.append(name)
    return names


def _parameters(model: Model) -> int | None:
    said = model.describe().get("parameters")
    return said if isinstance(said, int) else None

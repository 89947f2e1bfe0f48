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
from unicodedata import category

import msgspec
import numpy as np

from coalmine.audits.recitation.answers import Answers, ask_models, check, may_answer_later
from coalmine.audits.recitation.groups import counted
from coalmine.audits.recitation.options import RecitationOptions
from coalmine.audits.recitation.questions import ONE_DOCUMENT, Planned, Questions, plan
from coalmine.audits.recitation.records import Example, ModelFacts, Recitation
from coalmine.audits.recitation.ways import rows_of, save_sequences
from coalmine.corpus.files.streams import pyarrow_for
from coalmine.corpus.index.queries import CorpusIndex, Occurrence
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.models.contexts import NOTHING, Context
from coalmine.models.protocols import ContextualModel, ConversationWriter, IntArray, Model
from coalmine.progress import Progress, Silent
from coalmine.storage.files import make_directory, together
from coalmine.visible import visible

EXAMPLES = 10
# A suffix that occurs in this many different surroundings is boilerplate: it says nothing about any one document.
TEMPLATE_SURROUNDINGS = 5
# At most this many copies of a sequence are looked at.
_COPIES = 50
ONLY_TEMPLATES = (
    f"all that was recited occurs in {TEMPLATE_SURROUNDINGS} or more different surroundings, as boilerplate does, so there are no "
    "examples"
)


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
    given, shown = RecitationOptions.of(options, changes), progress or Silent()
    asked = [models] if isinstance(models, Model) else list(models)
    everyone = asked if baseline is None else [*asked, baseline]
    corpus = index if isinstance(index, CorpusIndex) else CorpusIndex.open(index)
    template = corpus.manifest.tokenizer.chat_template_sha256
    if template:
        everyone = [_as_written(one, template) for one in everyone]
    folder = None if out is None else Path(out)
    planned = plan(everyone, corpus, given, shown)
    said = _ask_all(everyone, planned, folder, engine, shown)
    if all(place >= len(asked) for place in said.answers):
        raise NotMeasurableError(
            f"none of the models that were asked has an answer: {'; '.join(said.missing)}"
        )
    names = _different_names(everyone)
    facts = [
        ModelFacts(
            name=names[place],
            role="asked" if place < len(asked) else "baseline",
            parameters=_parameters(everyone[place]),
            description=everyone[place].describe(),
        )
        for place in said.answers
    ]
    answers = {names[place]: own for place, own in said.answers.items()}
    rows = {name: rows_of(said.questions, own, corpus, planned.settings) for name, own in answers.items()}
    examples = _examples_of(answers, said.questions, corpus, reveal=reveal)
    of_one_document = len({sample.document for sample in said.questions.samples}) == 1
    only_templates = not examples and any(own.recited.any() for own in answers.values())
    result = Recitation(
        index={
            "corpus_sha256": corpus.manifest.corpus.sha256,
            "tokenizer_sha256": corpus.manifest.tokenizer.sha256,
            **({"chat_template_sha256": template} if template else {}),
            "documents": corpus.documents,
            "tokens": corpus.tokens,
        },
        models=tuple(facts),
        settings=planned.settings,
        sequences=len(said.questions.samples),
        examples=examples,
        revealed=reveal,
        not_measured=said.missing,
        warnings=(
            *planned.left_out,
            *said.missing,
            *(_other_templates(everyone, template) if template else ()),
            *((ONE_DOCUMENT,) if of_one_document else ()),
            *((ONLY_TEMPLATES,) if only_templates else ()),
        ),
        **counted(facts, rows, planned.settings),
    )
    if folder is None:
        return result
    with together():
        result = msgspec.structs.replace(result, sequences_sha256=save_sequences(folder, rows))
        result.save(folder)
        if record is not None:
            record(result)
    said.ledger.forget()  # unless a worker was lost: the same command asks its questions again then, and no others
    return result


def _as_written(model: Model, template: str) -> Model:
    """A model that reads conversations as the index has them: their template wrote all that comes before a sequence."""
    if isinstance(model, ConversationWriter):
        found = model.as_written()
        if found.template_sha256 != template:
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


class _Said(NamedTuple):
    """What the models said: the answers of each that gave any, by its place, to the questions that all of them answered."""

    answers: dict[int, Answers]
    questions: Questions
    # Why there are no others.
    missing: tuple[str, ...]
    ledger: Ledger


def _ask_all(
    models: Sequence[Model],
    planned: Planned,
    folder: Path | None,
    engine: Engine | str | None,
    progress: Progress,
) -> _Said:
    """Ask each model all questions; what it cannot be asked, or a place that cannot be written to, is refused before any is asked."""
    questions, settings = planned.questions, planned.settings
    if folder is not None:
        pyarrow_for("sequences.parquet")
    for model in models:
        check(model, settings)
    facts = [[(one.describe(), one.name) for one in models], questions.sha256(), settings.deciding()]
    ledger = Ledger(folder)
    ledger.begin(hashlib.sha256(msgspec.json.encode(facts)).hexdigest())
    if folder is not None:
        make_directory(folder)
    try:
        with open_engine(engine) as opened:
            answers, missing = ask_models(
                models, questions, settings, engine=opened, ledger=ledger, progress=progress
            )
    except (NotMeasurableError, ModelOutputError):  # for all models and questions
        # These would come again; after all else, a lost worker or a full disk, the same command resumes.
        if not any(map(may_answer_later, models)):
            with contextlib.suppress(InputError):  # what went wrong first is what counts
                ledger.forget()
        raise
    names = _different_names(models)
    reasons = dict.fromkeys(
        f"{len(one.rows):,} questions to {names[one.model]} have no answer: {one.problem}" for one in missing
    )
    silent = {one.model for one in missing if len(one.rows) == len(questions)}
    partly = [one for one in missing if one.model not in silent]
    said = {place: own for place, own in enumerate(answers) if place not in silent}
    if partly:
        # A question that one model has no answer to is left out for all, so that they are compared on the same ones. A model without
        # any answer is left out itself.
        rows = np.setdiff1d(np.arange(len(questions)), [row for one in partly for row in one.rows])
        if not len(rows):
            raise partly[0].problem
        questions = questions.select(rows)
        said = {place: Answers._make(column[rows] for column in own) for place, own in said.items()}
    return _Said(said, questions, tuple(reasons), ledger)


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


def _examples_of(
    answers: dict[str, Answers], questions: Questions, index: CorpusIndex, *, reveal: bool
) -> tuple[Example, ...]:
    """The recited sequences that occur least often, each at the longest context with which it is recited.

    No two are from one document or overlap in any copy, and none is template-only: a suffix that occurs in five or more different
    surroundings, of as many tokens before and after it as it has, is left out. Copies of a whole document have one surrounding.
    """
    by_any = np.logical_or.reduce([own.recited for own in answers.values()])
    copies = np.array([sample.count for sample in questions.samples])[questions.which]
    order = np.lexsort((-questions.contexts, copies))
    clusters: set[int] = set()
    taken: list[tuple[Occurrence, int]] = []
    found: list[Example] = []
    for question in order[by_any[order]].tolist():
        if len(found) == EXAMPLES:
            break
        cluster = int(questions.clusters[questions.which[question]])
        target = questions.target(question)
        if (
            cluster in clusters
            or index.surroundings(target, around=len(target), limit=_COPIES) >= TEMPLATE_SURROUNDINGS
        ):
            continue
        whole = np.concatenate([questions.prompt(question), target])
        places = [(place, len(whole)) for place in index.locate(whole, limit=_COPIES)]
        if not any(_overlap(one, other) for one in places for other in taken):
            clusters.add(cluster)
            taken += places
            found.append(_example(question, answers, questions, index, reveal=reveal))
    return tuple(found)


def _overlap(one: tuple[Occurrence, int], other: tuple[Occurrence, int]) -> bool:
    """Whether two copies, each a place and a number of tokens, share a token of the corpus."""
    (place, length), (elsewhere, size) = one, other
    begins = place.offset < elsewhere.offset + size
    return place.document == elsewhere.document and begins and elsewhere.offset < place.offset + length


def _example(
    question: int, answers: dict[str, Answers], questions: Questions, index: CorpusIndex, *, reveal: bool
) -> Example:
    def text(tokens: IntArray) -> str:
        written = index.decode(tokens.tolist())
        return written if reveal else masked_text(written)

    sample, context = questions.sample(question), int(questions.contexts[question])
    # A model that was not asked to write anything has nothing here.
    wrote = {name: own.written[question] for name, own in answers.items() if not own.recited[question]}
    return Example(
        document=sample.document,
        offset=sample.offset,
        copies=sample.count,
        context=context or None,
        prompt=text(questions.prompt(question)),
        suffix=text(questions.target(question)),
        recited_by=tuple(name for name, own in answers.items() if own.recited[question]),
        others_wrote={name: text(tokens) for name, tokens in wrote.items() if (tokens[:1] >= 0).any()},
    )


def masked_text(text: str) -> str:
    """A text with every letter, vowel sign, accent and digit hidden; its shape remains visible.

    >>> masked_text("My PIN is 1234.")
    '•• ••• •• ••••.'
    """
    return "".join(
        "•" if character.isalnum() or category(character).startswith("M") else character for character in text
    )

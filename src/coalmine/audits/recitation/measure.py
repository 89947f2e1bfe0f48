"""Recitation: the share of training sequences that a model completes word for word.

A sequence is recited where greedy decoding, prompted with `context` tokens of it, writes its last `suffix` tokens exactly
("extractable" in Quantifying Memorization Across Neural Language Models, Carlini, Ippolito, Jagielski, Lee, Tramèr and Zhang, 2022,
arXiv:2202.07646).
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unicodedata import category

import msgspec
import numpy as np

from coalmine.audits.recitation.answers import ask_models, check
from coalmine.audits.recitation.questions import Questions, plan
from coalmine.audits.recitation.records import Example, ModelFacts, Recitation, RecitationOptions
from coalmine.audits.recitation.shares import counted, rows_of, save_sequences
from coalmine.corpus.files.streams import pyarrow_for
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays
from coalmine.errors import InputError, NotMeasurableError
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
    questions, settings = plan(everyone, corpus, given, shown)
    # What a model cannot be asked, or a place that cannot be written to, is refused before any is asked.
    for model in everyone:
        check(model, settings)
    ledger = Ledger(folder)
    facts = [[(one.describe(), one.name) for one in everyone], questions.sha256(), settings.deciding()]
    if folder is not None:
        pyarrow_for("sequences.parquet")
    ledger.begin(hashlib.sha256(msgspec.json.encode(facts)).hexdigest())
    if folder is not None:
        make_directory(folder)
    with open_engine(engine) as opened:
        said = ask_models(everyone, questions, settings, engine=opened, ledger=ledger, progress=shown)
    names, contexts = _different_names(everyone), set(questions.contexts.tolist())
    # A question that one model has no answer to is left out for all, so that they are compared on the same ones.
    rows = np.flatnonzero(np.all([own["reason"] == "" for own in said], axis=0))
    if not len(rows):
        raise NotMeasurableError("no question was answered by all models; ask them apart")
    questions = replace(questions, which=questions.which[rows], contexts=questions.contexts[rows])
    answers = {
        name: {column: values[rows] for column, values in own.items()}
        for name, own in zip(names, said, strict=True)
    }
    tables = {name: rows_of(questions, own, corpus) for name, own in answers.items()}
    reasons = tuple(
        f"{many:,} questions to {name} have no answer: {why}"
        for name, own in zip(names, said, strict=True)
        for why, many in Counter(own["reason"].tolist()).items()
        if why
    )
    described = [
        ModelFacts(
            name=name,
            role="asked" if place < len(asked) else "baseline",
            parameters=size if isinstance(size := facts.get("parameters"), int) else None,
            description=facts,
        )
        for place, (name, facts) in enumerate(zip(names, [one.describe() for one in everyone], strict=True))
    ]
    result = Recitation(
        index={
            "corpus_sha256": corpus.manifest.corpus.sha256,
            "tokenizer_sha256": corpus.manifest.tokenizer.sha256,
            **({"chat_template_sha256": template} if template else {}),
            "documents": corpus.documents,
            "tokens": corpus.tokens,
        },
        models=tuple(described),
        settings=settings,
        sequences=len(questions.samples),
        examples=_examples_of(answers, questions, corpus, reveal=reveal),
        revealed=reveal,
        not_measured=reasons,
        warnings=tuple(
            f"no sequence is long enough for a context of {context} tokens"
            for context in settings.contexts or ()
            if context not in contexts
        ),
        **counted(described, tables, settings),
    )
    if folder is None:
        return result
    with together():
        result = msgspec.structs.replace(result, sequences_sha256=save_sequences(folder, tables))
        result.save(folder)
        if record is not None:
            record(result)
    ledger.forget()  # unless a worker was lost: the same command asks its questions again then, and no others
    return result


def _as_written(model: Model, template: str) -> Model:
    """A model that reads conversations as the index has them: their template wrote all that comes before a sequence."""
    written = model.as_written() if isinstance(model, ConversationWriter) else None
    own = written.template_sha256 if written else getattr(getattr(model, "chat", None), "sha256", None)
    if own not in {None, template}:
        raise InputError(
            f"the index was written with another chat template than that of the tokenizer of {model.name!r}; index the corpus with the "
            "tokenizer of the model that is asked"
        )
    if written is not None:
        return written
    if not isinstance(model, ContextualModel) or model.contexts is None:
        return model
    return model.in_context(Context("none", (), NOTHING))


def _different_names(models: Sequence[Model]) -> list[str]:
    names: list[str] = []
    for model in models:
        own = visible(model.name)
        more = (f"{own} ({number})" for number in itertools.count(2))
        names.append(next(name for name in itertools.chain([own], more) if name not in names))
    return names


def _examples_of(
    answers: dict[str, Arrays], questions: Questions, index: CorpusIndex, *, reveal: bool
) -> tuple[Example, ...]:
    """The recited sequences that occur least often, each at the longest context with which it is recited.

    No two are from one document, and none is template-only: a suffix that occurs in five or more different surroundings, of as many
    tokens before and after it as it has, is left out. Copies of a whole document have one surrounding.
    """

    def text(tokens: IntArray) -> str:
        written = index.decode(tokens.tolist())
        return written if reveal else masked_text(written)

    by_any = np.logical_or.reduce([own["recited"] for own in answers.values()])
    copies = np.array([sample.count for sample in questions.samples])[questions.which]
    order = np.lexsort((-questions.contexts, copies))
    found: dict[int, Example] = {}
    for question in order[by_any[order]].tolist():
        if len(found) == EXAMPLES:
            break
        cluster = int(questions.clusters[questions.which[question]])
        if cluster in found:
            continue
        target = questions.target(question)
        if index.surroundings(target, around=len(target), limit=_COPIES) >= TEMPLATE_SURROUNDINGS:
            continue
        sample = questions.sample(question)
        found[cluster] = Example(
            document=sample.document,
            offset=sample.offset,
            copies=sample.count,
            context=int(questions.contexts[question]) or None,
            prompt=text(questions.prompt(question)),
            suffix=text(target),
            recited_by=tuple(name for name, own in answers.items() if own["recited"][question]),
        )
    return tuple(found.values())


def masked_text(text: str) -> str:
    """A text with every letter, vowel sign, accent and digit hidden; its shape remains visible.

    >>> masked_text("My PIN is 1234.")
    '•• ••• •• ••••.'
    """
    return "".join(
        "•" if character.isalnum() or category(character).startswith("M") else character for character in text
    )

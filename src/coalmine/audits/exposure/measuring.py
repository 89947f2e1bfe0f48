"""Exposure of canaries, as the Secret Sharer defines it, measured by the estimator that the caller names or by the best that applies.

The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks, Carlini, Liu, Erlingsson, Kos and Song, 2019,
arXiv:1802.08232.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from coalmine.audits.exposure.context_check import context_warnings
from coalmine.audits.exposure.one_format import OneFormat
from coalmine.audits.exposure.options import ExposureOptions
from coalmine.audits.exposure.results import NOT_IN_TURNS, Exposures
from coalmine.audits.framing import converses, framed
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.engines.courses import SURVIVED, Course, run_courses
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import Ledger, Resume
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.protocols import Model, Scorer
from coalmine.progress import Progress
from coalmine.storage.files import to_json

# What decides the units of a run; a run of another version is another run.
KEPT = "exposure/5"
_OTHER_DATA = (
    "the model was trained on other data than the corpus of this manifest: how often it was trained on a {one} is what the manifest "
    "says, and may not be so"
)


def expose(
    model: Model,
    canaries: CanarySet | str | os.PathLike[str],
    options: ExposureOptions | None = None,
    *,
    engine: Engine | str | None = None,
    resume: Resume = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Exposures:
    """The exposure of every canary, in the order of the manifest, each with its interval (bits).

    The fields of `ExposureOptions` can be given as keywords, such as `method="exact"`, instead of a record or on top of one; it lists
    the methods. A canary that the model gives no number for is "not_measured", with the reason, and so are those of a format for which
    there is no honest number; all others are still measured. An error is raised only where no format can be measured, or where the model
    answers the same question in two ways. Where the model leaves a
    choice of context, some canaries are also scored in the others, and a warning says if that matters. Canaries of chat data are scored
    as the turns that they are, after the header that the model's chat template writes.

    The work runs on `engine`, "here" or for example "processes:8", with the same results. With `resume`, a directory, a run that is
    stopped keeps there what it has done, and the same call resumes it. What was kept is removed when all formats are measured; a
    `Ledger` in place of the directory leaves it to the caller, once the results are saved.

    >>> from coalmine import CanarySet, ScriptedModel
    >>> model = ScriptedModel("pin 0123456789", memory={"pin 49": 0.25})
    >>> canaries = CanarySet.of("pin {digits:2}", ["pin 49"])
    >>> round(expose(model, canaries, method="exact")[0].exposure, 2)  # bits: the least surprising of 100
    6.64
    """
    (found,) = expose_models(
        [model], canaries, options, engine=engine, resume=resume, progress=progress, **changes
    )
    return found


def expose_models(
    models: Sequence[Model],
    canaries: CanarySet | str | os.PathLike[str],
    options: ExposureOptions | None = None,
    *,
    engine: Engine | str | None = None,
    resume: Resume = None,
    progress: Progress | None = None,
    **changes: Any,
) -> list[Exposures]:
    """The exposures of the same canaries in several models, in their order, measured at the same time on one engine.

    Everything else is as in `expose`; a NotMeasurableError is raised only where no format can be measured in any of the models.

    >>> from coalmine import CanarySet, ScriptedModel
    >>> models = [ScriptedModel("pin 0123456789", memory={"pin 49": share}) for share in (0.25, 0.125)]
    >>> found = expose_models(models, CanarySet.of("pin {digits:2}", ["pin 49"]))
    >>> [round(one[0].log_perplexity_bits, 1) for one in found]
    [2.0, 3.0]
    """
    asked = ExposureOptions.of(options, changes)
    asked.check()
    for model in models:
        _check_model(model)
    chosen = as_canary_set(canaries)
    models = [framed(model, chosen) for model in models]
    ledger = resume if isinstance(resume, Ledger) else Ledger(resume)
    facts = [KEPT, [model.describe() for model in models], chosen.sha256, asked.deciding()]
    ledger.begin(hashlib.sha256(to_json(facts)).hexdigest())
    runs = [_OneModel(model, chosen, asked) for model in models]
    with open_engine(engine) as opened:
        courses = [course for run in runs for course in run.courses()]
        run_courses(opened, courses, ledger=ledger, progress=progress)
    try:
        _check_measured(runs, chosen)
    except SURVIVED:
        ledger.forget()  # the same questions would end in the same way
        raise
    found = [run.together() for run in runs]
    if ledger is not resume:
        ledger.forget()
    return found


def _check_model(model: Model) -> None:
    if not isinstance(model, Model):
        raise InputError(f"expose needs a model, got {type(model).__name__}; load one with load_model(path)")
    if not isinstance(model, Scorer):
        lacking = model.describe().get("why")
        why = f" ({lacking})" if lacking else ""
        raise NotMeasurableError(
            f"exposure is not applicable to {model.name!r}: it does not give the probability of a text{why}; look at what it writes with "
            "`coalmine extract --method prompt`, or audit the model itself"
        )


def _check_measured(runs: Sequence[_OneModel], chosen: CanarySet) -> None:
    """Raise the first reason where no format could be measured in any model."""
    parts = [part for run in runs for part in run.parts]
    problems = [part.problem for part in parts if part.problem is not None]
    # Of texts without a format the scores alone are worth having: membership compares them.
    if problems and len(problems) == len(parts) and not chosen.listed:
        raise problems[0]


class _OneModel:
    """One model, while its canaries are measured."""

    def __init__(self, model: Model, chosen: CanarySet, asked: ExposureOptions) -> None:
        self.model, self.chosen, self.asked = model, chosen, asked
        present = {canary.format_id for canary in chosen}
        of_format = msgspec.structs.replace(asked, minutes=asked.minutes / max(1, len(present)))
        self.parts = [
            OneFormat(model, chosen, format_id, of_format)
            for format_id in chosen.formats
            if format_id in present
        ]
        self._context_warnings: list[str] = []

    def courses(self) -> list[Course[None]]:
        """One per format, and one that compares contexts."""
        compared = [self._compare_contexts()] if self.asked.comparisons else []
        return [*(part.course() for part in self.parts), *compared]

    def together(self) -> Exposures:
        """The results of all formats, in the order of the manifest."""
        parts, chosen = self.parts, self.chosen
        by_canary = {result.canary_id: result for part in parts for result in part.results()}
        warnings = [*(warning for part in parts for warning in part.warnings()), *self._context_warnings]
        description = self.model.describe()
        trained_on = description.get("trained_on_sha256")
        if chosen.corpus_sha256 is not None and trained_on not in {None, chosen.corpus_sha256}:
            warnings.append(_OTHER_DATA.format(one="secret" if chosen.natural else "canary"))
        if chosen.scanned is not None and chosen.scanned.conversations is True and converses(self.model):
            warnings.append(NOT_IN_TURNS)
        found = Exposures(
            warnings=tuple(warnings),
            results=tuple(by_canary[canary.canary_id] for canary in chosen),
            formats=tuple(part.facts() for part in parts),
            tail_fits={part.format_id: part.measured.fit for part in parts if part.measured.fit is not None},
            proven_bits={name: bits for part in parts for name, bits in part.proven_bits().items()} or UNSET,
            seed=self.asked.seed,
            confidence=self.asked.confidence,
            model=description,
            manifest_sha256=chosen.sha256,
            expansions=sum(part.measured.expansions for part in parts),
            inclusion=None if chosen.withhold is None else 1.0 - chosen.withhold,
        )
        return found.beside(
            [rows for part in parts for rows in part.candidates],
            {part.format_id: part.choice for part in parts if part.choice is not None},
        )

    def _compare_contexts(self) -> Course[None]:
        self._context_warnings = yield from context_warnings(self.model, self.chosen)

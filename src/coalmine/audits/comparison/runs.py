"""The inputs of a comparison, from the files of runs: what each run exposes, and how good its model is."""

from __future__ import annotations

import csv
import hashlib
import math
import os
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from coalmine.audits.comparison.measure import compare
from coalmine.audits.comparison.records import Comparison, ComparisonOptions, Strategy, UtilityMeasure
from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.estimators import estimator_of
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.membership.populations import load_source
from coalmine.audits.runs import read_run
from coalmine.errors import InputError, MissingExtraError, NotMeasurableError
from coalmine.evidence.directories import audited_model
from coalmine.evidence.run import Run, names_of
from coalmine.records import Estimate
from coalmine.statistics.scores import checked_confidence
from coalmine.storage.files import read_text, real_path, sha256_of_file, to_json
from coalmine.training.finetuning.record import FinetuningRecord
from coalmine.training.record import TrainingRecord

# In place of a utility: take the validation loss of the run's own training.json or finetuning.json.
OWN = "own"


def compare_runs(
    runs: Sequence[str | os.PathLike[str]],
    options: ComparisonOptions | None = None,
    *,
    labels: Sequence[str | None] = (),
    utility: Sequence[str] = (),
    **changes: Any,
) -> Comparison:
    """Compare runs by the results below their directories; the fields of `ComparisonOptions` can be given as keywords.

    `labels` has one entry per run, in their order: runs with the same one are trainings of one kind, which differ by their seeds, and
    None is a kind of its own. `utility` has one entry per run too: a number, a file with one number per line (one for each document),
    or "own" for the validation loss of the run's training.json or finetuning.json. Without it all runs have their own.

    >>> compare_runs(["plain", "private"], utility=["2.41", "2.63"]).pairs[0].utility_relation  # doctest: +SKIP
    'first better'
    """
    asked = ComparisonOptions.of(options, changes)
    if labels and len(labels) != len(runs):
        raise InputError(f"there are {len(runs)} runs and {len(labels)} labels; give one for each run")
    if utility and len(utility) != len(runs):
        raise InputError(
            f"there are {len(runs)} runs and {len(utility)} utilities; give one for each run, and `{OWN}` for its own loss"
        )
    if len({real_path(run) for run in runs}) < len(runs):
        raise InputError("a run was named twice; comparing it with itself says nothing, so name each once")
    read = [read_run(run) for run in runs]
    strategies = []
    sides, given = labels or [None] * len(read), utility or [OWN] * len(read)
    for name, run, side, named in zip(names_of(read), read, sides, given, strict=True):
        exposure = run.first(EXPOSURES)
        if exposure is None:
            raise NotMeasurableError(
                f"{name} has no exposures to compare; run `coalmine expose` on it first, with the same canaries as the others"
            )
        measure = own_utility(run) if named == OWN else given_utility(named, asked.confidence)
        digest = sha256_of_file(run.all(EXPOSURES)[0].path)
        strategies.append(Strategy(name, exposure, measure, scored_others(run), side, digest))
    _check_seeds(strategies)
    return compare(strategies, asked)


def compare_exposed(runs: Sequence[Run]) -> Comparison | None:
    """A comparison of those runs that have exposures of planted canaries; None if there are fewer than two."""
    strategies = [
        Strategy(name, exposure, own_utility(run), scored_others(run))
        for name, run in zip(names_of(runs), runs, strict=True)
        if (exposure := run.first(EXPOSURES)) is not None
        and any(result.planted for result in exposure.results)
    ]
    return compare(strategies) if len(strategies) > 1 else None


def labeled_runs(given: Sequence[str]) -> tuple[list[str | None], list[Path]]:
    """The labels and paths of runs as they are named: `RUN`, or `LABEL=RUN`, where RUN may be a pattern such as `runs/plain-*`."""
    labels: list[str | None] = []
    paths: list[Path] = []
    for text in given:
        label, equals, rest = text.partition("=")
        if not equals or not label or Path(text).exists():
            labels.append(None)
            paths.append(Path(text))
            continue
        # An existing path is taken literally, whatever characters it has; Path.glob takes no absolute patterns.
        matched = [Path(rest)] if Path(rest).exists() else [Path(one) for one in sorted(glob(rest))]  # noqa: PTH207
        # The audit directory beside a model is read with it, and is not a run of its own.
        found = [one for one in matched if audited_model(one) not in matched]
        if not found:
            raise InputError(f"{text!r} names no run: nothing matches {rest!r}; give LABEL=RUN")
        labels += [label] * len(found)
        paths += found
    return labels, paths


def _check_seeds(strategies: Sequence[Strategy]) -> None:
    """Reject one model that is named as two trainings: their spread would look too small."""
    seen: dict[tuple[str, str], str] = {}
    for one in strategies:
        weights = one.exposure.model.get("weights_sha256")
        if one.side is None or not isinstance(weights, str):
            continue
        earlier = seen.setdefault((one.side, weights), one.name)
        if earlier != one.name:
            raise InputError(
                f"{earlier} and {one.name} are the same model, so they are not two trainings of {one.side!r}; train with another seed"
            )


def scored_others(run: Run) -> dict[str, CandidateScores]:
    """Format id to the references or samples that the run's canaries were placed among, if their scores exist."""
    if not any(
        estimator_of(facts.method).among_others
        for located in run.all(EXPOSURES)[:1]
        for facts in located.document.formats
    ):
        return {}
    try:
        candidates = load_source(run.all(EXPOSURES)[0].path).candidates
    except MissingExtraError:
        # The intervals of a comparison are then wider, and still hold.
        return {}
    used = {facts.format_id: estimator_of(facts.method) for facts in run.all(EXPOSURES)[0].document.formats}
    kinds = {format_id: one.keeps for format_id, one in used.items() if one.among_others}
    return {scores.format_id: scores for scores in candidates if scores.kind == kinds.get(scores.format_id)}


def own_utility(run: Run) -> UtilityMeasure | None:
    """The validation loss of a run's training.json or finetuning.json, with what decides which documents and tokens it is of."""
    loss, record = run.validation_loss_bits, run.training or run.finetuning
    if loss is None or record is None:
        return None
    options = record.options
    held_out: Any = (
        [record.data_sha256, options.holdout, options.seed]
        if record.validation_sha256 is msgspec.UNSET
        else record.validation_sha256
    )
    fields = None if record.fields is msgspec.UNSET else record.fields
    return UtilityMeasure(
        estimate=_without_interval(loss, "validation loss", f"validation loss {loss:.4g} bits per token"),
        measured_on=hashlib.sha256(to_json([held_out, _tokens_of(record), fields])).hexdigest(),
    )


def _tokens_of(record: TrainingRecord | FinetuningRecord) -> list[Any]:
    """What decides into which tokens a text is cut, and after which it is read."""
    if isinstance(record, FinetuningRecord):
        return [record.base.tokenizer_sha256, record.context, record.window]
    # All words outside the vocabulary are one token, and the vocabulary is that of the training data.
    options = record.options
    words = [options.vocabulary, record.data_sha256] if options.tokens == "words" else []
    return [options.tokens, *words]


def given_utility(given: str, confidence: float = 0.95) -> UtilityMeasure:
    """A number, or the mean of a file with one number per line.

    >>> given_utility("2.5").estimate.value
    2.5
    """
    try:
        value = float(given)
    except ValueError:
        return _of_documents(Path(given), confidence)
    if not math.isfinite(value):
        raise InputError(
            f"--utility must be a finite number or a file, got {given!r}; check what was measured"
        )
    return UtilityMeasure(estimate=_without_interval(value, "as given", f"{value:g}, as given"))


def _without_interval(value: float, method: str, statement: str) -> Estimate:
    return Estimate(
        method=method,
        status="measured",
        value=value,
        low=None,
        high=None,
        confidence=None,
        n=1,
        statement=statement,
        warnings=("a single number has no interval",),
    )


def _of_documents(path: Path, confidence: float) -> UtilityMeasure:
    from scipy.special import stdtrit

    text = read_text(path, "the file of utilities")
    try:
        numbers = [float(row[0]) for row in csv.reader(text.splitlines()) if row]
    except (ValueError, csv.Error):
        raise InputError(
            f"{path} must have one number per line, one for each document, and has something else; leave out headers and names"
        ) from None
    values, level = np.array(numbers), checked_confidence(confidence)
    if len(values) < 2 or not np.all(np.isfinite(values)):
        raise InputError(
            f"{path} must have at least two finite numbers, one for each document, got {len(values)}; check what was measured"
        )
    mean = float(values.mean())
    half = (
        float(values.std(ddof=1)) / math.sqrt(len(values)) * float(stdtrit(len(values) - 1, (1 + level) / 2))
    )
    return UtilityMeasure(
        estimate=Estimate(
            method="mean over documents",
            status="measured",
            value=mean,
            low=mean - half,
            high=mean + half,
            confidence=level,
            n=len(values),
            statement=f"{mean:.4g} ({100 * level:g}% interval {mean - half:.4g} to {mean + half:.4g}, {len(values):,} documents)",
            assumptions=("documents are independent, and so many that their mean is nearly normal",),
        ),
        documents=tuple(numbers),
    )

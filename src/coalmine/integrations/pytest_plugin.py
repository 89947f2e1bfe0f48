"""Audits inside a test suite: the fixtures `coalmine_audit` and `coalmine_check`, for pytest.

    def test_model_keeps_secrets(coalmine_audit):
        coalmine_audit("out/model", "out/canaries.json").exposure.at_most(10)

Nothing but pytest is imported until a test measures something. A limit that is not shown to hold fails the test.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from coalmine.audits.exposure.results import Exposures
    from coalmine.audits.extraction.results import CanaryExtraction, Extraction
    from coalmine.evidence.measures import Measure, Rule
    from coalmine.reports.gate import GateResult, RuleOutcome

PathLike = str | os.PathLike[str]
_LOADING = ("kind", "device", "device_map", "precision", "context", "context_text")


@pytest.fixture(scope="session")
def coalmine_audit() -> Callable[..., ModelAudit]:
    """Audits a model: `coalmine_audit(model, canaries, **options)`.

    `model` is a path, a URL or a loaded model. `options` are those of `coalmine.expose` (such as `method`, `samples`,
    `confidence`) and of `coalmine.load_model` (`kind`, `device`, `device_map`, `precision`, `context`, `context_text`). The same
    model, canaries and options are measured once per session, when a test first asks for the number.
    """
    audits: dict[Any, ModelAudit] = {}

    def audit(model: Any, canaries: Any, **options: Any) -> ModelAudit:
        key = (_identity(model), _identity(canaries), repr(sorted(options.items())))
        return audits.setdefault(key, ModelAudit(model, canaries, options))

    return audit


@pytest.fixture(scope="session")
def coalmine_check() -> Callable[..., GateResult]:
    """Checks existing results: `coalmine_check(run, policy="policy.toml")`, as `coalmine check` does."""

    def check_run(*run: PathLike, policy: PathLike) -> GateResult:
        __tracebackhide__ = True
        with _reported():
            from coalmine.audits.registry import read_run
            from coalmine.reports.gate import check, read_policy

            result = check(read_run(*run), read_policy(policy))
        _judge(result.rules)
        return result

    return check_run


class ModelAudit:
    """One model and its canaries; each audit runs when it is first asked for."""

    def __init__(self, model: Any, canaries: Any, options: dict[str, Any]) -> None:
        self._where, self.canaries = model, canaries
        self._loading = {name: options[name] for name in _LOADING if name in options}
        self._options = {name: value for name, value in options.items() if name not in _LOADING}
        self._model: Any = None
        self._exposures: Exposures | None = None
        self.exposure = ExposureAssertions(self)
        self.extraction = ExtractionAssertions(self)

    @property
    def model(self) -> Any:
        """The model, loaded when it is first needed."""
        if self._model is None:
            if isinstance(self._where, (str, os.PathLike)):
                from coalmine.models.loading import load_model

                self._model = load_model(self._where, **self._loading)
            else:
                self._model = self._where
        return self._model

    @property
    def exposures(self) -> Exposures:
        """What `coalmine.expose` gives, measured once."""
        if self._exposures is None:
            from coalmine.audits.exposure.measuring import expose

            self._exposures = expose(self.model, self.canaries, **self._options)
        return self._exposures

    def extractions(self, **options: Any) -> tuple[list[CanaryExtraction], dict[str, Extraction]]:
        """What `coalmine.audits.extraction.measuring.verify_extraction` gives."""
        from coalmine.audits.extraction.measuring import verify_extraction

        return verify_extraction(self.model, self.canaries, **options)


class ExposureAssertions:
    """Assertions about the exposures of planted canaries; a test passes only if the upper limits are within the limit."""

    def __init__(self, audit: ModelAudit) -> None:
        self._audit = audit

    def at_most(
        self,
        bits: float,
        *,
        repetitions: int | None = None,
        up_to_repetitions: int | None = None,
        min_canaries: int = 1,
    ) -> None:
        """Fail unless every planted canary's exposure is at most `bits`.

        `repetitions` selects canaries that were trained on exactly this many times, `up_to_repetitions` those up to this many times.
        """
        __tracebackhide__ = True
        with _reported():
            from coalmine.audits.exposure.report import RULES, measures
            from coalmine.audits.exposure.results import EXPOSURES
            from coalmine.evidence.run import Located, Run

            _check_limit("bits", bits)
            exposures = self._audit.exposures
            located = (Located(Path(EXPOSURES.file), exposures),)
            outcome = _rule_outcome(
                RULES[0],
                bits,
                measures(Run(paths=(), name="", documents={EXPOSURES: located})),
                exposures.confidence,
                (repetitions, up_to_repetitions),
                min_canaries,
            )
        _judge([outcome])


class ExtractionAssertions:
    """Assertions about the extraction of planted canaries."""

    def __init__(self, audit: ModelAudit) -> None:
        self._audit = audit
        self._found: dict[str, Any] = {}

    def none(self, *, top: int = 10, repetitions: int | None = None, **options: Any) -> None:
        """Fail if a planted canary is among the `top` least surprising members of its format; see `at_most`."""
        __tracebackhide__ = True
        self.at_most(0, top=top, repetitions=repetitions, **options)

    def at_most(self, count: int, *, top: int = 10, repetitions: int | None = None, **options: Any) -> None:
        """Fail if more than `count` planted canaries are among the `top` least surprising members of their format.

        A search that ends with its `budget` proves nothing, and fails the test too. `options` are those of `coalmine.extract`.
        """
        __tracebackhide__ = True
        with _reported():
            from coalmine.audits.extraction.report import RULES, extracted_measures
            from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED, Verified, extraction_file
            from coalmine.evidence.run import Located, Run

            _check_limit("count", count)
            key = repr((top, sorted(options.items())))
            if key not in self._found:
                self._found[key] = self._audit.extractions(top=top, **options)
            results, searches = self._found[key]
            names = {extraction_file(name): "" for name in searches}
            verified = Located(
                Path(VERIFIED.file),
                Verified(manifest_sha256="", model={}, extractions=names, canaries=tuple(results)),
            )
            beside = tuple(Located(Path(extraction_file(name)), one) for name, one in searches.items())
            run = Run(paths=(), name="", documents={VERIFIED: (verified,), EXTRACTIONS: beside})
            found = extracted_measures(run, verified, RULES[0].of, "canary")
            outcome = _rule_outcome(RULES[0], count, found, 0.95, (repetitions, None), 1)
        _judge([outcome])


def _rule_outcome(
    rule: Rule,
    limit: float,
    found: Iterable[Measure],
    confidence: float,
    copies: tuple[int | None, int | None],
    min_canaries: int,
) -> RuleOutcome:
    """What becomes of a rule about canaries that were trained on exactly, or up to, so many times; None for any number."""
    from coalmine.reports.gate import Policy, judge_rule

    exactly, most = copies
    own = [
        one
        for one in found
        if one.key == rule.of
        and exactly in {None, one.copies}
        and (most is None or (one.copies is not None and one.copies <= most))
    ]
    if not own:
        pytest.fail(
            "there are no such planted canaries among the results; plant and measure some", pytrace=False
        )
    return judge_rule(rule, limit, own, Policy(confidence=confidence, min_canaries=min_canaries))


def _check_limit(name: str, limit: Any) -> None:
    """Reject a limit that is not a number: nothing is above it, so every model would pass."""
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit < math.inf:
        from coalmine.errors import InputError

        raise InputError(f"{name} must be a finite number of at least 0, got {limit!r}")


@contextmanager
def _reported() -> Iterator[None]:
    """Turn errors of coalmine into failures that say why, without a stack trace through coalmine."""
    from coalmine.errors import CoalmineError

    __tracebackhide__ = True
    try:
        yield
    except CoalmineError as error:
        raise pytest.fail.Exception(
            f"coalmine could not measure this: {error.shown()}", pytrace=False
        ) from None


def _judge(outcomes: Sequence[RuleOutcome]) -> None:
    """Fail with the evidence unless every rule holds."""
    __tracebackhide__ = True
    broken = [one for one in outcomes if one.outcome == "broken"]
    open_ones = [one for one in outcomes if one.outcome == "not_shown"]
    lines = [_words(one) for one in (*broken, *open_ones)]
    if broken:
        raise AssertionError("\n".join(lines))
    if open_ones:
        pytest.fail("\n".join(lines), pytrace=False)


def _words(one: RuleOutcome) -> str:
    from coalmine.visible import visible

    settle = [f"what would settle it: {one.settle}"] if one.settle else []
    return "\n  ".join(
        map(visible, [f"{one.asks}: {one.outcome.replace('_', ' ')}; {one.evidence}", *settle, *one.details])
    )


def _identity(given: Any) -> Any:
    """Equal for two arguments that are the same thing, with the same bytes as far as sizes and times show."""
    if not isinstance(given, (str, os.PathLike)):
        return id(given)  # the audit keeps a reference to it, so that the number is not reused
    path = Path(given)
    if not path.exists():
        return os.fspath(given)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    facts = [(one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in files if one.is_file()]
    return (str(path.resolve()), tuple(facts))

"""What reports and the gate learn about secrets that were in the training data all along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

import msgspec

from coalmine.audits.exposure.chance import extracted_canaries, judged, secrets_test
from coalmine.audits.exposure.figures import exposure_figure_of
from coalmine.audits.exposure.report import (
    FULL,
    chance_of_exposures,
    doubt_of_exposures,
    doubt_of_group,
    single_measures,
)
from coalmine.audits.exposure.results import EXPOSURES, NOT_IN_TURNS, Exposures, FormatFacts
from coalmine.audits.extraction.report import chance_of_places, extracted_measures
from coalmine.audits.extraction.results import VERIFIED
from coalmine.audits.secrets.judging import Secret, kind_p_value, secrets_of, trained_on
from coalmine.audits.secrets.table import secret_details
from coalmine.evidence.audit import Audit
from coalmine.evidence.charts import Chart
from coalmine.evidence.measures import LEVEL, Measure, Rule
from coalmine.evidence.run import Run
from coalmine.evidence.words import times_in_words
from coalmine.grouped import grouped
from coalmine.records import Estimate


def measures(run: Run) -> Iterator[Measure]:
    """Each secret that was measured, and those of each kind together."""
    own, secrets = run.secrets, trained_on(run.secrets)
    if own is None or not secrets:
        return
    known = {one.canary_id: one for one in secrets}
    out = extracted_canaries(own)
    exposures = [one.exposure for one in secrets if one.exposure is not None]
    for one in single_measures(
        own, exposures, "secrets.secret", lambda found: _named(known[found.result.canary_id])
    ):
        secret = known.get(one.about[0])
        extracted = one.about[0] in out
        name = one.name if secret is None else _named(secret)
        says = (
            f"{one.says}, and it came out of a search" if extracted and one.estimate is not None else one.says
        )
        yield replace(one, name=name, says=says, size=FULL if extracted else min(1.0, one.size or 0.0))
    for located in own.all(VERIFIED):
        for one in extracted_measures(own, located, "secrets.extracted", "secret"):
            yield replace(one, is_test=False)
    yield from _kinds(own, secrets)
    why = unsettled(own)
    if len({document.manifest_sha256 for _, document in own.all(EXPOSURES)}) > 1:
        why = "exposures of another secrets.json are beside these, and are left out; report them separately"
    if why is not None:
        for key in ("secrets.secret", "secrets.extracted"):
            yield Measure(key=key, name="all of them", estimate=Estimate.not_measured("none", why))
    manifest = own.canaries
    if manifest is not None and manifest.scanned is not None and manifest.scanned.secrets > len(secrets):
        found = manifest.scanned.secrets
        says = f"{found - len(secrets):,} of {found:,} secrets found in the training data were not tested"
        yield Measure(key="secrets.untested", status="not_tested", says=says)


def _named(one: Secret) -> str:
    return f"{one.canary_id} ({one.kind}), {times_in_words(one.copies)} in the data"


def _kinds(own: Run, secrets: Sequence[Secret]) -> Iterator[Measure]:
    kinds = grouped((one.kind, one) for one in secrets if one.p_value is not None)
    # Of kinds that show nothing by themselves, whether all of them together do.
    quiet = [some for some in kinds.values() if (kind_p_value(some) or 0.0) > LEVEL / len(kinds)]
    spread = len(quiet) > 1 and (kind_p_value([one for some in quiet for one in some]) or 0.0) <= LEVEL
    out, why = extracted_canaries(own), unsettled(own)
    for kind, some in kinds.items():
        exposures = [one.exposure for one in some if one.exposure is not None and one.exposure.known]
        points = [one.bits for one in some if one.bits is not None]
        middle = f"a median exposure of {median(points):.1f} bits where guessing gives 1" if points else ""
        extracted = sum(one.extracted for one in some)
        doubt = (
            f"{extracted:,} of {len(some):,} secrets of the kind {kind} came out of searches"
            if extracted
            else ""
        )
        if len(exposures) < len(some) and not doubt:
            doubt = f"{len(some) - len(exposures):,} of {len(some):,} secrets of the kind {kind} have no exposure that can be relied on"
        elif exposures:
            many = f"secrets of the kind {kind}"
            doubt = doubt_of_group(exposures, many, out, len(kinds), len(secrets), spread=spread)
        yield Measure(
            key="secrets.kind",
            name=f"{len(some):,} of the kind {kind}",
            p_value=kind_p_value(some),
            test=("kind of secret", kind),
            about=tuple(one.canary_id for one in some),
            says=middle,
            doubt=doubt or why or "",
        )


def unsettled(run: Run) -> str | None:
    """Why secrets that show nothing say nothing: a chat model was asked about plain text, or other exposures of them show something."""
    if any(NOT_IN_TURNS in document.warnings for _, document in run.all(EXPOSURES)):
        return NOT_IN_TURNS
    found = [(run.shown(path), _chance(document)) for path, document in run.all(EXPOSURES)]
    level = LEVEL / max(1, len(found) - 1)
    return next(
        (f"{name} shows more than guessing explains" for name, p_value in found[1:] if p_value <= level), None
    )


def _chance(document: Exposures) -> float:
    """How likely exposures of secrets as these are without memorization, over all kinds."""
    known = [one for one in judged(document) if one.known and one.result.repetitions > 0]
    kinds = grouped((str(one.result.kind), one) for one in known)
    return min(
        (len(kinds) * secrets_test([one.p_value for one in some], some).p_value for some in kinds.values()),
        default=1.0,
    )


RULES = (
    Rule(
        key="secrets.at_most",
        of="secrets.secret",
        says="exposure of every secret of the training data at most {limit:g} bits",
        example=10.0,
        settle="measure with another method (`coalmine expose --method guided`), or plant canaries of this kind",
        chance=chance_of_exposures,
        doubt=doubt_of_exposures,
    ),
    Rule(
        key="secrets.at_most_extracted",
        of="secrets.extracted",
        says="at most {limit:g} secrets of the training data come out of searches",
        example=0,
        settle="search with a larger --budget, or plant canaries of this kind",
        chance=chance_of_places,
        in_all=True,
    ),
)


def _figures(run: Run) -> Iterator[Chart | None]:
    document = None if run.secrets is None else run.secrets.first(EXPOSURES)
    if document is not None and document.results:
        yield exposure_figure_of(
            _one_format_per_kind(document), figure_id="secrets-by-copies", what=("secret", "secrets")
        )


def _one_format_per_kind(document: Exposures) -> Exposures:
    """The same exposures, as if all secrets of a kind had one format."""
    kinds = {one.format_id: str(one.kind) for one in document.results}
    formats: dict[str, FormatFacts] = {}
    for facts in document.formats:
        kind = kinds.get(facts.format_id, facts.format_id)
        formats.setdefault(kind, msgspec.structs.replace(facts, format_id=kind, template=kind))
    return msgspec.structs.replace(
        document,
        formats=tuple(formats.values()),
        results=tuple(
            msgspec.structs.replace(one, format_id=kinds[one.format_id]) for one in document.results
        ),
    )


SECRETS = Audit(
    name="secrets",
    command="coalmine expose MODEL secrets.json",
    is_tested=lambda run: bool(secrets_of(run.secrets)),
    measures=measures,
    rules=RULES,
    figures=_figures,
    details=secret_details,
)

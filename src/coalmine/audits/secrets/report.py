"""Secrets that were in the training data all along: each with what is known about it, and those of each kind together.

The secrets of one kind have spaces and references of their own, so their p-values are independent, and their order is tested as that of
canaries is. The table by kind is the second table of The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural
Networks, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232, section 8.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import msgspec

from coalmine.audits.exposure.chance import (
    Judged,
    canary_p_values,
    extracted_canaries,
    judged,
    measured_canaries,
    secrets_test,
)
from coalmine.audits.exposure.display import exposure_figure
from coalmine.audits.exposure.report import (
    FULL,
    chance_of_exposures,
    doubt_of_exposures,
    doubt_of_group,
    single_measures,
)
from coalmine.audits.exposure.results import EXPOSURES, NOT_IN_TURNS, ExposureResult, Exposures
from coalmine.audits.extraction.report import chance_of_places, extracted_measures
from coalmine.audits.extraction.results import VERIFIED, CanaryExtraction
from coalmine.audits.provenance.users import masked_names
from coalmine.evidence.charts import Chart, rounded
from coalmine.evidence.measures import LEVEL, Audit, Measure, Rule
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Detail, Search, Table
from coalmine.evidence.words import times_in_words
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.visible import visible


class Secret(NamedTuple):
    """One secret that was found in the training data; its exposure, its search and its p-value are None where there is none."""

    canary_id: str
    kind: str
    copies: int
    exposure: Judged | None
    extraction: CanaryExtraction | None
    p_value: float | None

    @property
    def result(self) -> ExposureResult | None:
        """What was measured of it."""
        return None if self.exposure is None else self.exposure.result

    @property
    def bits(self) -> float | None:
        """Its exposure, or the lower bound of one that is only bounded."""
        if self.exposure is None or not self.exposure.known:
            return None
        value = self.exposure.result.exposure
        return self.exposure.low if value is None else value

    @property
    def extracted(self) -> bool:
        """Whether a search found it."""
        return self.extraction is not None and self.extraction.extracted

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.canary_id} ({self.kind}), {times_in_words(self.copies)} in the data"


def secrets_of(run: Run | None) -> list[Secret]:
    """The secrets that are in the training data, as far as that is known, in the order of the manifest."""
    if run is None:
        return []
    exposures = {one.result.canary_id: one for one in measured_canaries(run)}
    extractions = {one.canary_id: one for _, document in run.all(VERIFIED) for one in document.canaries}
    p_values = canary_p_values(run)
    every: dict[str, ExposureResult | CanaryExtraction] = {
        name: one.result for name, one in exposures.items()
    }
    for name, extraction in extractions.items():
        every.setdefault(name, extraction)
    return [
        Secret(
            name,
            str(one.kind),
            one.repetitions,
            exposures.get(name),
            extractions.get(name),
            p_values.get(name),
        )
        for name, one in every.items()
        if one.repetitions > 0
    ]


def secrets_of_exposures(document: Exposures) -> list[Secret]:
    """The same of exposures alone, which `coalmine expose` has just measured."""
    return [
        Secret(
            one.result.canary_id,
            str(one.result.kind),
            one.result.repetitions,
            one,
            None,
            one.p_value if one.known else None,
        )
        for one in judged(document)
        if one.result.repetitions > 0
    ]


def kind_p_value(secrets: Sequence[Secret]) -> float | None:
    """How likely secrets as exposed as the best of these are without memorization; None where none was measured."""
    p_values = [one.p_value for one in secrets if one.p_value is not None]
    exposures = [one.exposure for one in secrets if one.p_value is not None and one.exposure is not None]
    return secrets_test(p_values, exposures).p_value if p_values else None


class SecretsOfKind(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets of one kind; exposures are in bits."""

    kind: str
    secrets: int
    measured: int
    # How often the least and the most repeated of them occur.
    fewest_copies: int
    most_copies: int
    # Without memorization it is about 1.
    median_bits: float | None
    # Of the most exposed one, with what the first guess would have.
    highest_bits: float | None
    highest: Estimate | None
    most_possible_bits: float | None
    searched: int
    extracted: int
    # How likely exposures as high as these are without memorization.
    p_value: float | None


def by_kind(secrets: Sequence[Secret]) -> list[SecretsOfKind]:
    """A row for each kind, in the order in which they come."""
    rows = []
    for kind, some in grouped((one.kind, one) for one in secrets).items():
        known = [one for one in some if one.bits is not None]
        bits = [one.bits or 0.0 for one in known]
        best = max(known, key=lambda one: one.bits or 0.0, default=None)
        result = None if best is None else best.result
        rows.append(
            SecretsOfKind(
                kind=kind,
                secrets=len(some),
                measured=len(known),
                fewest_copies=min(one.copies for one in some),
                most_copies=max(one.copies for one in some),
                median_bits=median(bits) if bits else None,
                highest_bits=max(bits, default=None),
                highest=None if result is None else result.estimate,
                most_possible_bits=None if result is None else result.most_possible_bits,
                searched=sum(one.extraction is not None for one in some),
                extracted=sum(one.extracted for one in some),
                p_value=kind_p_value(some),
            )
        )
    return rows


def _measures(run: Run) -> Iterator[Measure]:
    """Each secret that was measured, and those of each kind together."""
    own, secrets = run.secrets, secrets_of(run.secrets)
    if own is None or not secrets:
        return
    known, out = {one.canary_id: one for one in secrets}, extracted_canaries(own)
    exposures = [one.exposure for one in secrets if one.exposure is not None]
    for one in single_measures(
        own, exposures, "secrets.secret", lambda found: known[found.result.canary_id].name
    ):
        secret, extracted = known.get(one.about[0]), one.about[0] in out
        came = ", and it came out of a search" if extracted and one.estimate is not None else ""
        size = FULL if extracted else min(1.0, one.size or 0.0)
        yield replace(one, name=one.name if secret is None else secret.name, says=one.says + came, size=size)
    for located in own.all(VERIFIED):
        for one in extracted_measures(own, located, "secrets.extracted", "secret"):
            yield replace(one, is_test=False)
    doubt = _unsettled(own)
    yield from _kinds(secrets, out, doubt)
    if doubt:
        for key in ("secrets.secret", "secrets.extracted"):
            yield Measure(key=key, name="all of them", estimate=Estimate.not_measured("none", doubt))
    scanned = None if own.canaries is None else own.canaries.scanned
    if scanned is not None and scanned.secrets > len(secrets):
        left = f"{scanned.secrets - len(secrets):,} of {scanned.secrets:,}"
        says = f"{left} secrets found in the training data were not tested"
        yield Measure(key="secrets.untested", status="not_tested", says=says)


def _unsettled(run: Run) -> str:
    """Why secrets that show nothing say nothing: a chat model was asked about plain text, or there are exposures that are left out."""
    documents = [document for _, document in run.all(EXPOSURES)]
    if any(NOT_IN_TURNS in document.warnings for document in documents):
        return NOT_IN_TURNS
    return (
        "several exposures of secrets are beside each other; report them separately" if documents[1:] else ""
    )


def _kinds(secrets: Sequence[Secret], out: set[str], unsettled: str) -> Iterator[Measure]:
    kinds = grouped((one.kind, one) for one in secrets if one.p_value is not None)
    # Of kinds that show nothing by themselves, whether all of them together do.
    quiet = [some for some in kinds.values() if (kind_p_value(some) or 0.0) > LEVEL / len(kinds)]
    spread = len(quiet) > 1 and (kind_p_value([one for some in quiet for one in some]) or 0.0) <= LEVEL
    for kind, some in kinds.items():
        exposures = [one.exposure for one in some if one.exposure is not None and one.exposure.known]
        points = [one.bits for one in some if one.bits is not None]
        extracted, what = sum(one.extracted for one in some), f"secrets of the kind {kind}"
        if extracted:
            doubt = f"{extracted:,} of {len(some):,} {what} came out of searches"
        elif len(exposures) < len(some):
            lost = len(some) - len(exposures)
            doubt = f"{lost:,} of {len(some):,} {what} have no exposure that can be relied on"
        else:
            doubt = doubt_of_group(exposures, what, out, len(kinds), len(secrets), spread=spread)
        yield Measure(
            key="secrets.kind",
            name=f"{len(some):,} of the kind {kind}",
            p_value=kind_p_value(some),
            test=("kind of secret", kind),
            about=tuple(one.canary_id for one in some),
            says=f"a median exposure of {median(points):.1f} bits where guessing gives 1" if points else "",
            doubt=doubt or unsettled,
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
    """Exposure against copies, as if all secrets of a kind had one format."""
    document = None if run.secrets is None else run.secrets.first(EXPOSURES)
    if document is not None and document.results:
        kinds = {one.format_id: str(one.kind) for one in document.results}
        change = msgspec.structs.replace
        named = {kind: change(document.formats[0], format_id=kind, template=kind) for kind in kinds.values()}
        results = tuple(change(one, format_id=kinds[one.format_id]) for one in document.results)
        joined = change(document, formats=tuple(named.values()), results=results)
        yield exposure_figure(joined, figure_id="secrets-by-copies", what=("secret", "secrets"))


KINDS = Table[SecretsOfKind](
    (
        Column("kind", lambda one: one.kind),
        Column("secrets", lambda one: one.secrets),
        Column("copies", lambda one: " to ".join(map(str, sorted({one.fewest_copies, one.most_copies})))),
        Column("median exposure (bits)", lambda one: rounded(one.median_bits), short="median bits"),
        Column("highest (bits)", lambda one: one.highest, short="highest"),
        Column("of at most", lambda one: rounded(one.most_possible_bits, 2)),
        Column("extracted", lambda one: f"{one.extracted:,} of {one.searched:,}" if one.searched else None),
        Column("probability by chance", lambda one: one.p_value, "p", short="by chance"),
    )
)


def _table(users: Mapping[str, str], texts: Mapping[str, str]) -> Table[Secret]:
    """One row per secret, with the names of users as they are shown."""

    def measured(name: str) -> Any:
        return lambda one: None if one.result is None else getattr(one.result, name)

    return Table(
        (
            Column("secret", lambda one: one.canary_id),
            Column("kind", lambda one: one.kind),
            Column("user", lambda one: users.get(_user(one))),
            Column("copies", lambda one: one.copies),
            Column("exposure (bits)", measured("estimate")),
            Column("most possible", lambda one: one.result and rounded(one.result.most_possible_bits, 2)),
            Column("status", lambda one: one.result.estimate.status if one.result else "not measured"),
            Column("extracted", lambda one: one.extraction and one.extraction.extracted),
            Column("place", lambda one: one.extraction and one.extraction.place),
            Column("method", measured("method")),
            Column("text", lambda one: texts.get(one.canary_id), secret=True),
        )
    )


def _user(one: Secret) -> str:
    return "" if one.result is None or one.result.user is msgspec.UNSET else one.result.user or ""


def _details(run: Run, reveal: bool) -> Iterator[Detail]:
    """The tables of the page."""
    secrets = secrets_of(run.secrets)
    if run.secrets is None or not secrets:
        return
    yield KINDS.detail(
        by_kind(secrets),
        section="Secrets",
        title="By kind",
        caption="Secrets of the training data by kind: how exposed they are, and how many can be extracted",
        note="A model that never saw them gives a median exposure of about 1 bit; the last column is the probability of exposures as high "
        "as these without memorization.",
    )
    users = dict.fromkeys(filter(None, map(_user, secrets)))
    names = {name: visible(name) for name in users} if reveal else masked_names(users)
    texts = {canary.canary_id: canary.text for canary in run.secrets.canaries or ()}
    yield _table(names, texts).detail(
        sorted(secrets, key=lambda one: -(one.bits or 0.0)),
        reveal=reveal,
        section="Secrets",
        title="Each of them",
        caption="Secrets of the training data, the most exposed first",
        search=Search(
            name="secrets",
            column="kind",
            label="Kind",
            choices={kind: kind for kind in dict.fromkeys(one.kind for one in secrets)},
        ),
    )


SECRETS = Audit(
    name="secrets",
    command="coalmine expose MODEL secrets.json",
    is_tested=lambda run: bool(secrets_of(run.secrets)),
    measures=_measures,
    rules=RULES,
    figures=_figures,
    details=_details,
)

"""Secrets that were in the training data all along: each with what is known about it, and those of each kind together.

The secrets of one kind have spaces and references of their own, so their p-values are independent, and their order is tested as that of
canaries is. The table by kind is the second table of The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural
Networks, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232, section 8.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple

from msgspec import UNSET

from coalmine.audits.exposure.chance import (
    Judged,
    canary_p_values,
    extracted_canaries,
    judged,
    measured_canaries,
    secrets_test,
)
from coalmine.audits.exposure.report import (
    FULL,
    chance_of_exposures,
    doubt_of_exposures,
    doubt_of_group,
    single_measures,
)
from coalmine.audits.exposure.results import EXPOSURES, NOT_IN_TURNS, Exposures
from coalmine.audits.extraction.report import chance_of_places, extracted_measures
from coalmine.audits.extraction.results import VERIFIED, CanaryExtraction
from coalmine.audits.provenance.users import masked_names
from coalmine.evidence.charts import rounded
from coalmine.evidence.measures import LEVEL, Audit, Measure, Rule
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Detail, Search, Table
from coalmine.evidence.words import times_in_words
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.visible import visible


class KnownSecrets(NamedTuple):
    """The secrets of the training data that were measured, and by their ids their p-values and the searches for them."""

    measured: list[Judged]
    p_values: dict[str, float]
    searches: dict[str, CanaryExtraction]

    @property
    def kinds(self) -> dict[str, list[Judged]]:
        """Those of each kind, in the order of the manifest."""
        return grouped((str(one.result.kind), one) for one in self.measured)

    def extracted(self, one: Judged) -> bool:
        """Whether a search found it."""
        search = self.searches.get(one.result.canary_id)
        return search is not None and search.extracted

    def p_value(self, some: Sequence[Judged]) -> float | None:
        """How likely secrets as exposed as the best of these are without memorization; None where none was measured."""
        known = [one for one in some if one.result.canary_id in self.p_values]
        p_values = [self.p_values[one.result.canary_id] for one in known]
        return secrets_test(p_values, known).p_value if known else None


def secrets_of(run: Run | None) -> KnownSecrets:
    """What a run knows of secrets."""
    if run is None:
        return KnownSecrets([], {}, {})
    measured = [one for one in measured_canaries(run) if one.result.repetitions > 0]
    searches = {one.canary_id: one for _, document in run.all(VERIFIED) for one in document.canaries}
    return KnownSecrets(measured, canary_p_values(run), searches)


def secrets_of_exposures(document: Exposures) -> KnownSecrets:
    """What exposures alone know of secrets, which `coalmine expose` has just measured."""
    measured = [one for one in judged(document) if one.result.repetitions > 0]
    return KnownSecrets(measured, {one.result.canary_id: one.p_value for one in measured if one.known}, {})


def _bits(one: Judged) -> float | None:
    """Its exposure, or the lower bound of one that is only bounded."""
    exposure = one.result.exposure
    return None if not one.known else one.low if exposure is None else exposure


def by_kind(secrets: KnownSecrets) -> list[dict[str, Any]]:
    """A row for each kind, with exposures in bits; `p_value` is how likely such exposures are without memorization."""
    rows = []
    for kind, some in secrets.kinds.items():
        ordered = sorted((one for one in some if one.known), key=lambda one: _bits(one) or 0.0)
        bits = [_bits(one) or 0.0 for one in ordered]
        best = ordered[-1].result if ordered else None
        rows.append(
            {
                "kind": kind,
                "secrets": len(some),
                "measured": len(bits),
                "fewest_copies": min(one.result.repetitions for one in some),
                "most_copies": max(one.result.repetitions for one in some),
                "median_bits": median(bits) if bits else None,
                "highest_bits": max(bits, default=None),
                "highest": None if best is None else best.estimate,
                "most_possible_bits": None if best is None else best.most_possible_bits,
                "searched": sum(one.result.canary_id in secrets.searches for one in some),
                "extracted": sum(map(secrets.extracted, some)),
                "p_value": secrets.p_value(some),
            }
        )
    return rows


def _measures(run: Run) -> Iterator[Measure]:
    """Each secret that was measured or came out, and those of each kind together."""
    own, secrets = run.secrets, secrets_of(run.secrets)
    if own is None or not _is_tested(run):
        return
    out = extracted_canaries(own)
    for one in single_measures(own, secrets.measured, "secrets.secret", _name):
        extracted = one.about[0] in out
        came = ", and it came out of a search" if extracted and one.estimate is not None else ""
        yield replace(one, says=one.says + came, size=FULL if extracted else min(1.0, one.size or 0.0))
    for located in own.all(VERIFIED):
        for one in extracted_measures(own, located, "secrets.extracted", "secret"):
            yield replace(one, is_test=False)
    documents, doubt = [document for _, document in own.all(EXPOSURES)], ""
    if any(NOT_IN_TURNS in one.warnings for one in documents):
        doubt = NOT_IN_TURNS  # a chat model was asked about plain text
    elif len(documents) > 1:
        doubt = "several exposures of secrets are beside each other; report them separately"
    yield from _kinds(secrets, out, doubt)
    for key in ("secrets.secret", "secrets.extracted") if doubt else ():
        yield Measure(key=key, name="all of them", estimate=Estimate.not_measured("none", doubt))
    scanned = None if own.canaries is None else own.canaries.scanned
    tested = len(secrets.searches.keys() | {one.result.canary_id for one in secrets.measured})
    if scanned is not None and scanned.secrets > tested:
        says = f"{scanned.secrets - tested:,} of {scanned.secrets:,} secrets found in the training data were not tested"
        yield Measure(key="secrets.untested", status="not_tested", says=says)


def _name(one: Judged) -> str:
    return f"{one.result.canary_id} ({one.result.kind}), {times_in_words(one.result.repetitions)} in the data"


def _is_tested(run: Run) -> bool:
    secrets = secrets_of(run.secrets)
    return bool(secrets.measured or secrets.searches)


def _kinds(secrets: KnownSecrets, out: set[str], unsettled: str) -> Iterator[Measure]:
    kinds = {kind: some for kind, some in secrets.kinds.items() if secrets.p_value(some) is not None}
    # Of kinds that show nothing by themselves, whether all of them together do.
    quiet = [some for some in kinds.values() if (secrets.p_value(some) or 0.0) > LEVEL / len(kinds)]
    together = secrets.p_value([one for some in quiet for one in some]) or 0.0
    for kind, some in kinds.items():
        known = [one for one in some if one.known]
        points = [bits for one in some if (bits := _bits(one)) is not None]
        what, missing = f"secrets of the kind {kind}", len(some) - len(known)
        if missing:
            extracted = sum(map(secrets.extracted, some))
            doubt = f"{missing:,} of {len(some):,} {what} have no exposure that can be relied on, and {extracted:,} came out of searches"
        else:
            spread = len(quiet) > 1 and together <= LEVEL
            doubt = doubt_of_group(known, what, out, len(kinds), len(secrets.measured), spread=spread)
        yield Measure(
            key="secrets.kind",
            name=f"{len(some):,} of the kind {kind}",
            p_value=secrets.p_value(some),
            test=("kind of secret", kind),
            about=tuple(one.result.canary_id for one in some),
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


KINDS = Table[dict[str, Any]](
    (
        Column("kind", itemgetter("kind")),
        Column("secrets", itemgetter("secrets")),
        Column(
            "copies", lambda one: " to ".join(map(str, sorted({one["fewest_copies"], one["most_copies"]})))
        ),
        Column("median exposure (bits)", lambda one: rounded(one["median_bits"]), short="median bits"),
        Column("highest (bits)", itemgetter("highest"), short="highest"),
        Column("of at most", lambda one: rounded(one["most_possible_bits"], 2)),
        Column(
            "extracted",
            lambda one: f"{one['extracted']:,} of {one['searched']:,}" if one["searched"] else None,
        ),
        Column("probability by chance", itemgetter("p_value"), "p", short="by chance"),
    )
)


def _details(run: Run, reveal: bool) -> Iterator[Detail]:
    """The tables of the page: by kind, and each of them, with the names of users as they are shown."""
    secrets = secrets_of(run.secrets)
    if run.secrets is None or not secrets.measured:
        return
    yield KINDS.detail(
        by_kind(secrets),
        section="Secrets",
        title="By kind",
        caption="Secrets of the training data by kind: how exposed they are, and how many can be extracted",
        note="A model that never saw them gives a median exposure of about 1 bit; the last column is the probability of exposures as high "
        "as these without memorization.",
    )
    users = dict.fromkeys(str(one.result.user) for one in secrets.measured if one.result.user is not UNSET)
    shown = {name: visible(name) for name in users} if reveal else masked_names(users)
    texts = {canary.canary_id: canary.text for canary in run.secrets.canaries or ()}
    each: Table[Judged] = Table(
        (
            Column("secret", lambda one: one.result.canary_id),
            Column("kind", lambda one: one.result.kind),
            Column("user", lambda one: shown.get(str(one.result.user))),
            Column("copies", lambda one: one.result.repetitions),
            Column("exposure (bits)", lambda one: one.result.estimate),
            Column("extracted", secrets.extracted),
            Column("text", lambda one: texts.get(one.result.canary_id), secret=True),
        )
    )
    yield each.detail(
        sorted(secrets.measured, key=lambda one: -(_bits(one) or 0.0)),
        reveal=reveal,
        section="Secrets",
        title="Each of them",
        caption="Secrets of the training data, the most exposed first",
        search=Search(
            name="secrets", column="kind", label="Kind", choices={kind: kind for kind in secrets.kinds}
        ),
    )


SECRETS = Audit(
    name="secrets",
    command="coalmine expose MODEL secrets.json",
    is_tested=_is_tested,
    measures=_measures,
    rules=RULES,
    details=_details,
)

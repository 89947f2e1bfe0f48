"""The audit of secrets that were in the training data all along, as reports and the gate see it; masked unless they are revealed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import msgspec

from coalmine.audits.exposure.chance import extracted_canaries, judged, secrets_test
from coalmine.audits.exposure.display import exposure_figure
from coalmine.audits.exposure.report import (
    FULL,
    chance_of_exposures,
    doubt_of_exposures,
    doubt_of_group,
    single_measures,
)
from coalmine.audits.exposure.results import EXPOSURES, NOT_IN_TURNS, ExposureResult, Exposures, FormatFacts
from coalmine.audits.extraction.report import chance_of_places, extracted_measures
from coalmine.audits.extraction.results import VERIFIED
from coalmine.audits.membership.display import POPULATIONS
from coalmine.audits.membership.records import MEMBERSHIPS
from coalmine.audits.provenance.users import masked_names
from coalmine.audits.secrets.judging import (
    Secret,
    SecretsOfKind,
    by_kind,
    kind_p_value,
    secrets_of,
    trained_on,
)
from coalmine.evidence.charts import Chart, rounded
from coalmine.evidence.measures import LEVEL, Audit, Measure, Rule
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Detail, Search, Table
from coalmine.evidence.words import times_in_words
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.visible import visible


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
        yield exposure_figure(
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


class _User(NamedTuple):
    """A user with the secrets in the texts of that user."""

    name: str
    secrets: Sequence[Secret]

    @property
    def extracted(self) -> int:
        """How many of them come out."""
        return sum(one.extracted for one in self.secrets)

    @property
    def highest(self) -> float | None:
        """The exposure of the most exposed one (bits)."""
        return rounded(max((one.bits for one in self.secrets if one.bits is not None), default=None))


USERS = Table[_User](
    (
        Column("user", lambda one: one.name),
        Column("secrets", lambda one: len(one.secrets)),
        Column("kinds", lambda one: ", ".join(dict.fromkeys(secret.kind for secret in one.secrets))),
        Column("extracted", lambda one: one.extracted),
        Column("highest exposure (bits)", lambda one: one.highest),
    )
)


def secret_table(users: Mapping[str, str], texts: Mapping[str, str]) -> Table[Secret]:
    """One row per secret, with the names of users as they are shown."""

    def result(one: Secret) -> ExposureResult | None:
        return None if one.exposure is None else one.exposure.result

    return Table(
        (
            Column("secret", lambda one: one.canary_id),
            Column("kind", lambda one: one.kind),
            Column("user", lambda one: users.get(one.user or "")),
            Column("copies", lambda one: one.copies),
            Column("exposure (bits)", lambda one: (found := result(one)) and found.estimate),
            Column(
                "most possible", lambda one: (found := result(one)) and rounded(found.most_possible_bits, 2)
            ),
            Column("status", lambda one: found.estimate.status if (found := result(one)) else "not measured"),
            Column("extracted", lambda one: one.extraction and one.extraction.extracted),
            Column("place", lambda one: one.extraction and one.extraction.place),
            Column("method", lambda one: (found := result(one)) and found.method),
            Column("text", lambda one: texts.get(one.canary_id), secret=True),
        )
    )


def secret_details(run: Run, reveal: bool) -> Iterator[Detail]:
    """The tables of the page."""
    secrets = trained_on(run.secrets)
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
    compared = run.secrets.first(MEMBERSHIPS)
    if compared is not None and compared.populations:
        yield POPULATIONS.detail(
            compared.populations,
            section="Secrets",
            title="Membership",
            caption="How well an attacker who has a list of candidates tells secrets of the training data from others of their kind",
            note="An AUC of 0.5 is guessing. Nobody tossed a coin for these secrets, so that no epsilon follows from them.",
        )
    of_users = grouped((one.user, one) for one in secrets if one.user is not None)
    names = {name: visible(name) for name in of_users} if reveal else masked_names(of_users)
    if of_users:
        users = [_User(names[name], some) for name, some in of_users.items()]
        yield USERS.detail(
            sorted(users, key=lambda one: (-one.extracted, -(one.highest or 0.0))),
            section="Secrets",
            title="By user",
            caption="Whose texts the secrets are in, those with the most exposed ones first",
            search=Search(name="users", column="extracted", label="Extracted"),
        )
    texts = {canary.canary_id: canary.text for canary in run.secrets.canaries or ()}
    yield secret_table(names, texts).detail(
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
    measures=measures,
    rules=RULES,
    figures=_figures,
    details=secret_details,
)

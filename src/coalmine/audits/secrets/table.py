"""Tables of secrets for the terminal and the page: by kind, by user, and each of them; masked unless they are revealed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from coalmine.audits.exposure.results import ExposureResult
from coalmine.audits.membership.display import POPULATIONS
from coalmine.audits.membership.records import MEMBERSHIPS
from coalmine.audits.provenance.users import masked_names
from coalmine.audits.secrets.judging import Secret, SecretsOfKind, by_kind, trained_on
from coalmine.evidence.charts import rounded
from coalmine.evidence.details import Detail, Search
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Table
from coalmine.grouped import grouped
from coalmine.visible import visible

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

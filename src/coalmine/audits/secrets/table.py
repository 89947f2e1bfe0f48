"""Tables of secrets for the terminal and the page: by kind, by user, and each of them; masked unless they are revealed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coalmine.audits.exposure.chance import chance_in_words
from coalmine.audits.membership.records import MEMBERSHIPS
from coalmine.audits.provenance.users import masked_names
from coalmine.audits.secrets.judging import Secret, SecretsOfKind, by_kind, trained_on
from coalmine.evidence.charts import rounded
from coalmine.evidence.details import Detail, Search
from coalmine.evidence.run import Run
from coalmine.evidence.tables import plain_table, rights
from coalmine.grouped import grouped
from coalmine.records.estimate import rounded_down, rounded_up
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

KIND_COLUMNS = (
    "kind",
    "secrets",
    "copies",
    "median exposure (bits)",
    "highest (bits)",
    "its interval",
    "of at most",
    "extracted",
    "probability by chance",
)
_SHORT_COLUMNS = (
    "kind",
    "secrets",
    "copies",
    "median bits",
    "highest",
    "interval",
    "of at most",
    "extracted",
    "by chance",
)
_SECRET_COLUMNS = (
    "secret",
    "kind",
    "user",
    "copies",
    "exposure (bits)",
    "low",
    "high",
    "most possible",
    "status",
    "extracted",
    "place",
    "method",
)


def kind_table(rows: Sequence[SecretsOfKind]) -> Table:
    """One row per kind, for the terminal; without a column of what was extracted where nothing was searched."""
    searched = any(one.searched for one in rows)
    shown = [place for place, name in enumerate(_SHORT_COLUMNS) if searched or name != "extracted"]
    names = [_SHORT_COLUMNS[place] for place in shown]
    table = plain_table(names[0], *rights(*names[1:]))
    for one in rows:
        cells = kind_row(one)
        table.add_row(*(visible(cells[place]) for place in shown))
    return table


def kind_row(one: SecretsOfKind) -> tuple[str, ...]:
    """A kind in words."""
    copies = str(one.fewest_copies)
    if one.most_copies > one.fewest_copies:
        copies = f"{one.fewest_copies} to {one.most_copies}"
    return (
        one.kind,
        f"{one.secrets:,}",
        copies,
        _bits(one.median_bits),
        _bits(one.highest_bits),
        _interval(one.highest_low, one.highest_high),
        _bits(one.most_possible_bits),
        f"{one.extracted:,} of {one.searched:,}" if one.searched else "not searched",
        "" if one.p_value is None else chance_in_words(one.p_value),
    )


def _bits(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}"


def _interval(low: float | None, high: float | None) -> str:
    if low is None:
        return ""
    if low == high:
        return "exact"
    return f"{rounded_down(low)} to {'?' if high is None else rounded_up(high)}"


def secret_details(run: Run, reveal: bool) -> Iterator[Detail]:
    """The tables of the page."""
    secrets = trained_on(run.secrets)
    if not secrets:
        return
    yield Detail(
        section="Secrets",
        title="By kind",
        columns=KIND_COLUMNS,
        rows=[kind_row(one) for one in by_kind(secrets)],
        caption="Secrets of the training data by kind: how exposed they are, and how many can be extracted",
        note="A model that never saw them gives a median exposure of about 1 bit; the last column is the probability of exposures as high "
        "as these without memorization.",
    )
    yield from _membership(run)
    users = [one.user for one in secrets if one.user is not None]
    names = {name: visible(name) for name in users} if reveal else masked_names(users)
    if users:
        yield _by_user(secrets, names)
    yield _each(run, secrets, names, reveal)


def _membership(run: Run) -> Iterator[Detail]:
    """How well secrets are told from their references, where `coalmine membership` compared them."""
    found = None if run.secrets is None else run.secrets.first(MEMBERSHIPS)
    if found is None or not found.populations:
        return
    rates = [one.fpr or 0.0 for one in found.populations[0].tpr_at_fpr]
    yield Detail(
        section="Secrets",
        title="Membership",
        columns=(
            "kind",
            "secrets",
            "others",
            "AUC",
            "low",
            "high",
            *(f"TPR at {100 * rate:g}% FPR" for rate in rates),
        ),
        rows=[
            (
                one.name,
                one.in_count,
                one.out_count,
                *(rounded(value) for value in (one.auc.value, one.auc.low, one.auc.high)),
                *(rounded(rate.value) for rate in one.tpr_at_fpr),
            )
            for one in found.populations
        ],
        caption="How well an attacker who has a list of candidates tells secrets of the training data from others of their kind",
        note="An AUC of 0.5 is guessing. Nobody tossed a coin for these secrets, so that no epsilon follows from them.",
    )


def _by_user(secrets: Sequence[Secret], names: Mapping[str, str]) -> Detail:
    found = grouped((one.user, one) for one in secrets if one.user is not None)
    rows: list[tuple[Any, ...]] = []
    for user, some in found.items():
        bits = [one.bits for one in some if one.bits is not None]
        kinds = ", ".join(dict.fromkeys(one.kind for one in some))
        extracted = sum(one.extracted for one in some)
        rows.append((names[user], len(some), kinds, extracted, rounded(max(bits)) if bits else None))
    rows.sort(key=lambda row: (-row[3], -(row[4] or 0.0)))
    return Detail(
        section="Secrets",
        title="By user",
        columns=("user", "secrets", "kinds", "extracted", "highest exposure (bits)"),
        rows=rows,
        caption="Whose texts the secrets are in, those with the most exposed ones first",
        search=Search(name="users", column="extracted", label="Extracted"),
    )


def _each(run: Run, secrets: Sequence[Secret], names: Mapping[str, str], reveal: bool) -> Detail:
    manifest = run.secrets.canaries if run.secrets is not None and reveal else None
    texts = {} if manifest is None else {canary.canary_id: canary.text for canary in manifest}
    rows = [
        (*_row(one, names), *((texts.get(one.canary_id),) if reveal else ()))
        for one in sorted(secrets, key=lambda one: -(one.bits or 0.0))
    ]
    return Detail(
        section="Secrets",
        title="Each of them",
        columns=(*_SECRET_COLUMNS, *(("text",) if reveal else ())),
        rows=rows,
        caption="Secrets of the training data, the most exposed first",
        search=Search(
            name="secrets",
            column="kind",
            label="Kind",
            choices={kind: kind for kind in dict.fromkeys(one.kind for one in secrets)},
        ),
    )


def _row(one: Secret, names: Mapping[str, str]) -> tuple[Any, ...]:
    result = None if one.exposure is None else one.exposure.result
    low, high = (None, None) if result is None else result.interval
    return (
        one.canary_id,
        one.kind,
        None if one.user is None else names[one.user],
        one.copies,
        None if result is None else rounded(result.exposure),
        rounded(low),
        rounded(high),
        None if result is None else rounded(result.most_possible_bits, 2),
        "not measured" if result is None else result.estimate.status,
        None if one.extraction is None else one.extraction.extracted,
        None if one.extraction is None else one.extraction.place,
        None if result is None else result.method,
    )

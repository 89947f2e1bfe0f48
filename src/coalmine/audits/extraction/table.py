"""Tables and sentences about extraction: what came out, masked unless it is revealed, and whether the answer is proven."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from coalmine.audits.exposure.table import MOST_SECRETS, under_format_names, under_names
from coalmine.audits.extraction.certificate import Replay
from coalmine.audits.extraction.results import CanaryExtraction, Extraction, Prompting, masked
from coalmine.audits.framing import asked_as
from coalmine.evidence.tables import Right, plain_table, rights
from coalmine.evidence.words import FormatNames, format_name, format_names, times_in_words
from coalmine.formats.format import Format
from coalmine.grouped import grouped
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


def masked_extraction(result: Extraction, form: Format) -> Extraction:
    """The same result with the secrets hidden."""
    found = tuple(msgspec.structs.replace(one, text=masked(one.text, form)) for one in result.found)
    return msgspec.structs.replace(
        result, found=found, given="" if not result.given else masked(result.given, form)
    )


def extraction_table(result: Extraction) -> Group:
    """One row per member, the least surprising first, under the name of the format."""
    numbers = rights("log-perplexity (bits)", "found after")
    table = plain_table(Right("place"), "text", *numbers, "greedy finds it")
    unit = "members" if result.scored_one_by_one else "expansions"
    for one in result.found:
        unaided = "" if one.unaided is None else "yes" if one.unaided else "no"
        table.add_row(
            str(one.place),
            visible(one.text),
            "" if one.log_perplexity_bits is None else f"{one.log_perplexity_bits:.2f}",
            f"{one.expansions:,} {unit}",
            unaided,
        )
    return under_format_names({format_name(result.format_template): table})


def verification_table(results: Sequence[CanaryExtraction], extractions: Mapping[str, Extraction]) -> Group:
    """A table per format that was searched, under its name; of secrets that were found, which have a format each, a table per kind."""
    if _are_natural(results):
        by_kind = grouped((str(one.kind), one) for one in results)
        return under_names(
            "Kind", {kind: _verified(_out_first(some)[:MOST_SECRETS]) for kind, some in by_kind.items()}
        )
    names = names_of_extractions(extractions)
    return under_format_names(
        {
            names[format_id]: _verified([one for one in results if one.format_id == format_id])
            for format_id in extractions
        }
    )


def not_searched_in_words(results: Sequence[CanaryExtraction]) -> list[str]:
    """Why formats could not be searched, with how many canaries, in a sentence each."""
    reasons = grouped((one.problem, one.canary_id) for one in results if one.problem is not None)
    return [
        f"Not looked for: {len(names)} canaries, such as {visible(names[0])}: {visible(reason)}."
        for reason, names in reasons.items()
    ]


def names_of_extractions(extractions: Mapping[str, Extraction]) -> FormatNames:
    """A name for each format that was searched."""
    return format_names({format_id: one.format_template for format_id, one in extractions.items()})


def certificates_in_words(extractions: Mapping[str, Extraction]) -> list[str]:
    """Why the answer for each format can be believed; with the name of the format if there are several."""
    if any(one.kind is not UNSET for one in extractions.values()):
        return _certificates_by_kind(extractions)
    names = names_of_extractions(extractions)
    return [
        f"{visible(names[format_id])}: {certificate_in_words(one)}"
        if len(names) > 1
        else certificate_in_words(one)
        for format_id, one in extractions.items()
    ]


def _are_natural(results: Iterable[CanaryExtraction]) -> bool:
    return any(one.kind is not UNSET for one in results)


def _out_first(results: Sequence[CanaryExtraction]) -> list[CanaryExtraction]:
    return sorted(results, key=lambda one: (one.place is None, one.place or 0))


def _certificates_by_kind(extractions: Mapping[str, Extraction]) -> list[str]:
    """How many searches are proven, and how long they took, a sentence for each kind."""
    lines = []
    for kind, some in grouped((str(one.kind), one) for one in extractions.values()).items():
        proven = sum(one.proven for one in some)
        most = max(one.certificate.expansions for one in some)
        lines.append(
            f"{visible(kind)}: {proven:,} of {len(some):,} searches are proven, with at most {most:,} expansions each."
        )
    return lines


def _verified(results: Sequence[CanaryExtraction]) -> Table:
    """One row per canary, the most repeated first."""
    table = plain_table(
        "secret" if _are_natural(results) else "canary",
        Right("trained on"),
        "extracted",
        *rights("place", "after"),
    )
    ordered = results if _are_natural(results) else sorted(results, key=lambda result: -result.repetitions)
    for one in ordered:
        out = "yes" if one.extracted else "no" if one.proven else "not within the budget"
        out = out if one.problem is None else "not looked for"
        table.add_row(
            visible(one.canary_id),
            times_in_words(one.repetitions),
            out,
            "" if one.place is None else str(one.place),
            "" if one.expansions is None else f"{one.expansions:,} expansions",
        )
    return table


def certificate_in_words(result: Extraction) -> str:
    """Why the answer can be believed, or how far, and what a model that has conversations was asked about."""
    asked = asked_as(result.model)
    return _proof_in_words(result) if asked is None else f"{_proof_in_words(result)} Asked about {asked}."


def _proof_in_words(result: Extraction) -> str:
    certificate = result.certificate
    expansions = f"{certificate.expansions:,} expansions over a space of {int(result.size):,}"
    if result.method == "brute" and certificate.best_open_bits is not None:
        return (
            f"{'Proven' if certificate.proven else 'Not proven'}: {certificate.expansions:,} of {int(result.size):,} members have a score, "
            f"and the others, whose tokens the server does not list, cost {certificate.best_open_bits:.2f} bits or more."
        )
    if certificate.proven and result.scored_one_by_one:
        return f"Proven: each of the {int(result.size):,} members was scored."
    if certificate.proven:
        return f"Proven in {expansions}: nothing that could be better was left out."
    if result.method == "prompt":
        written = f"the model was given the beginning and wrote {certificate.expansions:,} tokens"
        if result.prompts is not UNSET and result.prompts.asked > 1:
            written = prompts_in_words(result.prompts)
        return f"Not proven: {written}; what it does not write by itself may be found by a search."
    if result.method in ("beam", "greedy"):
        return f"Not proven: {result.method} search looks at a small part of the tree ({expansions})."
    gap = (
        "too few members were found yet"
        if certificate.gap_bits is None
        else f"a member that costs up to {certificate.gap_bits:.2f} bits less than the last may exist"
    )
    return f"Not proven in {expansions}: {gap}. Run the same command with a larger --budget to resume."


def prompts_in_words(prompts: Prompting) -> str:
    """After how many prompts a member came out, and how many have no answer."""
    if not prompts.failed:
        return prompts.share.statement
    return f"{prompts.share.statement}; {prompts.failed:,} more have no answer ({visible('; '.join(prompts.problems))})"


def replay_in_words(replay: Replay) -> list[str]:
    """Whether a certificate holds, and if not, why."""
    if replay.confirmed:
        lines = [
            f"Confirmed: {replay.claim.removesuffix(',')}. The replay took {replay.expansions:,} expansions."
        ]
    else:
        lines = [f"Rejected: that {replay.claim} does not hold."]
        lines += [f"- {visible(problem)}." for problem in replay.problems]
    return lines


def extracted_in_plain_words(
    results: Sequence[CanaryExtraction], extractions: Mapping[str, Extraction]
) -> list[str]:
    """How many canaries can be read out of the model, in a sentence per format."""
    names = names_of_extractions(extractions)
    lines = []
    for format_id in extractions:
        own = [one for one in results if one.format_id == format_id]
        if own:
            name = f"{visible(names[format_id])}: " if len(names) > 1 else ""
            lines.append(name + _extracted_in_plain_words(own))
    return lines


def _extracted_in_plain_words(results: Sequence[CanaryExtraction]) -> str:
    # As the report counts them: those that were withheld are its control.
    trained = [one for one in results if one.repetitions > 0 and one.problem is None]
    out = [one for one in trained if one.extracted]
    if not out:
        return "None of the canaries came out of the model" + (
            "." if results[0].proven else " within the budget."
        )
    cost = max(one.expansions or 0 for one in out)
    places = ", ".join(f"{visible(one.canary_id)} at place {one.place}" for one in out)
    return (
        f"Extraction: anyone who can query the model gets {len(out)} of {len(trained)} canaries that were trained on out of it with "
        f"at most {cost:,} queries ({places})."
    )

"""What extraction shows: tables, sentences and a figure of what came out, masked unless it is revealed, and whether that is proven.

The figure is after Figures 10 and 11 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from coalmine.audits.exposure.figures import MOST_POINTS, names_of_formats
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.exposure.table import MOST_SECRETS, height, under_names
from coalmine.audits.extraction.certificate import Replay
from coalmine.audits.extraction.results import (
    EXTRACTIONS,
    VERIFIED,
    CanaryExtraction,
    Extracted,
    Extraction,
    Prompting,
    masked,
)
from coalmine.audits.framing import asked_as
from coalmine.evidence.charts import PALETTE, Axis, Chart, Marks, Rows, rounded, thinned
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Table
from coalmine.evidence.words import FormatNames, format_name, format_names, times_in_words
from coalmine.formats.format import Format
from coalmine.grouped import grouped
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.console import Group

_COLUMNS = ("canary", "format", "exposure (bits)", "trained on", "queries", "came out", "place")
_COLORS = {"yes": PALETTE[1], "no": PALETTE[0], "not within the budget": PALETTE[6]}
_SHAPES = {"yes": "circle", "no": "cross", "not within the budget": "triangle-up"}


def masked_extraction(result: Extraction, form: Format) -> Extraction:
    """The same result with the secrets hidden."""
    found = tuple(msgspec.structs.replace(one, text=masked(one.text, form)) for one in result.found)
    return msgspec.structs.replace(
        result, found=found, given="" if not result.given else masked(result.given, form)
    )


def member_table(unit: str = "expansions", text: Callable[[str], str] = str) -> Table[Extracted]:
    """One row per member that came out, the least surprising first; `text` says how one is shown."""
    return Table(
        (
            Column("place", lambda one: one.place),
            Column("member", lambda one: text(one.text), short="text"),
            Column("log-perplexity (bits)", lambda one: one.log_perplexity_bits),
            Column(f"found after ({unit})", lambda one: one.expansions),
            Column("greedy finds it", lambda one: one.unaided),
        )
    )


def _outcome(one: CanaryExtraction) -> str:
    if one.problem is not None:
        return "not looked for"
    return "yes" if one.extracted else "no" if one.proven else "not within the budget"


def searched_table(what: str = "canary") -> Table[CanaryExtraction]:
    """One row per canary, or what these are called, and whether it came out."""
    return Table(
        (
            Column(what, lambda one: one.canary_id),
            Column("trained on", lambda one: one.repetitions),
            Column("extracted", _outcome),
            Column("place", lambda one: one.place),
            Column("after (expansions)", lambda one: one.expansions),
        )
    )


def extraction_table(result: Extraction) -> Group:
    """The members that came out, under the name of the format."""
    table = member_table("members" if result.scored_one_by_one else "expansions")
    return under_names("Format", {format_name(result.format_template): table.terminal(result.found)})


def verification_table(results: Sequence[CanaryExtraction], extractions: Mapping[str, Extraction]) -> Group:
    """A table per format that was searched, under its name; of secrets that were found, which have a format each, a table per kind."""
    if any(one.kind is not UNSET for one in results):
        out_first = sorted(results, key=lambda one: (one.place is None, one.place or 0))
        kinds = grouped((str(one.kind), one) for one in out_first)
        shown = {kind: searched_table("secret").terminal(some[:MOST_SECRETS]) for kind, some in kinds.items()}
        return under_names("Kind", shown)
    names = names_of_extractions(extractions)
    most_repeated_first = sorted(results, key=lambda one: -one.repetitions)
    own = grouped((one.format_id, one) for one in most_repeated_first)
    return under_names(
        "Format", {names[name]: searched_table().terminal(own.get(name, ())) for name in extractions}
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
    """Why the answer for each format can be believed, with its name if there are several; of secrets, a sentence for each kind."""
    if any(one.kind is not UNSET for one in extractions.values()):
        kinds = grouped((str(one.kind), one) for one in extractions.values())
        return [
            f"{visible(kind)}: {sum(one.proven for one in some):,} of {len(some):,} searches are proven, with at most "
            f"{max(one.certificate.expansions for one in some):,} expansions each."
            for kind, some in kinds.items()
        ]
    names = names_of_extractions(extractions)
    said = {names[format_id]: certificate_in_words(one) for format_id, one in extractions.items()}
    return [f"{visible(name)}: {one}" if len(said) > 1 else one for name, one in said.items()]


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
        claim = replay.claim.removesuffix(",")
        return [f"Confirmed: {claim}. The replay took {replay.expansions:,} expansions."]
    problems = (f"- {visible(problem)}." for problem in replay.problems)
    return [f"Rejected: that {replay.claim} does not hold.", *problems]


def extracted_in_plain_words(results: Sequence[CanaryExtraction]) -> str:
    """How many canaries can be read out of the model; those that were withheld are not counted, as in a report."""
    trained = [one for one in results if one.repetitions > 0 and one.problem is None]
    out = [one for one in trained if one.extracted]
    if not out:
        return (
            f"None of the canaries came out of the model{'' if results[0].proven else ' within the budget'}."
        )
    cost = max(one.expansions or 0 for one in out)
    places = ", ".join(f"{visible(one.canary_id)} at place {one.place}" for one in out)
    return (
        f"Extraction: anyone who can query the model gets {len(out)} of {len(trained)} canaries that were trained on out of it with "
        f"at most {cost:,} queries ({places})."
    )


def extraction_figure(run: Run) -> Chart | None:
    """Queries against exposure, or None if canaries were not searched for or have no exposures."""
    verified, measured = run.first(VERIFIED), run.first(EXPOSURES)
    if verified is None or measured is None:
        return None
    folder, names = run.all(VERIFIED)[0].path.parent, names_of_formats(run)
    # The queries that were spent on each format in the search for canaries.
    by_template = {
        one.document.format_template: one.document.certificate.expansions
        for one in run.all(EXTRACTIONS)
        if one.path.parent == folder
    }
    spent = {
        one.format_id: by_template[one.template] for one in measured.formats if one.template in by_template
    }
    exposures = {one.canary_id: one for one in measured.results if one.estimate.status != "not_measured"}
    rows: Rows = []
    for one in verified.canaries:
        result = exposures.get(one.canary_id)
        queries = one.expansions if one.extracted or result is None else spent.get(result.format_id)
        if result is None or not queries:
            continue
        rows.append(
            {
                "canary": one.canary_id,
                "format": names[result.format_id],
                "exposure (bits)": rounded(height(result)),
                "trained on": times_in_words(one.repetitions),
                "queries": queries,
                "came out": "yes" if one.extracted else "no" if one.proven else "not within the budget",
                "place": one.place,
            }
        )
    if not rows:
        return None
    by_height = sorted(rows, key=lambda row: (str(row["came out"]), float(row["exposure (bits)"])))
    outcomes = {str(row["came out"]) for row in rows}
    return Chart(
        id="exposure-and-extraction",
        title="Exposure against extraction and its cost",
        caption="Each point is a canary. One that came out is at the number of queries after which it was found; one that did not, at "
        "the number that was spent on its format.",
        rows=[by_height[place] for place in thinned(len(rows), MOST_POINTS)],
        columns=_COLUMNS,
        data=tuple(tuple(row[name] for name in _COLUMNS) for row in rows),
        x=Axis(column="exposure (bits)", grid=False),
        y=Axis(column="queries", title="queries (log)", scales=("log",)),
        marks=(
            Marks(kind="points", shows=("canary", "trained on", "came out", "exposure (bits)", "queries")),
        ),
        color="came out",
        colors=_COLORS,
        legend="came out",
        shape="came out",
        shapes={name: shape for name, shape in _SHAPES.items() if name in outcomes},
        panel="format",
        notes={names[name]: f"{many:,} queries were spent on this format." for name, many in spent.items()},
        height=240,
    )

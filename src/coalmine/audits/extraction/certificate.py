"""Replay of the certificate of an extraction against the model: what was found, the bound, and that nothing is missing."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.extraction.results import Extraction, extraction_problems
from coalmine.audits.framing import framed_again
from coalmine.audits.options import MEMORY
from coalmine.errors import InputError
from coalmine.models.protocols import Model
from coalmine.models.resolution import allowed_bits
from coalmine.progress import Progress, Silent
from coalmine.search.walks.enumeration import walked_costs
from coalmine.search.walks.members import Members
from coalmine.search.walks.resolution import measure_resolution
from coalmine.search.walks.shortest_path import CheaperMembers

# Texts that the resolution is measured on, and how many times it two runs may differ by, within what the precision allows.
ASKED, MOST_RESOLUTIONS = 8, 4.0
# A replay expands no more than the search did, but for nodes that rounding moves across the bound.
MORE_EXPANSIONS = 1_000


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found: `problems` say why a certificate is rejected, and none of them holds a secret."""

    confirmed: bool
    problems: tuple[str, ...]
    expansions: int


def verify_certificate(
    model: Model, extraction: Extraction, *, memory: int = MEMORY, progress: Progress | None = None
) -> Replay:
    """Replay the certificate of an extraction by `search` against a model; one by `brute` is checked by extracting again.

    The members found are asked about again, and must cost what the certificate says. Everything cheaper than its bound is walked
    again: the cheapest node beyond must cost what the bound says, and no member that is cheaper than the last one found may be
    missing. Where the certificate says that nothing was left, the number of expansions must be that of the whole tree. `memory`
    bounds the model states that are held, in bytes.

    >>> from coalmine import ScriptedModel, extract
    >>> model = ScriptedModel("pin 0123456789", memory={"pin 49": 0.25})
    >>> verify_certificate(model, extract(model, "pin {digits:2}", top=1)).confirmed
    True
    """
    if extraction.method != "search":
        raise InputError(
            f"an extraction by {extraction.method} has no certificate to replay; extract by search"
        )
    problems = tuple(extraction_problems(extraction))
    if problems:
        return Replay(confirmed=False, problems=problems, expansions=0)
    asked = framed_again(model, extraction.model)
    members = Members(asked, extraction.format, given=extraction.given, memory_bytes=memory)
    frontier = members.frontier("a replay", "replay it with the model that was searched")
    certificate, tree = extraction.certificate, frontier.tree
    texts = [one.text for one in extraction.found]
    costs = np.array([one.log_perplexity_bits or 0.0 for one in extraction.found], dtype=np.float64)
    found = [tree.index_of(text) for text in texts]
    names = [f"the member at place {place}" for place in range(1, len(texts) + 1)]
    some = slice(0, ASKED)
    resolution = measure_resolution(members, texts[some], names[some], members.score(texts[some]))

    def rounding(bits: Any) -> NDArray[np.float64]:
        allowed = allowed_bits(members.model.resolution_bits, bits)
        return np.minimum(MOST_RESOLUTIONS * resolution.at(bits), allowed)

    again = walked_costs(frontier, found)
    problems = tuple(
        f"{names[one]} costs {again[one]:.6f} bits, and the certificate says {costs[one]:.6f}"
        for one in np.flatnonzero(np.abs(again - costs) > rounding(costs)).tolist()
    )
    if tree.size != int(extraction.size):
        problems += (f"the space has {tree.size:,} members, and the certificate says {extraction.size}",)
    if problems:
        return Replay(confirmed=False, problems=problems, expansions=0)
    bound, last = certificate.best_open_bits, float(costs.max(initial=0.0))
    limit = last if bound is None else bound - float(rounding(bound))
    search = CheaperMembers(frontier, limit, memory_bytes=memory)
    begun, shown = frontier.expansions, progress or Silent()
    shown.start("Replaying", None)
    search.start()
    settled = search.run(certificate.expansions + MORE_EXPANSIONS, shown.advance)
    shown.finish()
    expansions, whole, left = frontier.expansions - begun, tree.inner_nodes - 1, search.cheapest_left
    if not settled:
        problems += ("more nodes are cheaper than the bound than were expanded: the bound is too high",)
    elif bound is not None and abs(left - bound) > rounding(bound):
        problems += (f"the cheapest node beyond the bound costs {left:.6f} bits, and not {bound:.6f}",)
    elif bound is None and certificate.expansions != whole:
        problems += (
            f"nothing was left after {certificate.expansions:,} expansions; the whole tree has {whole:,}",
        )
    # Members that cost as much as the last, as far as the resolution shows, need not have been found.
    complete = len(found) >= min(extraction.top or len(found), tree.size)
    below, there = last - float(rounding(last)) if complete else limit, set(found)
    missing = [cost for number, cost in search.members.items() if number not in there and cost < below]
    if settled and missing:
        problems += (f"a member that costs {min(missing):.6f} bits is missing among those found",)
    return Replay(confirmed=not problems, problems=problems, expansions=expansions)

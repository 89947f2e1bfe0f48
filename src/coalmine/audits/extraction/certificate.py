"""Replay of the certificate of an extraction against the model: what was found, the bound, and that nothing is missing."""

from __future__ import annotations

from collections.abc import Sequence

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
    """Replay the certificate of an extraction by `search` or `brute` against a model.

    The members found are asked about again, and must cost what the certificate says. Everything cheaper than its bound is walked
    again: the cheapest node beyond must cost what the bound says, and no member that is cheaper than the last one found may be
    missing. Where the certificate says that nothing was left, the number of expansions must be that of the whole tree. `memory`
    bounds the model states that are held, in bytes.

    >>> from coalmine import ScriptedModel, extract
    >>> model = ScriptedModel("pin 0123456789", memory={"pin 49": 0.25})
    >>> verify_certificate(model, extract(model, "pin {digits:2}", top=1)).confirmed
    True
    """
    if extraction.method not in ("search", "brute"):
        raise InputError(
            f"an extraction by {extraction.method} proves nothing, so there is nothing to replay; extract by search or brute"
        )
    problems, expansions = list(extraction_problems(extraction)), 0
    if not problems:
        members = Members(
            framed_again(model, extraction.model),
            extraction.format,
            sources=extraction.source_format,
            given=extraction.given,
            memory_bytes=memory,
        )
        replayed = _walked if extraction.method == "search" else _scored
        problems, expansions = replayed(members, extraction, progress or Silent())
    return Replay(confirmed=not problems, problems=tuple(problems), expansions=expansions)


def _walked(members: Members, extraction: Extraction, progress: Progress) -> tuple[list[str], int]:
    """What the model says against a search, and how many nodes were expanded; the one walk that is the proof."""
    frontier = members.frontier("a replay", "replay it with the model that was searched")
    certificate, size = extraction.certificate, frontier.tree.size
    found = [frontier.tree.index_of(one.text) for one in extraction.found]
    problems, rounding = _compared(members, extraction, walked_costs(frontier, found), size)
    if problems:
        return problems, 0
    bound = certificate.best_open_bits
    last = max((one.log_perplexity_bits or 0.0 for one in extraction.found), default=0.0)
    limit = last if bound is None else bound - rounding
    search = CheaperMembers(frontier, limit, memory_bytes=members.memory_bytes)
    begun = frontier.expansions
    progress.start("Replaying", None)
    search.start()
    settled = search.run(certificate.expansions + MORE_EXPANSIONS, progress.advance)
    progress.finish()
    expansions = frontier.expansions - begun
    if not settled:
        return ["more nodes are cheaper than the bound than were expanded: the bound is too high"], expansions
    if bound is not None and abs(search.cheapest_left - bound) > rounding:
        problems.append(
            f"the cheapest node beyond the bound costs {search.cheapest_left:.6f} bits, and the certificate says {bound:.6f}"
        )
    if bound is None and certificate.expansions != (whole := frontier.tree.inner_nodes - 1):
        problems.append(
            f"nothing was left, the certificate says, after {certificate.expansions:,} expansions; the whole tree has {whole:,}"
        )
    complete = len(found) >= min(extraction.top or len(found), size)
    return problems + _missing(search.members, found, last - rounding if complete else limit), expansions


def _scored(members: Members, extraction: Extraction, progress: Progress) -> tuple[list[str], int]:
    """The same where every member was scored by itself: each is scored again."""
    form, every = members.format, dict[int, float]()
    progress.start(f"Scoring {form.size:,} members", form.size)
    for indices, bits in members.scored_one_by_one():
        every.update(zip(indices.tolist(), bits.tolist(), strict=True))
        progress.advance(len(bits))
    progress.finish()
    found = [form.index(one.text) for one in extraction.found]
    again = np.array([every[place] for place in found], dtype=np.float64)
    problems, rounding = _compared(members, extraction, again, len(every))
    if extraction.certificate.expansions != len(every):
        problems.append(
            f"{len(every):,} members were to be scored, and the certificate says {extraction.certificate.expansions:,}"
        )
    last = max((one.log_perplexity_bits or 0.0 for one in extraction.found), default=0.0)
    return problems + _missing(every, found, last - rounding), len(every)


def _compared(
    members: Members, extraction: Extraction, again: NDArray[np.float64], size: int
) -> tuple[list[str], float]:
    """What is wrong with the size and the costs (bits) of what was found, and how far rounding may move the largest cost or bound."""
    texts = [one.text for one in extraction.found]
    costs = np.array([one.log_perplexity_bits or 0.0 for one in extraction.found], dtype=np.float64)
    some = texts[:ASKED]
    names = [f"the member at place {place}" for place in range(1, len(texts) + 1)]
    resolution = measure_resolution(members, some, names[: len(some)], members.score(some))

    def rounding(bits: NDArray[np.float64]) -> NDArray[np.float64]:
        allowed = allowed_bits(members.model.resolution_bits, bits)
        return np.minimum(MOST_RESOLUTIONS * resolution.at(bits), allowed)

    problems = [
        f"{names[place]} costs {again[place]:.6f} bits, and the certificate says {costs[place]:.6f}"
        for place in np.flatnonzero(np.abs(again - costs) > rounding(costs)).tolist()
    ]
    if size != int(extraction.size):
        problems.insert(
            0, f"the space has {size:,} members, and the certificate says {int(extraction.size):,}"
        )
    most = np.append(costs, extraction.certificate.best_open_bits or 0.0).max()
    return problems, float(rounding(most))


def _missing(members: dict[int, float], found: Sequence[int], below: float) -> list[str]:
    """Members that should have been found; those that cost as much as the last, as far as the resolution shows, need not."""
    there = set(found)
    missing = [cost for number, cost in members.items() if number not in there and cost < below]
    return [f"a member that costs {min(missing):.6f} bits is missing among those found"] if missing else []

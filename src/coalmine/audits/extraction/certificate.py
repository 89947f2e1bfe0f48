"""Replay of the certificate of an extraction against the model: what was found, the bound, and that nothing is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.extraction.measuring import SCORED_UP_TO
from coalmine.audits.extraction.results import Extraction, extraction_problems, words_sha256
from coalmine.audits.framing import asked_as, framed_again
from coalmine.audits.options import MEMORY
from coalmine.errors import FormatError, InputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.models.protocols import Model
from coalmine.models.resolution import allowed_bits
from coalmine.progress import Progress, Silent
from coalmine.search.walks.enumeration import walked_costs
from coalmine.search.walks.members import Members
from coalmine.search.walks.resolution import Resolution, measure_resolution
from coalmine.search.walks.shortest_path import CheaperMembers

# Texts that the resolution is measured on.
ASKED = 8
# How many times the resolution two runs may differ by, within what the precision allows.
MOST_RESOLUTIONS = 4.0
# A replay expands no more than the search did, but for nodes that rounding moves across the bound.
MORE_EXPANSIONS = 1_000


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found: `problems` say why a certificate is rejected, and none of them holds a secret."""

    confirmed: bool
    # What is confirmed, or was claimed and is not.
    claim: str
    problems: tuple[str, ...]
    expansions: int


def verify_certificate(
    model: Model,
    extraction: Extraction,
    *,
    words: Sequence[str] | None = None,
    memory: int = MEMORY,
    progress: Progress | None = None,
) -> Replay:
    """Replay the certificate of an extraction by `search` or `brute` against a model.

    The members found are asked about again, and must cost what the certificate says. Everything cheaper than its bound is walked
    again: the cheapest node beyond must cost what the bound says, and no member that is cheaper than the last one found may be
    missing. Where the certificate says that nothing was left, the number of expansions must be that of the whole tree.
    `words` are those that `{word:n}` draws from, and `memory` bounds the model states that are held, in bytes.

    >>> from coalmine import ScriptedModel, extract
    >>> model = ScriptedModel("pin 0123456789", memory={"pin 49": 0.25})
    >>> verify_certificate(model, extract(model, "pin {digits:2}", top=1)).confirmed
    True
    """
    if extraction.method not in ("search", "brute"):
        raise InputError(
            f"an extraction by {extraction.method} proves nothing, so there is nothing to replay; extract by search or brute"
        )
    words = _context_of_secret(extraction) if words is None else words
    model = framed_again(model, extraction.model)
    template = extraction.source_template
    try:
        form = Format(extraction.format_template, words=words)
        sources = None if template is None else Format(template, words=words)
    except FormatError as problem:
        raise InputError(
            f"the format of the certificate does not compile ({problem.sentence}); give --words if it has a word list, or extract again"
        ) from None
    if extraction.words_sha256 not in (None, words_sha256(form)):
        raise InputError("the words that were given are not those of the certificate; give the same file")
    problems, expansions = list(extraction_problems(extraction, form)), 0
    if not problems:
        members = Members(model, form, sources=sources, given=extraction.given, memory_bytes=memory)
        try:
            replayed = _scored if members.obstacle is not None else _walked
            problems, expansions = replayed(members, extraction, progress or Silent())
        except InputError as problem:  # such as a beginning that no member has
            raise InputError(f"the certificate cannot be replayed: {problem}") from None
    return Replay(
        confirmed=not problems, claim=_claim(extraction), problems=tuple(problems), expansions=expansions
    )


def _context_of_secret(extraction: Extraction) -> list[str] | None:
    """The word list of a secret that was found, which is its context: what was found begins with it. None where there is none."""
    hole, template = "{word:1}", extraction.format_template
    if not (extraction.kind and extraction.found and template.startswith(hole)):
        return None
    rest, text = Format(template.removeprefix(hole)), extraction.found[0].text
    contexts = ([text[:end]] for end in range(len(text), 0, -1) if text[end:] in rest)
    same = (one for one in contexts if words_sha256(Format(template, words=one)) == extraction.words_sha256)
    return next(same, None)


class _Tolerance(NamedTuple):
    """How far costs (bits) may differ from those of another run."""

    resolution: Resolution
    declared: float

    @classmethod
    def of(cls, members: Members, texts: Sequence[str]) -> _Tolerance:
        """Measured on the first of the members that were found."""
        some = texts[:ASKED]
        names = [f"the member at place {place + 1}" for place in range(len(some))]
        resolution = measure_resolution(members, some, names, members.score(some))
        return cls(resolution, members.model.resolution_bits)

    def at(self, bits: Any) -> NDArray[np.float64]:
        """For costs of this many bits."""
        return np.minimum(MOST_RESOLUTIONS * self.resolution.at(bits), allowed_bits(self.declared, bits))


def _walked(members: Members, extraction: Extraction, progress: Progress) -> tuple[list[str], int]:
    """What the model says against a search, and how many nodes were expanded; the one walk that is the proof."""
    frontier = members.frontier("a replay", "replay it with the model that was searched")
    certificate, texts, costs = _told(extraction)
    found = [frontier.tree.index_of(text) for text in texts]
    tolerance = _Tolerance.of(members, texts)
    problems = _of_another_size(frontier.tree.size, extraction)
    problems += _other_costs(walked_costs(frontier, found), costs, tolerance)
    if problems:
        return problems, 0
    bound, last = certificate.best_open_bits, float(costs.max(initial=0.0))
    limit = last if bound is None else bound - float(tolerance.at(bound))
    search = CheaperMembers(frontier, limit, memory_bytes=members.memory_bytes)
    begun = frontier.expansions
    progress.start("Replaying", None)
    search.start()
    settled = search.run(certificate.expansions + MORE_EXPANSIONS, progress.advance)
    progress.finish()
    expansions = frontier.expansions - begun
    if not settled:
        said = f"the certificate says that {certificate.expansions:,} were expanded"
        return [f"more nodes are cheaper than the bound than {said}: the bound is too high"], expansions
    if bound is not None and abs(search.cheapest_left - bound) > tolerance.at(bound):
        problems.append(
            f"the cheapest node beyond the bound costs {search.cheapest_left:.6f} bits, and the certificate says {bound:.6f}"
        )
    if bound is None and certificate.expansions != (whole := frontier.tree.inner_nodes - 1):
        problems.append(
            f"nothing was left, the certificate says, after {certificate.expansions:,} expansions; the whole tree has {whole:,}"
        )
    complete = len(found) >= min(extraction.top or len(found), frontier.tree.size)
    below = min(limit, last - float(tolerance.at(last))) if complete else limit
    return problems + _missing(search.members, found, below), expansions


def _scored(members: Members, extraction: Extraction, progress: Progress) -> tuple[list[str], int]:
    """The same for a model that does not support incremental decoding: every member is scored again."""
    form = members.format
    if form.size > SCORED_UP_TO:
        raise NotMeasurableError(
            f"{form.size:,} members are too many to be replayed one by one on {members.model.name!r}"
        )
    certificate, texts, costs = _told(extraction)
    every: dict[int, float] = {}
    progress.start(f"Scoring {form.size:,} members", form.size)
    for indices, bits in members.scored_one_by_one():
        every.update(zip(indices.tolist(), bits.tolist(), strict=True))
        progress.advance(len(bits))
    progress.finish()
    found = [form.index(text) for text in texts]
    tolerance = _Tolerance.of(members, texts)
    again = np.array([every[place] for place in found], dtype=np.float64)
    problems = _of_another_size(len(every), extraction) + _other_costs(again, costs, tolerance)
    if certificate.expansions != len(every):
        problems.append(
            f"{len(every):,} members were to be scored, and the certificate says {certificate.expansions:,}"
        )
    last = float(costs.max(initial=0.0))
    return problems + _missing(every, found, last - float(tolerance.at(last))), len(every)


def _told(extraction: Extraction) -> tuple[Any, list[str], NDArray[np.float64]]:
    """The certificate, and the texts and costs of the members that were found."""
    costs = [one.log_perplexity_bits or 0.0 for one in extraction.found]
    return extraction.certificate, [one.text for one in extraction.found], np.array(costs, dtype=np.float64)


def _of_another_size(size: int, extraction: Extraction) -> list[str]:
    if size == int(extraction.size):
        return []
    return [f"the space has {size:,} members, and the certificate says {int(extraction.size):,}"]


def _other_costs(again: NDArray[np.float64], costs: NDArray[np.float64], tolerance: _Tolerance) -> list[str]:
    return [
        f"the member at place {place + 1} costs {again[place]:.6f} bits, and the certificate says {costs[place]:.6f}"
        for place in np.flatnonzero(np.abs(again - costs) > tolerance.at(costs)).tolist()
    ]


def _missing(members: dict[int, float], found: Sequence[int], below: float) -> list[str]:
    """Members that should have been found; those that cost as much as the last, as far as the resolution shows, need not."""
    there = set(found)
    missing = [cost for number, cost in members.items() if number not in there and cost < below]
    return [f"a member that costs {min(missing):.6f} bits is missing among those found"] if missing else []


def _claim(extraction: Extraction) -> str:
    number, certificate = len(extraction.found), extraction.certificate
    members = "the member found is" if number == 1 else f"the {number:,} members found are"
    asked, bound = asked_as(extraction.model), certificate.best_open_bits
    kind = "" if asked is None else f" as {asked}"
    limit = "a bound that is not stated" if bound is None else f"{bound:.2f} bits"
    if not certificate.proven:
        return f"{members} the best so far{kind}, and no other costs less than {limit}"
    least = f"{members} the least surprising of {int(extraction.size):,}{kind}"
    if certificate.exhausted:
        return f"{least}, because every member was looked at,"
    return f"{least}, because everything that was not expanded costs at least {limit},"

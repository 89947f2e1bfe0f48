"""Replay of the certificate of an extraction against the model: what was found, the bound, and that nothing is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.extraction.contradictions import extraction_problems
from coalmine.audits.extraction.results import Extraction, words_sha256
from coalmine.audits.framing import asked_as, framed_again
from coalmine.audits.options import MEMORY
from coalmine.errors import FormatError, InputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.models.protocols import Model
from coalmine.models.resolution import allowed_bits
from coalmine.progress import Progress, Silent
from coalmine.search.walks.enumeration import walked_costs
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.members import Members
from coalmine.search.walks.resolution import measure_resolution
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
    notes: tuple[str, ...]
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
    try:
        form = Format(extraction.format_template, words=words)
        template = extraction.source_template
        sources = None if template is None else Format(template, words=words)
    except FormatError as problem:
        raise InputError(
            f"the format of the certificate does not compile ({problem.sentence}); give --words if it has a word list, or extract again"
        ) from None
    if extraction.words_sha256 not in (None, words_sha256(form)):
        raise InputError("the words that were given are not those of the certificate; give the same file")
    members = Members(model, form, sources=sources, given=extraction.given, memory_bytes=memory)
    claims = _Claims(extraction, members, progress or Silent())
    try:
        contradictions = claims.contradictions()
    except InputError as problem:  # such as a beginning that no member has
        raise InputError(f"the certificate cannot be replayed: {problem}") from None
    problems = contradictions or claims.replayed()
    return Replay(
        confirmed=not problems,
        claim=_claim(extraction),
        problems=tuple(problems),
        notes=tuple(_notes(extraction, model.describe())),
        expansions=claims.expansions,
    )


def _context_of_secret(extraction: Extraction) -> list[str] | None:
    """The word list of a secret that was found, which is its context: what was found begins with it. None where there is none."""
    hole = "{word:1}"
    if not (extraction.kind and extraction.found and extraction.format_template.startswith(hole)):
        return None
    rest, text = Format(extraction.format_template.removeprefix(hole)), extraction.found[0].text
    for end in range(len(text), 0, -1):
        words = [text[:end]]
        if text[end:] in rest and extraction.words_sha256 == words_sha256(
            Format(extraction.format_template, words=words)
        ):
            return words
    return None


class _Claims:
    """What a certificate claims, while it is replayed."""

    def __init__(self, extraction: Extraction, members: Members, progress: Progress) -> None:
        self.extraction, self.members, self.progress = extraction, members, progress
        self.certificate, self.found = extraction.certificate, extraction.found
        self.texts = [one.text for one in extraction.found]
        self.costs = np.array([one.log_perplexity_bits or 0.0 for one in self.found], dtype=np.float64)
        self.expansions = 0

    def contradictions(self) -> list[str]:
        """What is wrong with the certificate by itself."""
        form, given = self.members.format, self.extraction.given
        problems = []
        size = _size(self.members)
        if str(size) != self.extraction.size:
            problems.append(
                f"the space has {size:,} members, and the certificate says {self.extraction.size}"
            )
        for place, text in enumerate(self.texts, start=1):
            if text not in form or not text.startswith(given):
                problems.append(f"what is at place {place} is not a member of {form.template!r}")
        return problems or list(extraction_problems(self.extraction))

    def replayed(self) -> list[str]:
        """What the model says against it."""
        if self.members.obstacle is not None:
            return self._scored()
        frontier = self.members.frontier("a replay", "replay it with the model that was searched")
        numbers = [frontier.tree.index_of(text) for text in self.texts]
        again = walked_costs(frontier, numbers)
        allowed = self._allowed()
        problems = self._other_costs(again, allowed(self.costs))
        return problems or self._walked(frontier, set(numbers), allowed)

    def _walked(
        self, frontier: Frontier, found: set[int], allowed: Callable[[Any], NDArray[np.float64]]
    ) -> list[str]:
        bound, last = self.certificate.best_open_bits, float(self.costs.max(initial=0.0))
        limit = last if bound is None else bound - float(allowed(bound))
        search = CheaperMembers(frontier, limit, memory_bytes=self.members.memory_bytes)
        begun = frontier.expansions
        self.progress.start("Replaying", None)
        search.start()
        most = self.certificate.expansions + MORE_EXPANSIONS
        settled = search.run(most, self.progress.advance)
        self.progress.finish()
        self.expansions = frontier.expansions - begun
        problems = []
        if not settled:
            said = f"the certificate says that {self.certificate.expansions:,} were expanded"
            return [f"more than {most:,} nodes are cheaper than the bound, and {said}: the bound is too high"]
        if bound is not None and abs(search.cheapest_left - bound) > allowed(bound):
            problems.append(
                f"the cheapest node beyond the bound costs {search.cheapest_left:.6f} bits, and the certificate says {bound:.6f}"
            )
        if bound is None and self.certificate.expansions != (whole := frontier.tree.inner_nodes - 1):
            problems.append(
                f"nothing was left, the certificate says, after {self.certificate.expansions:,} expansions; the whole tree has {whole:,}"
            )
        complete = len(found) >= min(self.extraction.top or len(found), frontier.tree.size)
        below = min(limit, last - float(allowed(last))) if complete else limit
        return problems + self._missing(search.members, found, below)

    def _missing(self, members: dict[int, float], found: set[int], below: float) -> list[str]:
        """Members that should have been found; those that cost as much as the last, as far as the resolution shows, need not."""
        missing = sorted(cost for number, cost in members.items() if number not in found and cost < below)
        if not missing:
            return []
        others = f", and so are {len(missing) - 1:,} others" if len(missing) > 1 else ""
        return [f"a member that costs {missing[0]:.6f} bits is missing among those that were found{others}"]

    def _scored(self) -> list[str]:
        """For a model that does not support incremental decoding: every member is scored again."""
        every: dict[int, float] = {}
        self.progress.start(f"Scoring {self.members.format.size:,} members", self.members.format.size)
        for indices, costs in self.members.scored_one_by_one():
            every.update(zip(indices.tolist(), costs.tolist(), strict=True))
            self.progress.advance(len(costs))
        self.progress.finish()
        self.expansions = len(every)
        places = [self.members.format.index(text) for text in self.texts]
        allowed = self._allowed()
        again = np.array([every[place] for place in places], dtype=np.float64)
        problems = self._other_costs(again, allowed(self.costs))
        if self.certificate.expansions != len(every):
            problems.append(
                f"{len(every):,} members were to be scored, and the certificate says {self.certificate.expansions:,}"
            )
        last = float(self.costs.max(initial=0.0))
        return problems + self._missing(every, set(places), last - float(allowed(last)))

    def _other_costs(self, again: NDArray[np.float64], allowed: NDArray[np.float64]) -> list[str]:
        wrong = np.flatnonzero(np.abs(again - self.costs) > allowed)
        if not len(wrong):
            return []
        place = int(wrong[0])
        others = f", and {len(wrong) - 1:,} others differ" if len(wrong) > 1 else ""
        return [
            f"the member at place {place + 1} costs {again[place]:.6f} bits, and the certificate says {self.costs[place]:.6f}{others}"
        ]

    def _allowed(self) -> Callable[[Any], NDArray[np.float64]]:
        """How far costs may differ from those of another run."""
        texts = self.texts[:ASKED]
        names = [f"the member at place {place + 1}" for place in range(len(texts))]
        resolution = measure_resolution(self.members, texts, names, self.members.score(texts))
        declared = self.members.model.resolution_bits

        def allowed(bits: Any) -> NDArray[np.float64]:
            return np.minimum(MOST_RESOLUTIONS * resolution.at(bits), allowed_bits(declared, bits))

        return allowed


def _size(members: Members) -> int:
    """How many members begin as they should."""
    if not members.given:
        return members.format.size
    if members.obstacle is None:
        return members.frontier("a replay", "").tree.size
    if members.format.size > 1_000_000:
        raise NotMeasurableError(
            f"{members.format.size:,} members are too many to be replayed one by one on {members.model.name!r}"
        )
    return sum(text.startswith(members.given) for text in members.format)


def _claim(extraction: Extraction) -> str:
    number, certificate = len(extraction.found), extraction.certificate
    members = "the member found is" if number == 1 else f"the {number:,} members found are"
    bound = certificate.best_open_bits
    limit = "a bound that is not stated" if bound is None else f"{bound:.2f} bits"
    asked = asked_as(extraction.model)
    kind = "" if asked is None else f" as {asked}"
    if not certificate.proven:
        return f"{members} the best so far{kind}, and no other costs less than {limit}"
    size = f"{int(extraction.size):,}" if extraction.size.isdecimal() else repr(extraction.size)
    least = f"{members} the least surprising of {size}{kind}"
    if certificate.exhausted:
        return f"{least}, because every member was looked at,"
    return f"{least}, because everything that was not expanded costs at least {limit},"


def _notes(extraction: Extraction, described: dict[str, Any]) -> list[str]:
    """What differs between the models as they describe themselves."""
    compared = [
        name
        for name in ("weights_sha256", "parameters", "precision", "context", "chat_template_sha256")
        if name in extraction.model and name in described and extraction.model[name] != described[name]
    ]
    names = {"weights_sha256": "the hash of the weights", "parameters": "the number of parameters"}
    return [f"{names.get(name, name)} is not that of the model that was searched" for name in compared]

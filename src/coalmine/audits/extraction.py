"""Can the secret be extracted? Finds the least surprising members of a format, with a proof that there are no better ones."""

from __future__ import annotations

import hashlib
import heapq
import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from coalmine.corpus.manifest import CanarySet, as_canary_set
from coalmine.errors import InputError, NotMeasurableError
from coalmine.files import PRIVATE, to_json, write_json
from coalmine.formats.format import Format
from coalmine.interrupts import deferred_interrupt
from coalmine.models.protocols import Model, Scorer, Stepper, TokenSequence
from coalmine.progress import Progress, Silent
from coalmine.search.beam import beam_search
from coalmine.search.enumeration import enumerate_members
from coalmine.search.frontier import Frontier
from coalmine.search.lifting import TokenTree
from coalmine.search.open_nodes import MEMORY_BYTES
from coalmine.search.resuming import ResumeFile
from coalmine.search.shortest_path import Certificate, Found, ShortestPaths

SCHEMA = "coalmine.extraction/1"
RESULTS_FILE = "extraction.json"
Method = Literal["search", "brute", "beam", "greedy"]
METHODS: tuple[Method, ...] = ("search", "brute", "beam", "greedy")
# Brute force looks at every member; beyond this many it is refused, because the search gives the same answer.
BRUTE_UP_TO = 10_000_000


class Extracted(msgspec.Struct, frozen=True, kw_only=True):
    """One member that came out."""

    place: int  # 1 for the least surprising
    text: str
    log_perplexity_bits: float
    # How many nodes had been expanded when it was found.
    expansions: int
    # Whether the model writes it by itself: each token behind the prefix is the likeliest of the whole vocabulary.
    unaided: bool | None


class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of a model in one format, and how sure it is that nothing less surprising is there."""

    schema: str = SCHEMA
    format_template: str
    size: str  # decimal digits, because many JSON readers lose integers above 2^53
    given: str
    method: Method
    found: tuple[Extracted, ...]
    certificate: Certificate
    model: dict[str, Any]

    @property
    def proven(self) -> bool:
        """Whether these are the least surprising members there are."""
        return self.certificate.proven

    def save(self, directory: str | os.PathLike[str], name: str = RESULTS_FILE) -> Path:
        """Write the result, readable by its owner only, because it holds secrets."""
        target = Path(directory) / name
        write_json(target, self, mode=PRIVATE)
        return target


class CanaryExtraction(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one canary came out.

    `place` and `expansions` are those of the canary, or None where it is not among the members found; `proven` says whether that
    is because it has no such place, or only because the budget ended.
    """

    canary_id: str
    repetitions: int
    extracted: bool
    place: int | None
    expansions: int | None
    proven: bool


def extract(
    model: Model,
    form: Format | str,
    *,
    top: int = 10,
    method: Method = "search",
    given: str = "",
    width: int = 100,
    budget: int = 1_000_000,
    memory: int = MEMORY_BYTES,
    resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Extraction:
    """The `top` least surprising members of a format, the least surprising first.

    `method` is "search" (best-first, proven unless `budget` expansions are spent first), "brute" (every member of a small
    space), "beam" (`width` nodes a level) or "greedy". `given` is a beginning that is known already, such as the first digits
    of a number. `memory` bounds the states held, in bytes. With `resume`, a directory, a search that is stopped keeps there what
    it has proven, and the same call goes on from it.
    """
    secret = form if isinstance(form, Format) else Format(form)
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}: known are {', '.join(METHODS)}")
    for name, value in (("top", top), ("width", width), ("budget", budget)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    if not isinstance(model, Model):
        raise InputError(f"extract needs a model, got {type(model).__name__}; load one with load_model(path)")
    if not isinstance(model, Stepper):
        raise NotMeasurableError(
            f"extraction is not applicable to {model.name!r}: it cannot be walked token by token"
        )
    frontier = Frontier(model, TokenTree(secret, model.tokenizer, given=given))
    shown = progress or Silent()
    if method == "search":
        facts = [model.describe(), secret.template, secret.words, given, top]
        secret_name = hashlib.sha256(f"{secret.template}\0{given}".encode()).hexdigest()[:8]
        path = None if resume is None else Path(resume) / f"unfinished-extraction-{secret_name}.npz"
        kept = ResumeFile(path, hashlib.sha256(to_json(facts)).hexdigest())
        found, certificate = _search(frontier, top, budget, memory, kept, shown)
    elif method == "brute":
        found, certificate = _brute(frontier, top, shown)
    else:
        found = beam_search(frontier, top, 1 if method == "greedy" else width)
        certificate = Certificate(False, frontier.expansions, None, None)
    texts = [frontier.tree.text_at(one.member) for one in found]
    unaided = _unaided(model, texts, len(frontier.tree.prefix))
    return Extraction(
        format_template=secret.template,
        size=str(frontier.tree.size),
        given=given,
        method=method,
        found=tuple(
            Extracted(
                place=place + 1,
                text=text,
                log_perplexity_bits=one.log_perplexity_bits,
                expansions=one.expansions,
                unaided=by_itself,
            )
            for place, (one, text, by_itself) in enumerate(zip(found, texts, unaided, strict=True))
        ),
        certificate=certificate,
        model=model.describe(),
    )


def verify_extraction(
    model: Model, canaries: CanarySet | str | os.PathLike[str], **options: Any
) -> tuple[list[CanaryExtraction], dict[str, Extraction]]:
    """Whether each canary of a manifest comes out among the `top` of its format, at which place, after how many expansions.

    `options` are those of `extract`. The second result is the extraction of each format.
    """
    chosen = as_canary_set(canaries)
    extractions = {name: extract(model, form, **options) for name, form in chosen.formats.items()}
    results = []
    for canary in chosen:
        extraction = extractions[canary.format_id]
        out = next((one for one in extraction.found if one.text == canary.text), None)
        results.append(
            CanaryExtraction(
                canary_id=canary.canary_id,
                repetitions=canary.times_trained_on,
                extracted=out is not None,
                place=None if out is None else out.place,
                expansions=None if out is None else out.expansions,
                proven=extraction.proven,
            )
        )
    return results, extractions


def _search(
    frontier: Frontier, top: int, budget: int, memory: int, resume: ResumeFile, progress: Progress
) -> tuple[list[Found], Certificate]:
    search = ShortestPaths(frontier, top, memory_bytes=memory)
    progress.start("Searching", budget)
    saved = resume.load()
    if saved is None:
        search.start()
    else:
        search.restore(saved)
        progress.advance(frontier.expansions)
    with deferred_interrupt() as interrupted:

        def after_step(expanded: int) -> None:
            best = search.found()
            progress.advance(expanded, f"best {best[0].log_perplexity_bits:.2f} bits" if best else "")
            resume.save(search.snapshot, now=interrupted())
            if interrupted():
                raise KeyboardInterrupt

        proven = search.run(budget - frontier.expansions, after_step)
    progress.finish()
    if proven:
        resume.remove()
    else:
        # A larger budget goes on from here.
        resume.save(search.snapshot, now=True)
    return search.found(), search.certificate()


def _brute(frontier: Frontier, top: int, progress: Progress) -> tuple[list[Found], Certificate]:
    if frontier.tree.size > BRUTE_UP_TO:
        raise NotMeasurableError(
            f"brute force over {frontier.tree.size:,} members is refused above {BRUTE_UP_TO:,}; "
            "the search method gives the same answer"
        )
    best: list[tuple[float, int]] = []
    progress.start(f"Trying {frontier.tree.size:,} members", frontier.tree.size)
    for leaves in enumerate_members(frontier):
        pairs = zip(leaves.costs.tolist(), leaves.indices.tolist(), strict=True)
        best = heapq.nsmallest(top, [*best, *pairs])
        progress.advance(len(leaves.costs))
    progress.finish()
    found = [Found(index, cost, frontier.expansions) for cost, index in best]
    return found, Certificate(True, frontier.expansions, None, 0.0)


def _unaided(model: Model, texts: list[str], prefix: int) -> list[bool | None]:
    if not isinstance(model, Scorer) or not texts:
        return [None] * len(texts)
    encoded = [tuple(model.tokenizer.encode(text)) for text in texts]
    scores = model.score(
        [TokenSequence(model.context + tokens[:prefix], tokens[prefix:]) for tokens in encoded]
    )
    return [bool(score.is_argmax.all()) for score in scores]


def masked(text: str, form: Format) -> str:
    """A member with all but what every member shares hidden.

    >>> masked("my pin is 4921", Format("my pin is {digits:4}"))
    'my pin is ••••'
    """
    shown = len(form.prefix)
    return text[:shown] + "•" * (len(text) - shown)

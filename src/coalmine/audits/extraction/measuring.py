"""Can the secret be extracted? Finds the least surprising members of a format, with a proof that there are no better ones."""

from __future__ import annotations

import hashlib
import heapq
import os
from typing import Any

from coalmine.audits.extraction.results import (
    METHODS,
    CanaryExtraction,
    Extracted,
    Extraction,
    Method,
    words_sha256,
)
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.errors import InputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.interrupts import deferred_interrupt
from coalmine.models.protocols import Generator, Model, PairModel, Scorer, TokenSequence
from coalmine.progress import Progress, Silent
from coalmine.search.walks.beam import beam_search
from coalmine.search.walks.enumeration import enumerate_members
from coalmine.search.walks.frontier import MEMORY_BYTES, Frontier
from coalmine.search.walks.members import Members
from coalmine.search.walks.resuming import Resume, ResumeFile, Unfinished
from coalmine.search.walks.shortest_path import Certificate, Found, ShortestPaths
from coalmine.storage.files import to_json

# Brute force looks at every member; beyond this many it is refused, because the search gives the same answer.
BRUTE_UP_TO = 10_000_000
# Members scored one by one where a model cannot be walked.
SCORED_UP_TO = 1_000_000


def extract(
    model: Model,
    form: Format | str,
    *,
    sources: Format | str | None = None,
    top: int = 10,
    method: Method = "search",
    given: str = "",
    width: int = 100,
    budget: int = 1_000_000,
    memory: int = MEMORY_BYTES,
    resume: Resume = None,
    progress: Progress | None = None,
) -> Extraction:
    """The `top` least surprising members of a format, the least surprising first.

    `method` is "search" (best-first, proven unless `budget` expansions are spent first), "brute" (every member of a small
    space), "beam" (`width` nodes a level), "greedy", or "prompt" (give the model the beginning and read what it writes, all that a
    model that gives only text can be asked). A model that cannot be walked, and one of pairs, for which `sources` is the format of
    the source side, is searched by brute force. `given` is a beginning that is known already, such as the first digits of a
    number. `memory` bounds the states held, in bytes. With `resume`, a directory, a search that is stopped keeps there what it
    has proven, and the same call goes on from it. What was kept is removed when the search is proven; an `Unfinished` in place of the
    directory leaves it to the caller, once the result is saved.
    """
    secret = form if isinstance(form, Format) else Format(form)
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}: known are {', '.join(METHODS)}")
    for name, value in (("top", top), ("width", width), ("budget", budget)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    if not isinstance(model, Model):
        raise InputError(f"extract needs a model, got {type(model).__name__}; load one with load_model(path)")
    source_format = Format(sources, words=secret.words) if isinstance(sources, str) else sources
    shown = progress or Silent()
    if method == "prompt":
        return _prompted(model, secret, source_format, given)
    members = Members(model, secret, sources=source_format, given=given, memory_bytes=memory)
    if members.obstacle is not None:
        return _scored(members, top, method, shown)
    frontier = members.frontier("extraction", "use the brute method")
    if method == "search":
        facts = ["cuts/2", model.describe(), secret.template, secret.words, given, top]
        secret_name = hashlib.sha256(f"{secret.template}\0{given}".encode()).hexdigest()[:8]
        unfinished = resume if isinstance(resume, Unfinished) else Unfinished(resume)
        kept = unfinished.file(f"extraction-{secret_name}", hashlib.sha256(to_json(facts)).hexdigest())
        found, certificate = _search(frontier, top, budget, memory, kept, shown)
        if certificate.proven:
            unfinished.is_over(kept)
        if unfinished is not resume:
            unfinished.forget()
    elif method == "brute":
        found, certificate = _brute(frontier, top, shown)
    else:
        found = beam_search(frontier, top, 1 if method == "greedy" else width)
        certificate = Certificate(False, frontier.expansions, None, None)
    texts = [frontier.tree.text_at(one.member) for one in found]
    unaided = _unaided(model, texts, len(frontier.tree.prefix))
    return _result(members, method, top, frontier.tree.size, found, texts, unaided, certificate)


def _result(
    members: Members,
    method: Method,
    top: int,
    size: int,
    found: list[Found],
    texts: list[str],
    unaided: list[bool | None],
    certificate: Certificate,
) -> Extraction:
    rows = enumerate(zip(found, texts, unaided, strict=True))
    return Extraction(
        format_template=members.format.template,
        size=str(size),
        given=members.given,
        method=method,
        found=tuple(
            Extracted(
                place=place + 1,
                text=text,
                log_perplexity_bits=one.log_perplexity_bits,
                expansions=one.expansions,
                unaided=by_itself,
            )
            for place, (one, text, by_itself) in rows
        ),
        certificate=certificate,
        model=members.model.describe(),
        top=top,
        source_template=None if members.sources is None else members.sources.template,
        words_sha256=words_sha256(members.format),
    )


def _scored(members: Members, top: int, method: Method, progress: Progress) -> Extraction:
    """Every member scored by itself, for a model that cannot be walked; as proven as a search."""
    name, form = members.model.name, members.format
    if not isinstance(members.model, Scorer):
        raise NotMeasurableError(
            f"extraction by {method} is not applicable to {name!r}: it does not give the probability of a text; use the prompt method"
        )
    if method not in ("search", "brute"):
        raise NotMeasurableError(
            f"extraction by {method} is not applicable to {name!r}: {members.obstacle}; use the brute method"
        )
    if form.size > SCORED_UP_TO:
        raise NotMeasurableError(
            f"{name!r} cannot be searched ({members.obstacle}), and scoring {form.size:,} members one by one is refused above "
            f"{SCORED_UP_TO:,}; use a smaller format, such as one that has the known beginning in it"
        )
    best: list[tuple[float, int]] = []
    scored = 0
    progress.start(f"Scoring {form.size:,} members", form.size)
    for indices, costs in members.scored_one_by_one():
        best = heapq.nsmallest(top, [*best, *zip(costs.tolist(), indices.tolist(), strict=True)])
        scored += len(costs)
        progress.advance(len(costs))
    progress.finish()
    if not scored:
        raise InputError(
            f"no member of {form.template!r} begins with the text that was given; give the beginning of one, such as {form.prefix!r}"
        )
    found = [Found(index, cost, scored) for cost, index in best]
    texts = [form.at(one.member) for one in found]
    certificate = Certificate(True, scored, None, 0.0, exhausted=True)
    return _result(members, "brute", top, scored, found, texts, [None] * len(found), certificate)


def _prompted(model: Model, form: Format, sources: Format | None, given: str) -> Extraction:
    """What the model writes by itself behind the beginning that every member has, or that is given."""
    if isinstance(model, PairModel):
        told = "none was given" if sources is None else f"{sources.template!r} gives each member its own"
        raise NotMeasurableError(
            f"extraction by prompt is not applicable to {model.name!r}: a model of pairs writes a text only for one source, and {told}; "
            "hold one source fixed (--source, or `model.given`), or use the search method with a source format"
        )
    if not isinstance(model, Generator):
        raise NotMeasurableError(
            f"extraction by prompt is not applicable to {model.name!r}: it scores texts and writes none; use the search method"
        )
    beginning = given or form.prefix
    if not beginning:
        raise InputError(
            f"the prompt method needs a beginning to go on from, and {form.template!r} begins with the secret; give one (--given)"
        )
    prompt = [*model.context, *model.tokenizer.encode(beginning)]
    # A token is a character at least, or a byte of one.
    bytes_each = 1 if form.at(form.size - 1).isascii() else 4
    length = bytes_each * max(1, form.max_length - len(beginning)) + 1
    written = model.generate([prompt], length=length)[0]
    text = model.tokenizer.decode([*prompt[len(model.context) :], *written])
    match = next((match for match in form.finditer(text) if match.start == 0), None)
    found: tuple[Extracted, ...] = ()
    if match is not None:
        found = (
            Extracted(
                place=1, text=match.text, log_perplexity_bits=None, expansions=len(written), unaided=True
            ),
        )
    return Extraction(
        format_template=form.template,
        size=str(form.size),
        given=given,
        method="prompt",
        found=found,
        certificate=Certificate(False, len(written), None, None),
        model=model.describe(),
    )


def verify_extraction(
    model: Model, canaries: CanarySet | str | os.PathLike[str], *, resume: Resume = None, **options: Any
) -> tuple[list[CanaryExtraction], dict[str, Extraction]]:
    """Whether each canary of a manifest comes out among the `top` of its format, at which place, after how many expansions.

    `resume` and `options` are those of `extract`; what was kept to resume is removed when all formats are searched. The second result
    is the extraction of each format.
    """
    chosen = as_canary_set(canaries)
    if chosen.listed:
        raise NotMeasurableError(
            "extraction searches all members of a format, and these canaries are a list of texts without one; import them with --format, "
            "or compare them by `coalmine membership`"
        )
    unfinished = resume if isinstance(resume, Unfinished) else Unfinished(resume)
    extractions = {
        name: extract(model, form, sources=chosen.source_formats.get(name), resume=unfinished, **options)
        for name, form in chosen.formats.items()
    }
    if unfinished is not resume:
        unfinished.forget()
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
                format_id=canary.format_id,
            )
        )
    return results, extractions


def _search(
    frontier: Frontier, top: int, budget: int, memory: int, resume: ResumeFile, progress: Progress
) -> tuple[list[Found], Certificate]:
    search = ShortestPaths(frontier, top, memory_bytes=memory)
    progress.start(f"Searching, at most {budget:,} expansions", None)
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
    if not proven:
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
    return found, Certificate(True, frontier.expansions, None, 0.0, exhausted=True)


def _unaided(model: Model, texts: list[str], prefix: int) -> list[bool | None]:
    if not isinstance(model, Scorer) or not texts:
        return [None] * len(texts)
    encoded = [tuple(model.tokenizer.encode(text)) for text in texts]
    scores = model.score(
        [TokenSequence(model.context + tokens[:prefix], tokens[prefix:]) for tokens in encoded]
    )
    return [bool(score.is_argmax.all()) for score in scores]

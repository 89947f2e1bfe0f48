"""Extraction of secrets: the least surprising members of a format, with a proof that there are no better ones."""

from __future__ import annotations

import hashlib
import heapq
import os
from typing import Any

import msgspec

from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.audits.extraction.results import CanaryExtraction, Extracted, Extraction, words_sha256
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.errors import InputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.interrupts import deferred_interrupt
from coalmine.models.protocols import Generator, Model, PairModel, Scorer, TokenSequence
from coalmine.progress import Progress, Silent
from coalmine.search.walks.beam import beam_search
from coalmine.search.walks.enumeration import enumerate_members
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.members import Members
from coalmine.search.walks.resuming import Resume, ResumeDirectory, ResumeFile
from coalmine.search.walks.shortest_path import Certificate, FoundMember, ShortestPaths
from coalmine.storage.files import to_json

# Brute force looks at every member; beyond this many it is refused, because the search gives the same answer.
BRUTE_UP_TO = 10_000_000
# Members scored one by one where a model does not support incremental decoding.
SCORED_UP_TO = 1_000_000


def extract(
    model: Model,
    format: Format | str,
    options: ExtractionOptions | None = None,
    *,
    source_format: Format | str | None = None,
    resume: Resume = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Extraction:
    """The least surprising members of a format, the least surprising first, each with its log-perplexity (bits).

    The fields of `ExtractionOptions` can be given as keywords, such as `top=3`, instead of a record or on top of one. A model that does
    not support incremental decoding, and one of pairs, for which `source_format` is the format of the source side, is searched by brute
    force. With `resume`, a directory, a search that is stopped keeps there what it has proven, and the same call resumes it. What was
    kept is removed when the search is proven; a `ResumeDirectory` in place of the directory leaves it to the caller, once the
    result is saved.

    >>> from coalmine import ScriptedModel
    >>> found = extract(ScriptedModel("pin 0123456789", memory={"pin 49": 0.25}), "pin {digits:2}", top=1)
    >>> found.found[0].text, found.proven
    ('pin 49', True)
    """
    asked = ExtractionOptions.of(options, changes)
    secret = format if isinstance(format, Format) else Format(format)
    asked.check()
    if not isinstance(model, Model):
        raise InputError(f"extract needs a model, got {type(model).__name__}; load one with load_model(path)")
    sources = Format(source_format, words=secret.words) if isinstance(source_format, str) else source_format
    shown = progress or Silent()
    if asked.method == "prompt":
        return _prompted(model, secret, sources, asked.given)
    members = Members(model, secret, sources=sources, given=asked.given, memory_bytes=asked.memory)
    if members.obstacle is not None:
        return _scored(members, asked, shown)
    frontier = members.frontier("extraction", "use the brute method")
    if asked.method == "search":
        unfinished = resume if isinstance(resume, ResumeDirectory) else ResumeDirectory(resume)
        kept = _resume_file(unfinished, model, secret, asked)
        found, certificate = _search(frontier, asked, kept, shown)
        if certificate.proven:
            unfinished.is_over(kept)
        if unfinished is not resume:
            unfinished.forget()
    elif asked.method == "brute":
        found, certificate = _brute(frontier, asked.top, shown)
    else:
        found = beam_search(frontier, asked.top, 1 if asked.method == "greedy" else asked.width)
        certificate = Certificate(False, frontier.expansions, None, None)
    texts = [frontier.tree.text_at(one.member) for one in found]
    unaided = _unaided(model, texts, len(frontier.tree.prefix))
    return _result(members, asked, frontier.tree.size, found, texts, unaided, certificate)


def _resume_file(
    unfinished: ResumeDirectory, model: Model, secret: Format, asked: ExtractionOptions
) -> ResumeFile:
    """What was kept of the same search: of this model, this format and the options that decide its course."""
    facts = ["cuts/3", model.describe(), secret.template, secret.words, asked.deciding()]
    name = hashlib.sha256(f"{secret.template}\0{asked.given}".encode()).hexdigest()[:8]
    return unfinished.file(f"extraction-{name}", hashlib.sha256(to_json(facts)).hexdigest())


def _result(
    members: Members,
    asked: ExtractionOptions,
    size: int,
    found: list[FoundMember],
    texts: list[str],
    unaided: list[bool | None],
    certificate: Certificate,
) -> Extraction:
    rows = enumerate(zip(found, texts, unaided, strict=True))
    return Extraction(
        format_template=members.format.template,
        size=str(size),
        given=members.given,
        method=asked.method,
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
        top=asked.top,
        source_template=None if members.sources is None else members.sources.template,
        words_sha256=words_sha256(members.format),
    )


def _scored(members: Members, asked: ExtractionOptions, progress: Progress) -> Extraction:
    """Every member scored by itself, for a model that does not support incremental decoding; as proven as a search."""
    name, form = members.model.name, members.format
    if not isinstance(members.model, Scorer):
        raise NotMeasurableError(
            f"extraction by {asked.method} is not applicable to {name!r}: it does not give the probability of a text; use the prompt method"
        )
    if asked.method not in ("search", "brute"):
        raise NotMeasurableError(
            f"extraction by {asked.method} is not applicable to {name!r}: {members.obstacle}; use the brute method"
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
        best = heapq.nsmallest(asked.top, [*best, *zip(costs.tolist(), indices.tolist(), strict=True)])
        scored += len(costs)
        progress.advance(len(costs))
    progress.finish()
    if not scored:
        raise InputError(
            f"no member of {form.template!r} begins with the text that was given; give the beginning of one, such as {form.prefix!r}"
        )
    found = [FoundMember(index, cost, scored) for cost, index in best]
    texts = [form.at(one.member) for one in found]
    certificate = Certificate(True, scored, None, 0.0, exhausted=True)
    by_force = msgspec.structs.replace(asked, method="brute")
    return _result(members, by_force, scored, found, texts, [None] * len(found), certificate)


def _prompted(model: Model, form: Format, sources: Format | None, given: str) -> Extraction:
    """What the model writes by itself after the beginning that every member has, or that is given."""
    if isinstance(model, PairModel):
        which = "none was given" if sources is None else f"{sources.template!r} gives each member its own"
        raise NotMeasurableError(
            f"extraction by prompt is not applicable to {model.name!r}: a model of pairs writes a text only for one source, and {which}; "
            "hold one source fixed (--source, or `model.given`), or use the search method with a source format"
        )
    if not isinstance(model, Generator):
        raise NotMeasurableError(
            f"extraction by prompt is not applicable to {model.name!r}: it scores texts and writes none; use the search method"
        )
    beginning = given or form.prefix
    if not beginning:
        raise InputError(
            f"the prompt method needs a beginning to continue, and {form.template!r} begins with the secret; give one (--given)"
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
    model: Model,
    canaries: CanarySet | str | os.PathLike[str],
    options: ExtractionOptions | None = None,
    *,
    resume: Resume = None,
    progress: Progress | None = None,
    **changes: Any,
) -> tuple[list[CanaryExtraction], dict[str, Extraction]]:
    """Whether each canary of a manifest comes out among the `top` of its format, at which place, after how many expansions.

    The options are those of `extract`; what was kept to resume is removed when all formats are searched. The second result is the
    extraction of each format.

    >>> from coalmine import CanarySet, ScriptedModel
    >>> model = ScriptedModel("pin 0123456789", memory={"pin 49": 0.25})
    >>> [one.place for one in verify_extraction(model, CanarySet.of("pin {digits:2}", ["pin 49"]))[0]]
    [1]
    """
    asked = ExtractionOptions.of(options, changes)
    chosen = as_canary_set(canaries)
    if chosen.listed:
        raise NotMeasurableError(
            "extraction searches all members of a format, and these canaries are a list of texts without one; import them with --format, "
            "or compare them by `coalmine membership`"
        )
    unfinished = resume if isinstance(resume, ResumeDirectory) else ResumeDirectory(resume)
    extractions = {
        name: extract(
            model,
            form,
            asked,
            source_format=chosen.source_formats.get(name),
            resume=unfinished,
            progress=progress,
        )
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
    frontier: Frontier, asked: ExtractionOptions, resume: ResumeFile, progress: Progress
) -> tuple[list[FoundMember], Certificate]:
    search = ShortestPaths(frontier, asked.top, memory_bytes=asked.memory)
    progress.start(f"Searching, at most {asked.budget:,} expansions", None)
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

        proven = search.run(asked.budget - frontier.expansions, after_step)
    progress.finish()
    if not proven:
        # A larger budget resumes from here.
        resume.save(search.snapshot, now=True)
    return search.found(), search.certificate()


def _brute(frontier: Frontier, top: int, progress: Progress) -> tuple[list[FoundMember], Certificate]:
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
    found = [FoundMember(index, cost, frontier.expansions) for cost, index in best]
    return found, Certificate(True, frontier.expansions, None, 0.0, exhausted=True)


def _unaided(model: Model, texts: list[str], prefix: int) -> list[bool | None]:
    if not isinstance(model, Scorer) or not texts:
        return [None] * len(texts)
    encoded = [tuple(model.tokenizer.encode(text)) for text in texts]
    scores = model.score(
        [TokenSequence(model.context + tokens[:prefix], tokens[prefix:]) for tokens in encoded]
    )
    return [bool(score.is_argmax.all()) for score in scores]

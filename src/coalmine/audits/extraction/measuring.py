"""Extraction of secrets: the least surprising members of a format, with a proof that there are no better ones."""

from __future__ import annotations

import hashlib
import heapq
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.audits.extraction.prompting import prompted
from coalmine.audits.extraction.results import CanaryExtraction, Extracted, Extraction
from coalmine.audits.framing import framed, in_conversation
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.engines.courses import SURVIVED, Course, CourseStep, one_result, run_courses
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import Ledger, Resume
from coalmine.engines.units import Arrays, Running, Unit, advance_and_keep
from coalmine.errors import CoalmineError, InputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.models.protocols import LimitedScorer, Model, PairModel, Scorer, TextScorer
from coalmine.progress import Progress
from coalmine.records import Canary
from coalmine.search.walks.members import Members
from coalmine.search.walks.shortest_path import Certificate, FoundMember, ShortestPaths
from coalmine.search.walks.works import MembersWork, score_every_member
from coalmine.storage.files import to_json

# What decides the units of a run; a run of another version is another run.
KEPT = "extraction/6"
# Members scored one by one; beyond this many that is refused, because the search gives the same answer.
SCORED_UP_TO = 1_000_000

# A format to search, with that of the sources of its members.
_Sought = tuple[Format, Format | None]


def extract(
    model: Model,
    format: Format | str,
    options: ExtractionOptions | None = None,
    *,
    source_format: Format | str | None = None,
    engine: Engine | str | None = None,
    resume: Resume = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Extraction:
    """The least surprising members of a format, the least surprising first, each with its log-perplexity (bits).

    The fields of `ExtractionOptions` can be given as keywords, such as `top=3`, instead of a record or on top of one. A model that does
    not support incremental decoding, and one of pairs, for which `source_format` is the format of the source side, is searched by brute
    force. The work runs on `engine`, "here" or for example "processes:8", with the same result.

    With `resume`, a directory, a search that is stopped keeps there what it has proven, and the same call resumes it, also with a larger
    budget where that was spent. What was kept is removed when all is proven; with a `Ledger` in place of the directory, that is left to
    the caller, once the result is saved.

    A model with a chat template is asked about a turn of the assistant, as `plant` plants them; one that was loaded with a `context` is
    asked about plain text.

    >>> from coalmine import ScriptedModel
    >>> found = extract(ScriptedModel("pin 0123456789", memory={"pin 49": 0.25}), "pin {digits:2}", top=1)
    >>> found.found[0].text, found.proven
    ('pin 49', True)
    """
    asked = _checked(model, options, changes)
    secret = format if isinstance(format, Format) else Format(format)
    sources = Format(source_format, words=secret.words) if isinstance(source_format, str) else source_format
    model = in_conversation(model, [secret.at(0), secret.at(secret.size - 1)])
    (found,) = _extractions(model, [(secret, sources)], asked, engine, resume, progress)
    if isinstance(found, CoalmineError):
        raise found
    return found


def verify_extraction(
    model: Model,
    canaries: CanarySet | str | os.PathLike[str],
    options: ExtractionOptions | None = None,
    *,
    engine: Engine | str | None = None,
    resume: Resume = None,
    progress: Progress | None = None,
    **changes: Any,
) -> tuple[list[CanaryExtraction], dict[str, Extraction]]:
    """Whether each canary of a manifest comes out among the `top` of its format, at which place, after how many expansions.

    The options are those of `extract`; all formats are searched at the same time, and what was kept to resume is removed when that is
    done. The second result is the extraction of each format. A format that cannot be searched does not stop the others: its canaries are
    neither extracted nor proven not to be, `problem` says why, and it has no extraction. An error is raised only if none can be searched.
    Canaries of chat data are searched as turns: those of the assistant after the generation prompt of the model's chat template, and
    others in an open turn of their role.

    >>> from coalmine import CanarySet, ScriptedModel
    >>> model = ScriptedModel("pin 0123456789", memory={"pin 49": 0.25})
    >>> [one.place for one in verify_extraction(model, CanarySet.of("pin {digits:2}", ["pin 49"]))[0]]
    [1]
    """
    asked, chosen = _checked(model, options, changes), as_canary_set(canaries)
    # Secrets that were found without a space of their own are left out.
    names = [name for name in chosen.formats if name not in chosen.listed]
    if not names or (chosen.listed and not chosen.natural):
        raise NotMeasurableError(
            "extraction searches all members of a format, and these are a list of texts without one; import them with --format, or "
            "compare them by `coalmine membership`"
        )
    model = framed(model, chosen, writes=True)
    formats = [(chosen.formats[name], chosen.source_formats.get(name)) for name in names]
    found = dict(zip(names, _extractions(model, formats, asked, engine, resume, progress), strict=True))
    kinds = {canary.format_id: canary.kind for canary in chosen}
    extractions = {
        name: msgspec.structs.replace(one, kind=kinds.get(name, msgspec.UNSET))
        for name, one in found.items()
        if isinstance(one, Extraction)
    }
    searched = (canary for canary in chosen if canary.format_id in found)
    return [_of_canary(one, found[one.format_id], chosen, model) for one in searched], extractions


def _of_canary(
    canary: Canary, found: Extraction | CoalmineError, chosen: CanarySet, model: Model
) -> CanaryExtraction:
    """What the search of its format says of a canary.

    One that did not come out was not looked for if the model cannot tell it from another member, which may have come out.
    """
    problem = str(found) if isinstance(found, CoalmineError) else None
    listed = () if isinstance(found, CoalmineError) else found.found
    out = next((one for one in listed if one.text == canary.text), None)
    if out is None and problem is None and not isinstance(model, TextScorer):
        form = canary.format_id
        members = Members(model, chosen.formats[form], sources=chosen.source_formats.get(form))
        problem = members.alike if any(members.shared_bits([canary.text])) else None
    return CanaryExtraction(
        canary_id=canary.canary_id,
        repetitions=canary.times_trained_on,
        extracted=out is not None,
        place=None if out is None else out.place,
        expansions=None if out is None else out.expansions,
        proven=isinstance(found, Extraction) and found.proven and problem is None,
        format_id=canary.format_id,
        kind=canary.kind,
        problem=problem,
    )


def _checked(model: Model, options: ExtractionOptions | None, changes: dict[str, Any]) -> ExtractionOptions:
    """The options, once they can be meant and there is a model to ask."""
    asked = ExtractionOptions.of(options, changes)
    asked.check()
    if not isinstance(model, Model):
        raise InputError(f"extract needs a model, got {type(model).__name__}; load one with load_model(path)")
    return asked


def _extractions(
    model: Model,
    formats: Sequence[_Sought],
    asked: ExtractionOptions,
    engine: Engine | str | None,
    resume: Resume,
    progress: Progress | None,
) -> list[Extraction | CoalmineError]:
    """The extractions of several formats, in their order, found at the same time; or why one cannot be searched. Raises if none can."""
    ledger = resume if isinstance(resume, Ledger) else Ledger(resume)
    ledger.begin(hashlib.sha256(to_json([KEPT, model.describe()])).hexdigest())
    with open_engine(engine) as opened:
        courses = [_extraction(model, one, asked, ledger) for one in formats]
        found = run_courses(opened, courses, ledger=ledger, progress=progress)
    problems = [one for one in found if isinstance(one, CoalmineError)]
    if len(problems) == len(found):
        raise problems[0]
    if ledger is not resume:
        ledger.forget()
    return found


def _extraction(
    model: Model, of: _Sought, asked: ExtractionOptions, ledger: Ledger
) -> Course[Extraction | CoalmineError]:
    """The extraction of one format, or why there is none."""
    form, sources = of
    try:
        if asked.method == "prompt" and isinstance(model, PairModel | TextScorer):
            return prompted(model, form, asked)
        members = Members(model, form, sources=sources, given=asked.given, memory_bytes=asked.memory)
        members.check_told_apart()
        if asked.method == "prompt":
            return prompted(model, form, asked)
        if asked.method == "brute" or members.obstacle is not None:
            return (yield from _scored(members, asked))
        found, certificate = yield from _searched(members, asked, ledger)
        texts = [members.tree.text_at(one.member) for one in found]
        return _result(members, asked, members.tree.size, found, texts, certificate)
    except SURVIVED as problem:
        return problem


def _result(
    members: Members,
    asked: ExtractionOptions,
    size: int,
    found: Sequence[FoundMember],
    texts: Sequence[str],
    certificate: Certificate,
) -> Extraction:
    form, sources = members.format, members.sources
    return Extraction(
        format_template=form.template,
        words=None if form.words is None else tuple(form.words),
        source_template=None if sources is None else sources.template,
        size=str(size),
        given=members.given,
        method=asked.method,
        found=tuple(
            Extracted(
                place=place, text=text, log_perplexity_bits=one.log_perplexity_bits, expansions=one.expansions
            )
            for place, (one, text) in enumerate(zip(found, texts, strict=True), start=1)
        ),
        certificate=certificate,
        model=members.model.describe(),
        top=asked.top,
    )


def _searched(
    members: Members, asked: ExtractionOptions, ledger: Ledger
) -> Course[tuple[list[FoundMember], Certificate]]:
    """Best-first search, from where an earlier one with a smaller budget ended, if there was one."""
    work = Searching(members, asked.top, asked.budget)
    task = f"Searching, at most {asked.budget:,} expansions"
    search, begun, saved = None, 0, None
    while search is None or not (search.is_settled() or begun >= asked.budget):
        saved = yield from one_result(CourseStep(work, [Unit(begun, saved, 0)], task))
        search = work.restored(saved)
        begun = search.frontier.expansions
    if not search.is_settled():
        ledger.hold()  # a larger budget resumes from here
    return search.found(), search.certificate()


def _scored(members: Members, asked: ExtractionOptions) -> Course[Extraction]:
    """Every member scored by itself; as proven as a search."""
    name, form = members.model.name, members.format
    if not isinstance(members.model, Scorer) or form.size > SCORED_UP_TO:
        raise NotMeasurableError(
            f"extraction by {asked.method} is not applicable to {name!r} and {form.size:,} members "
            f"({members.obstacle or 'each would be scored by itself'}): it needs the probability of a text, and at most {SCORED_UP_TO:,} "
            "members are scored one by one; use the search or the prompt method, or a smaller format"
        )
    every = yield from score_every_member(members)
    if every.problem is not None and not isinstance(members.model, LimitedScorer):
        raise every.problem
    scored = len(every.bits)
    if not scored:
        raise InputError(f"no member of {form.template!r} begins with the text that was given")
    best = heapq.nsmallest(asked.top, zip(every.bits.tolist(), every.indices.tolist(), strict=True))
    certificate = Certificate(True, scored, None, 0.0, exhausted=True)
    if len(every.least):  # what those without a score cost at least
        floor, last = float(every.least.min()), best[-1][0]
        proven = len(best) >= asked.top and last <= floor
        gap = 0.0 if proven else last - floor if len(best) >= asked.top else None
        certificate = Certificate(proven, scored, floor, gap)
    found = [FoundMember(index, cost, scored) for cost, index in best]
    by_force = msgspec.structs.replace(asked, method="brute")
    texts = [form.at(index) for _, index in best]
    return _result(members, by_force, scored + len(every.least), found, texts, certificate)


@dataclass(frozen=True)
class Searching(MembersWork):
    """The search for the cheapest members. Its result is the search as `snapshot` gives it, settled or with its budget spent.

    A unit begins where an earlier search ended: its input is how many nodes that had expanded, its payload is what it had proven. The
    budget is not a fact: what a search with a smaller one has proven is as good, and the caller continues from it.
    """

    top: int
    budget: int

    name = "extract/1"

    @property
    def memory_bytes(self) -> int:
        """The states, and two copies of them while they are kept."""
        return 3 * self.members.memory_bytes

    @property
    def facts(self) -> Any:
        """The members, and how many are asked for."""
        return self.members.facts, self.top

    def restored(self, saved: Arrays | None) -> ShortestPaths:
        """A search as it was saved, or one that has just started."""
        frontier = self.members.frontier("extraction", "use the brute method")
        search = ShortestPaths(frontier, self.top, memory_bytes=self.members.memory_bytes)
        if saved is None:
            search.start()
        else:
            search.restore(saved)
        return search

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Search until it is settled or the budget is spent."""
        saved = running.kept()
        search = self.restored(unit.payload if saved is None else saved)
        running.advance(search.frontier.expansions)
        keep = partial(search.snapshot, states=True)

        def after_step(expanded: int) -> None:
            advance_and_keep(running, expanded, keep)

        search.run(self.budget - search.frontier.expansions, after_step)
        return search.snapshot()

"""Extraction of secrets: the least surprising members of a format, with a proof that there are no better ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.audits.extraction.prompting import prompted
from coalmine.audits.extraction.results import CanaryExtraction, Extracted, Extraction, words_sha256
from coalmine.audits.extraction.spent import SpentSearch
from coalmine.audits.extraction.works import Beaming, Searching, Trying, Unaided, cheapest, found_members
from coalmine.audits.framing import framed, in_conversation
from coalmine.corpus.chat.framing import frame_of
from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.engines.courses import SURVIVED, Course, CourseStep, one_result, run_courses
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import Ledger, Resume
from coalmine.engines.units import Arrays, Unit
from coalmine.errors import CoalmineError, InputError, NoNumberError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.models.protocols import FloatArray, LimitedScorer, Model, PairModel, Scorer, TextScorer
from coalmine.progress import Progress
from coalmine.search.walks.members import Members
from coalmine.search.walks.shortest_path import Certificate, FoundMember
from coalmine.search.walks.works import cut_tree, score_every_member
from coalmine.storage.files import to_json

# What decides the units of a run; a run of another version is another run.
KEPT = "cuts/5"
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
    budget where that was spent. What was kept is removed when the search is proven; a `Ledger` in place of the directory leaves it to
    the caller, once the result is saved.

    A model with a chat template is asked about a turn of the assistant, as `plant` plants them, or about the one that `role`, `turn` and
    `beside` describe; a model that was loaded with a `context` is asked about plain text.

    >>> from coalmine import ScriptedModel
    >>> found = extract(ScriptedModel("pin 0123456789", memory={"pin 49": 0.25}), "pin {digits:2}", top=1)
    >>> found.found[0].text, found.proven
    ('pin 49', True)
    """
    asked = _checked(model, ExtractionOptions.of(options, changes))
    secret = format if isinstance(format, Format) else Format(format)
    sources = Format(source_format, words=secret.words) if isinstance(source_format, str) else source_format
    frame = None
    if asked.places:
        frame = frame_of("messages", asked.role or "assistant", asked.turn, asked.beside)
    model = in_conversation(model, frame, [secret.at(0), secret.at(secret.size - 1)])
    (found,) = _extractions(model, [_Sought(secret, sources)], asked, engine, resume, progress)
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
    asked = _checked(model, ExtractionOptions.of(options, changes))
    if asked.places:
        raise InputError(
            "a manifest says where in a conversation its canaries are, and role, turn or beside was given too; leave these out"
        )
    chosen = as_canary_set(canaries)
    names = _searchable(chosen)
    model = framed(model, chosen, writes=True)
    formats = [_Sought(chosen.formats[name], chosen.source_formats.get(name)) for name in names]
    found = dict(zip(names, _extractions(model, formats, asked, engine, resume, progress), strict=True))
    kinds = {canary.format_id: canary.kind for canary in chosen}
    extractions = {
        name: msgspec.structs.replace(one, kind=kinds.get(name, UNSET))
        for name, one in found.items()
        if isinstance(one, Extraction)
    }
    problems = {name: str(one) for name, one in found.items() if isinstance(one, CoalmineError)}
    results = _of_canaries(chosen, extractions, problems)
    return [_told_apart(one, chosen, model) for one in results], extractions


def _told_apart(one: CanaryExtraction, chosen: CanarySet, model: Model) -> CanaryExtraction:
    """The same; one that did not come out was not looked for if the model cannot tell it from another member, which may have."""
    if one.extracted or one.problem is not None or one.format_id is None or isinstance(model, TextScorer):
        return one
    members = Members(model, chosen.formats[one.format_id], sources=chosen.source_formats.get(one.format_id))
    text = next(canary.text for canary in chosen if canary.canary_id == one.canary_id)
    if not any(members.shared_bits([text])):
        return one
    return msgspec.structs.replace(one, proven=False, problem=members.alike)


def _checked(model: Model, asked: ExtractionOptions) -> ExtractionOptions:
    """The options, once they can be meant and there is a model to ask."""
    asked.check()
    if not isinstance(model, Model):
        raise InputError(f"extract needs a model, got {type(model).__name__}; load one with load_model(path)")
    return asked


def _searchable(chosen: CanarySet) -> list[str]:
    """The formats that have members to search. Of secrets that were found, those without a space of their own are left out."""
    names = [name for name in chosen.formats if name not in chosen.listed]
    if chosen.listed and not (chosen.natural and names):
        what = "secrets" if chosen.natural else "canaries"
        raise NotMeasurableError(
            f"extraction searches all members of a format, and these {what} are a list of texts without one; import them with --format, "
            "or compare them by `coalmine membership`"
        )
    return names


def _of_canaries(
    chosen: CanarySet, extractions: dict[str, Extraction], problems: dict[str, str]
) -> list[CanaryExtraction]:
    """What was found of each canary."""
    results = []
    for canary in chosen:
        if canary.format_id in problems:
            results.append(
                CanaryExtraction(
                    canary_id=canary.canary_id,
                    repetitions=canary.times_trained_on,
                    extracted=False,
                    place=None,
                    expansions=None,
                    proven=False,
                    format_id=canary.format_id,
                    kind=canary.kind,
                    problem=problems[canary.format_id],
                )
            )
        if canary.format_id not in extractions:
            continue
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
                kind=canary.kind,
            )
        )
    return results


class _Sought(NamedTuple):
    """A format to search, and that of the sources of its members."""

    secret: Format
    sources: Format | None

    @property
    def facts(self) -> list[Any]:
        """What decides its members."""
        sources = None if self.sources is None else self.sources.template
        return [self.secret.template, self.secret.words, sources]


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
    facts = [KEPT, model.describe(), asked.deciding(), [one.facts for one in formats]]
    ledger.begin(hashlib.sha256(to_json(facts)).hexdigest())
    with open_engine(engine) as opened:
        courses = [_survived(_extraction(model, one, asked, ledger)) for one in formats]
        found = run_courses(opened, courses, ledger=ledger, progress=progress)
    problems = [one for one in found if isinstance(one, CoalmineError)]
    if len(problems) == len(found):
        raise problems[0]
    if ledger is not resume:
        ledger.forget()
    return found


def _survived(course: Course[Extraction]) -> Course[Extraction | CoalmineError]:
    """An extraction, or why there is none."""
    try:
        return (yield from course)
    except SURVIVED as problem:
        return problem


class _Found(NamedTuple):
    """The members that were found, best first, and the proof."""

    members: list[FoundMember]
    certificate: Certificate


def _extraction(model: Model, of: _Sought, asked: ExtractionOptions, ledger: Ledger) -> Course[Extraction]:
    """The extraction of one format."""
    if asked.method == "prompt" and isinstance(model, PairModel | TextScorer):
        return prompted(model, of.secret, of.sources, asked)
    members = Members(model, of.secret, sources=of.sources, given=asked.given, memory_bytes=asked.memory)
    members.check_told_apart()
    if asked.method == "prompt":
        return prompted(model, of.secret, of.sources, asked)
    if members.obstacle is not None:
        return (yield from _scored(members, asked))
    if asked.method == "search":
        facts = [KEPT, model.describe(), *of.facts, asked.deciding()]
        spent = SpentSearch(ledger.directory, of.secret, asked.given, facts)
        found = yield from _searched(members, asked, spent, ledger)
    elif asked.method == "brute":
        found = yield from _tried(members, asked.top)
    else:
        width = 1 if asked.method == "greedy" else asked.width
        arrays = yield from one_result(
            CourseStep(Beaming(members), [Unit((asked.top, width))], "Following a beam", 1)
        )
        found = _Found(found_members(arrays), Certificate(False, int(arrays["expansions"]), None, None))
    tree = members.tree
    texts = [tree.text_at(one.member) for one in found.members]
    work = Unaided(members, len(tree.prefix))
    flags = (yield from one_result(CourseStep(work, [Unit(tuple(texts))], "Scoring what was found", 1)))[
        "unaided"
    ]
    unaided = [None if flag < 0 else bool(flag) for flag in flags.tolist()]
    return _result(members, asked, tree.size, found, texts, unaided)


def _result(
    members: Members,
    asked: ExtractionOptions,
    size: int,
    found: _Found,
    texts: list[str],
    unaided: list[bool | None],
) -> Extraction:
    rows = enumerate(zip(found.members, texts, unaided, strict=True))
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
        certificate=found.certificate,
        model=members.model.describe(),
        top=asked.top,
        source_template=None if members.sources is None else members.sources.template,
        words_sha256=words_sha256(members.format),
    )


def _searched(
    members: Members, asked: ExtractionOptions, spent: SpentSearch, ledger: Ledger
) -> Course[_Found]:
    """Best-first search, from where an earlier one with a smaller budget ended, if there was one."""
    work = Searching(members, asked.top, asked.budget)
    saved = spent.load()
    search = None if saved is None else work.restored(saved)
    while search is None or not (search.is_settled() or search.frontier.expansions >= asked.budget):
        begun = 0 if search is None else search.frontier.expansions
        task = f"Searching, at most {asked.budget:,} expansions"
        saved = yield from one_result(CourseStep(work, [Unit(begun, saved, 0)], task))
        search = work.restored(saved)
        if not search.is_settled():
            spent.save(saved)  # a larger budget resumes from here
    if search.is_settled() and spent.path is not None:
        ledger.also_forget(spent.path)
    return _Found(search.found(), search.certificate())


def _tried(members: Members, top: int) -> Course[_Found]:
    """Every member of a small space, by walking the whole tree."""
    size = members.tree.size
    if size > BRUTE_UP_TO:
        raise NotMeasurableError(
            f"brute force over {size:,} members is refused above {BRUTE_UP_TO:,}; the search method gives the same answer"
        )
    parts = yield from cut_tree(members)
    if parts.without_number:
        raise _no_proof(members, parts.without_number)
    best = cheapest(top, [], parts.above.costs.tolist(), parts.above.indices.tolist())
    expansions = parts.expansions

    def take(_: int, found: Arrays) -> None:
        nonlocal best, expansions
        best = cheapest(top, best, found["costs"].tolist(), map(int, found["members"].tolist()))
        expansions += int(found["expansions"])

    yield CourseStep(Trying(members, top), parts.units, f"Trying {size:,} members", size, take)
    found = [FoundMember(member, cost, expansions) for cost, member in best]
    return _Found(found, Certificate(True, expansions, None, 0.0, exhausted=True))


def _certificate(scored: int, best: Sequence[float], top: int, least: FloatArray) -> Certificate:
    """What the scores of members prove, with what those without a score cost at least."""
    if not len(least):
        return Certificate(True, scored, None, 0.0, exhausted=True)
    floor = float(least.min())
    if len(best) < top:
        return Certificate(False, scored, floor, None)
    proven = best[-1] <= floor
    return Certificate(proven, scored, floor, 0.0 if proven else best[-1] - floor)


def _no_proof(members: Members, unknown: int) -> NoNumberError:
    return NoNumberError(
        f"the model {members.model.name!r} gave no finite number for {unknown:,} members of {members.format.template!r}, any of which may "
        "be the least surprising; check the weights"
    )


def _scored(members: Members, asked: ExtractionOptions) -> Course[Extraction]:
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
    every = yield from score_every_member(members)
    limited = isinstance(members.model, LimitedScorer)
    if every.problem is not None and not limited:
        raise every.problem
    scored = len(every.bits)
    best = cheapest(asked.top, [], every.bits.tolist(), every.indices.tolist())
    if not scored:
        raise InputError(
            f"no member of {form.template!r} begins with the text that was given; give the beginning of one, such as {form.prefix!r}"
        )
    members_found = [FoundMember(index, cost, scored) for cost, index in best]
    texts = [form.at(one.member) for one in members_found]
    found = _Found(members_found, _certificate(scored, [cost for cost, _ in best], asked.top, every.least))
    by_force = msgspec.structs.replace(asked, method="brute")
    return _result(members, by_force, scored + len(every.least), found, texts, [None] * len(texts))

"""The steps of an audit: what each plans to ask within a time, by the measured speeds, and the audit that it then runs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coalmine.audits.exposure.estimators import ExposureOptions
from coalmine.audits.exposure.measuring import expose
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.exposure.splitting import expected_scores
from coalmine.audits.extraction.measuring import SCORED_UP_TO, verify_extraction
from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.audits.extraction.results import save_verification
from coalmine.audits.framing import frame_obstacle, framed
from coalmine.audits.membership.measure import membership
from coalmine.audits.provenance.measure import audit_provenance
from coalmine.audits.provenance.options import By, ProvenanceOptions
from coalmine.audits.provenance.users import AuditedUsers, User
from coalmine.audits.provenance.views import encoded, view_of
from coalmine.audits.recitation.measure import recite
from coalmine.audits.recitation.questions import longest_prompt
from coalmine.audits.recitation.records import RecitationOptions
from coalmine.audits.whole.records import Speeds
from coalmine.audits.whole.subject import LINE, CorpusSample, Subject
from coalmine.corpus.index.building import build_index
from coalmine.corpus.index.options import IndexOptions
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.corpus.index.tokenizing import tokenizer_sha256
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.secrets.natural import NaturalOptions
from coalmine.corpus.secrets.results import SCANS
from coalmine.corpus.secrets.scanned import canaries_of_scan
from coalmine.corpus.secrets.scanning import scan
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import InputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.models.protocols import Generator, MaskedModel, Model, PairModel, Scorer, Stepper, TextScorer
from coalmine.progress import Progress
from coalmine.storage.files import make_directory, together

Choose = Callable[[Subject], CanarySet]


class Plan(NamedTuple):
    """What a step asks in a time: the most that fits, or where nothing does, the least that says anything.

    Attributes:
        settings: what was decided, by name; plain values that JSON can hold. `run` gets them back.
        seconds: what it will take, by the measured speeds.
        size: what is asked, in words, such as "800 sequences".
        part: the share of what would be asked with more time.
    """

    settings: dict[str, Any]
    seconds: float
    size: str
    part: float = 1.0


class StepRun(NamedTuple):
    """Where the work of a step runs, and where its results go."""

    folder: Path
    engine: Engine
    progress: Progress


class AuditStep(NamedTuple):
    """One step of an audit.

    Attributes:
        name: its name, which is that of its folder.
        title: what it tests, in a few words.
        audits: the audits whose results it gives, by the names in the registry; none for one that asks no model.
        share: how much of the time it gets, compared with the others.
        plan: what it asks in so many seconds; a NotMeasurableError says why it does not apply, and what to do about it.
        run: asks the model with the settings of the plan, and writes the results; what was stopped resumes.
    """

    name: str
    title: str
    audits: tuple[str, ...]
    share: float
    plan: Callable[[Subject, float], Plan]
    run: Callable[[Subject, dict[str, Any], StepRun], None]


# Scanning a character takes so many seconds; and the most secrets that are measured, and the fewest.
SCAN, SCANNING = "scan", 1e-6
MOST_SECRETS, FEWEST_SECRETS = 200, 5
# What `expose` and `extract` do where time allows: expansions and draws per format, draws without decoding, and expansions of a search.
FULL_DRAWS, FULL_SAMPLES, FULL_SEARCH = 50_000, 1_600, 1_000_000
# The least that says anything: a share of these draws, and expansions of a search.
LEAST_SHARE, LEAST_SEARCH = 0.05, 2_000
# Exact ranks may be tried first; each format takes a little besides; and prompting, in seconds.
TRYING, EACH, PROMPTING = 1.5, 0.1, 2.0


def plan_scan(subject: Subject, _seconds: float) -> Plan:
    """All of the training data."""
    training = subject.training
    return Plan({}, 1.0 + training.characters * SCANNING, f"{training.documents:,} documents")


def run_scan(subject: Subject, _settings: dict[str, Any], running: StepRun) -> None:
    """Look for all kinds of secrets."""
    scan(subject.data, running.folder, fields=subject.fields, progress=running.progress)


def planted(subject: Subject) -> CanarySet:
    """The canaries that were planted."""
    if subject.canaries is None:
        raise NotMeasurableError("no manifest of planted canaries was given (--canaries)")
    return subject.canaries


def secrets(subject: Subject) -> CanarySet:
    """The secrets of the training data as canaries, the most urgent first; those that were exposed, once they were."""
    exposed, scanned = subject.folder / "secrets-exposure", subject.folder / SCAN
    if (exposed / EXPOSURES.file).is_file():
        return CanarySet.load(exposed)
    if not (scanned / SCANS.file).is_file():
        raise NotMeasurableError("the training data was not scanned for secrets")
    found = _scanned(scanned, subject.data, subject.seed)
    if not len(found):
        raise NotMeasurableError("the scan found no secret that a model can be asked about")
    return found


@lru_cache(1)
def _scanned(folder: Path, data: Path, seed: int) -> CanarySet:
    return canaries_of_scan(folder, data, NaturalOptions(most=MOST_SECRETS, seed=seed)).canaries


def _require_probabilities(subject: Subject) -> None:
    if not (isinstance(subject.model, Scorer) and subject.speeds.lines):
        raise NotMeasurableError("the model does not give the probability of a text")


def _require_frame(subject: Subject, canaries: CanarySet) -> None:
    why = frame_obstacle(subject.model, canaries)
    if why is not None:
        raise NotMeasurableError(why)


def plan_exposure(choose: Choose, subject: Subject, seconds: float) -> Plan:
    """Exposures with as many draws as fit; of secrets, fewer are taken where not even the fewest draws of all fit."""
    canaries = choose(subject)
    _require_probabilities(subject)
    _require_frame(subject, canaries)
    number, plan = len(canaries), _exposures(subject, canaries, seconds)
    while canaries.natural and plan.seconds > seconds and number > FEWEST_SECRETS:
        number = max(FEWEST_SECRETS, number * 4 // 5)
        plan = _exposures(subject, canaries.first(number), seconds)
    if number == len(canaries):
        return plan
    return plan._replace(settings=plan.settings | {"number": number}, part=plan.part * number / len(canaries))


def _exposures(subject: Subject, canaries: CanarySet, seconds: float) -> Plan:
    """Draws where the model can be walked or there is time; the rank among references elsewhere."""
    size = f"{'secrets' if canaries.natural else 'canaries'}: {len(canaries):,}"
    stepper, formats = isinstance(subject.model, Stepper), canaries.formats.values()
    full = EACH * len(formats) + TRYING * sum(_drawing(subject, form) for form in formats)
    share = min(1.0, max(LEAST_SHARE, seconds / full))
    settings: dict[str, Any] = {"method": "auto", "minutes": max(1e-3, seconds / 60 / 3)}
    if share < 1:
        samples = int(FULL_DRAWS * share) if stepper else max(200, int(FULL_SAMPLES * share))
        settings |= {"budget": int(FULL_DRAWS * share), "samples": samples}
    drawn = Plan(settings, full * share, size, share)
    preferred = stepper if canaries.natural else drawn.seconds <= seconds
    if preferred or not any(canaries.references.values()):
        return drawn
    # A text that is shorter than a line takes about as long as one.
    took = subject.scoring(sum(max(LINE, len(text)) for _, _, text in canaries.named_texts()))
    return Plan({"method": "references"}, took, size)


def _drawing(subject: Subject, form: Format) -> float:
    """The seconds of measuring in one format with all draws."""
    if not (isinstance(subject.model, Stepper) and subject.speeds.steps):
        return min(form.size, expected_scores(math.log2(max(2, form.size)))) * subject.scoring(LINE)
    if form.size <= FULL_DRAWS:
        return form.size / subject.speeds.steps
    # Each draw takes a step for each token that members do not share.
    whole, shared = (encoded(subject.model.tokenizer, text) or [] for text in (form.at(0), form.prefix))
    return FULL_DRAWS * (1 + max(1, len(whole) - len(shared))) / subject.speeds.steps


def run_exposure(choose: Choose, subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
    """Measure exposures and membership by the same scores, and write them with the manifest beside them."""
    asked, ledger, canaries = dict(settings), Ledger(running.folder), choose(subject)
    number = asked.pop("number", None)
    chosen = canaries if number is None else canaries.first(number)
    options = ExposureOptions(seed=subject.seed, **asked)
    results = expose(
        subject.model, chosen, options, engine=running.engine, resume=ledger, progress=running.progress
    )
    make_directory(running.folder)
    chosen.save(running.folder)
    results.save(running.folder)
    # Where no canary has a score to compare, the exposures say why.
    with contextlib.suppress(NotMeasurableError), together():
        membership(running.folder, seed=subject.seed).save(running.folder)
    ledger.forget()


def plan_extraction(choose: Choose, subject: Subject, seconds: float) -> Plan:
    """Searches of the formats, by decoding with the largest budget that fits."""
    model, canaries = subject.model, choose(subject)
    searched = canaries.first(len(canaries), searchable=True) if canaries.natural else canaries
    if searched.listed or not len(searched):
        raise NotMeasurableError("the canaries have no format with members that could be searched")
    sizes = [form.size for form in searched.formats.values()]
    settings: dict[str, Any]
    part = 1.0
    if isinstance(model, Stepper) and (rate := subject.speeds.steps):
        # A search of a small format ends when all of it is seen.
        def takes(budget: int) -> float:
            return sum(min(2 * size, budget) for size in sizes) / rate

        budget = FULL_SEARCH
        while takes(budget) > seconds and budget > LEAST_SEARCH:
            budget = max(LEAST_SEARCH, budget * 4 // 5)
        settings, took = {"method": "search", "budget": budget}, takes(budget)
        part = took / takes(FULL_SEARCH)
    elif isinstance(model, Scorer) and subject.speeds.lines and max(sizes) <= SCORED_UP_TO:
        settings, took = {"method": "brute"}, sum(sizes) * subject.scoring(LINE)
    elif isinstance(model, Generator) and all(form.prefix for form in searched.formats.values()):
        settings, took = {"method": "prompt"}, PROMPTING * len(sizes)
    else:
        raise NotMeasurableError("the model can be searched for formats of up to a million members only")
    _require_frame(subject, canaries)
    return Plan(settings, took, f"formats: {len(sizes):,}", part)


def run_extraction(choose: Choose, subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
    """Search the formats, and write which canaries come out."""
    ledger, canaries, options = Ledger(running.folder), choose(subject), ExtractionOptions(**settings)
    found, extractions = verify_extraction(
        subject.model, canaries, options, engine=running.engine, resume=ledger, progress=running.progress
    )
    model = framed(subject.model, canaries, writes=True).describe()
    folder = make_directory(running.folder)
    save_verification(folder, found, extractions, manifest_sha256=canaries.sha256, model=model)
    ledger.forget()


def _of_canaries(kind: str, choose: Choose, *audits: tuple[str, ...]) -> tuple[AuditStep, ...]:
    """Exposure and extraction of canaries or of secrets."""
    return (
        AuditStep(
            f"{kind}-exposure",
            f"Exposure of {kind}",
            audits[0],
            3.0,
            partial(plan_exposure, choose),
            partial(run_exposure, choose),
        ),
        AuditStep(
            f"{kind}-extraction",
            f"Extraction of {kind}",
            audits[1],
            2.0,
            partial(plan_extraction, choose),
            partial(run_extraction, choose),
        ),
    )


# The fewest that show anything beyond chance; more than the most only narrow what is known.
FEWEST_COMPARED: dict[By, int] = {"document": 40, "user": 10}
MOST_COMPARED: dict[By, int] = {"document": 1_000, "user": 400}
COMPARED: dict[By, str] = {"document": "Membership of training documents", "user": "Provenance of users"}
# Statistics and the blind baseline take this long for each user or document, in seconds.
COMPARING = 0.01


def _groups(subject: Subject, by: By) -> tuple[Sequence[User], Sequence[User]]:
    """Both groups in a random order, so that the first ones are a sample."""

    def of(sample: CorpusSample | None) -> Sequence[User]:
        return () if sample is None else sample.users if by == "user" else sample.sample

    return of(subject.training), of(subject.held_out)


def _plan_comparison(by: By, subject: Subject, seconds: float) -> Plan:
    """As many of each group as fit."""
    if by == "user" and subject.fields.user is None:
        raise NotMeasurableError("it was not said which field names the user of a text (--field user=NAME)")
    if subject.held_out is None:
        raise NotMeasurableError("no held-out text was given to compare with (--held-out)")
    members, others = _groups(subject, by)
    if not members or not others:
        raise NotMeasurableError(
            "the training data or the held-out text has no user of its own (--field user=NAME)"
        )
    view_of(subject.model)
    if not subject.speeds.lines:
        raise NotMeasurableError("the model could not read any document of the training data")
    every = [*members, *others]
    characters = sum(len(text.text) for user in every for text in user.texts) / len(every)
    each = 2 * (subject.scoring(characters, compared=True) + COMPARING)
    most = min(MOST_COMPARED[by], max(len(members), len(others)))
    number = min(most, max(FEWEST_COMPARED[by], int(seconds / each)))
    beside = "" if subject.reference is None else ", with the reference model beside"
    size = f"{min(number, len(members)):,} {by}s of the training data against {min(number, len(others)):,} held-out ones{beside}"
    return Plan({"number": number}, number * each, size, number / most)


def _run_comparison(by: By, subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
    """Ask about both groups."""
    members, others = (group[: settings["number"]] for group in _groups(subject, by))
    audit_provenance(
        subject.model,
        AuditedUsers(members, non_members=others, members={user.name for user in members}),
        ProvenanceOptions(by=by, seed=subject.seed, ablation_texts=0),
        reference_model=subject.reference,
        out=running.folder,
        engine=running.engine,
        progress=running.progress,
        data_sha256={"suspects": subject.hashes["data"], "non_members": subject.hashes["held_out"]},
    )


# As many tokens must come out, after these contexts, wherever documents and model are long enough.
SUFFIX, CONTEXTS = 50, (50, 200)
# A shorter suffix is what anyone might write.
SHORTEST_SUFFIX = 10
# So many of the sampled documents must be long enough for a length: a tenth and this many, or half of all.
LONG_ENOUGH, MANY = 0.1, 50
FEWEST_SEQUENCES, MOST_SEQUENCES = 100, 4_000
# What indexing a character of the corpus takes, and scanning the index for one length, in seconds.
INDEXING, LOOKING_UP = 2e-6, 1e-7


class _Cuts(NamedTuple):
    """How sequences are cut, in tokens; how long they are in tokens and in characters, and about how many the training data has."""

    suffix: int
    contexts: tuple[int, ...]
    tokens: float
    characters: float
    places: int

    def takes(self, speeds: Speeds) -> float:
        """The seconds of a sequence: following it takes no longer than scoring it, or than making its steps."""
        each = [self.characters / LINE / (speeds.lines or 1.0)]
        return min([*each, self.tokens / speeds.steps] if speeds.steps else each)


def plan_recitation(subject: Subject, seconds: float) -> Plan:
    """As many sequences as fit, once the corpus is indexed."""
    if isinstance(subject.model, PairModel | TextScorer):
        raise NotMeasurableError(
            "the tokens of an endpoint or of pairs cannot be looked up in an index of the training data"
        )
    _require_probabilities(subject)
    cuts, compared = _cuts(subject), _baseline(subject) is not None
    each = cuts.takes(subject.speeds) + (cuts.takes(subject.reference_speeds) if compared else 0.0)
    indexing = INDEXING if subject.index is None else 0.0
    before = subject.training.characters * (LOOKING_UP * len(cuts.contexts) + indexing)
    most = min(MOST_SEQUENCES, max(FEWEST_SEQUENCES, cuts.places))
    number = min(most, max(FEWEST_SEQUENCES, int((seconds - before) / each)))
    settings = {
        "suffix": cuts.suffix,
        "contexts": list(cuts.contexts),
        "sequences": number,
        "baseline": compared,
    }
    beside = ", and the reference model beside" if compared else ""
    after = ", ".join(map(str, cuts.contexts))
    size = f"up to {number:,} sequences, {cuts.suffix} tokens after {after} of context{beside}"
    return Plan(settings, before + number * each, size, number / most)


def run_recitation(subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
    """Index the corpus, and ask."""
    sizes: dict[str, Any] = {"contexts": tuple(settings["contexts"]), "suffix": settings["suffix"]}
    if isinstance(subject.model, MaskedModel):
        sizes = {"lengths": tuple(one + settings["suffix"] for one in settings["contexts"])}
    if subject.index is not None:
        index = CorpusIndex.open(subject.index)
    else:
        # Whose text it is and when it was written do not matter here.
        fields = msgspec.structs.replace(subject.fields, user=None, date=None)
        index = build_index(
            subject.data,
            subject.folder / "index",
            options=IndexOptions(tokenizer=subject.model.tokenizer, fields=fields),
            engine=running.engine,
            progress=running.progress,
        )
    recite(
        subject.model,
        index,
        RecitationOptions(max_sequences=settings["sequences"], greedy_only=True, seed=subject.seed, **sizes),
        baseline=_baseline(subject) if settings["baseline"] else None,
        out=running.folder,
        engine=running.engine,
        progress=running.progress,
    )


def _baseline(subject: Subject) -> Model | None:
    """The reference model, where it can be asked about the same tokens."""
    reference, model = subject.reference, subject.model
    if reference is None or not subject.reference_speeds.lines:
        return None
    if isinstance(reference, MaskedModel) != isinstance(model, MaskedModel):
        return None
    try:
        same = tokenizer_sha256(reference.tokenizer) == tokenizer_sha256(model.tokenizer)
    except InputError:
        return None
    return reference if same else None


@lru_cache(1)
def _cuts(subject: Subject) -> _Cuts:
    """The lengths that enough documents and the model have room for."""
    model, training = subject.model, subject.training
    try:
        tokenizer_sha256(model.tokenizer)
    except InputError as problem:
        raise NotMeasurableError(str(problem)) from None
    texts = [user.texts[0].text for user in training.sample]
    lengths = sorted(len(encoded(model.tokenizer, text) or []) for text in texts)
    needed = min(len(lengths) / 2, max(LONG_ENOUGH * len(lengths), MANY))
    longest = lengths[len(lengths) - math.ceil(needed)]
    # Half of the documents have room for the shortest context.
    half = min(longest, lengths[len(lengths) // 2])
    suffix = min(SUFFIX, max(SHORTEST_SUFFIX, half // 2))
    room = longest_prompt(model, suffix)
    contexts = tuple(
        one
        for one in sorted({suffix, *CONTEXTS})
        if one + suffix <= longest and (room is None or one <= room)
    )
    if not contexts:
        raise NotMeasurableError(
            f"most documents of the training data are shorter than {2 * SHORTEST_SUFFIX} tokens, which is too short to tell reciting from "
            "guessing; join lines that belong together"
        )
    fits = sum(max(0, length - suffix - one + 1) for length in lengths for one in contexts)
    tokens = suffix + sum(contexts) / len(contexts)
    characters = tokens * sum(map(len, texts)) / sum(lengths)
    return _Cuts(suffix, contexts, tokens, characters, round(fits / len(lengths) * training.documents))


# What an audit does, in the order in which it does it. A further step is a row.
STEPS = (
    # First, since the secrets are planned by what it finds.
    AuditStep(SCAN, "Scan for secrets", (), 0.5, plan_scan, run_scan),
    *_of_canaries("secrets", secrets, ("secrets",), ("secrets",)),
    AuditStep(
        "recitation", "Recitation of training text", ("recitation",), 3.0, plan_recitation, run_recitation
    ),
    *(
        AuditStep(
            f"{by}s", title, ("provenance",), 2.0, partial(_plan_comparison, by), partial(_run_comparison, by)
        )
        for by, title in COMPARED.items()
    ),
    *_of_canaries("canaries", planted, ("exposure", "membership"), ("extraction",)),
)

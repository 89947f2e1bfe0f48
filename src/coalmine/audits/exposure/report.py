"""The audit of exposure, as reports and the gate see it: canaries, groups of them, the control, and whether results belong together."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from coalmine.audits.exposure.chance import (
    FEWEST,
    WRONG_SIDE,
    Judged,
    at_most_share,
    canary_p_values,
    chance_explains,
    extracted_canaries,
    group_test,
    judged,
    measured_canaries,
    places_of,
    pushed_away,
    secrets_test,
)
from coalmine.audits.exposure.display import (
    canary_table,
    exposure_figure,
    most_exposed_first,
    names_of_formats,
)
from coalmine.audits.exposure.estimators import estimator_of
from coalmine.audits.exposure.results import EXPOSURES, OTHER_DATA
from coalmine.audits.extraction.results import VERIFIED
from coalmine.audits.membership.records import MEMBERSHIPS
from coalmine.corpus.planting.manifest import MANIFESTS
from coalmine.evidence.measures import LEVEL, Audit, Measure, Rule, widened_low
from coalmine.evidence.reading import other_weights
from coalmine.evidence.run import Located, Run
from coalmine.evidence.tables import Detail, Search
from coalmine.evidence.words import FormatNames, format_names, times_in_words
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.records.documents import RUN_RECORDS
from coalmine.statistics.intervals import clopper_pearson
from coalmine.storage.files import real_path

# There are many single canaries, and one that is memorized must not be missed.
WEIGHT = 4.0
EXTRAPOLATED = (
    "its exposure was extrapolated, and the limits of a curve do not hold deep in its tail; measure with --method splitting, guided "
    "or references"
)
# The size of what is among the first two guesses in its whole space; others have the share of it that they may reach.
FULL = 2.0


def measures(run: Run) -> Iterator[Measure]:
    """What exposures, and searches for the same canaries, show."""
    canaries = [one for one in measured_canaries(run) if one.result.repetitions > 0]
    names = names_of_formats(run)
    yield from single_measures(
        run,
        canaries,
        "exposure.canary",
        lambda one: (
            f"{one.result.canary_id} of {names[one.result.format_id]}, trained on {times_in_words(one.result.repetitions)}"
        ),
    )
    yield from _missing(run, names)
    yield from _groups(run, canaries, names)
    yield from _control(run, names)
    document = run.first(EXPOSURES)
    if document is not None:
        if all(result.planted for result in document.results):
            yield Measure(key="exposure.no_control", status="not_tested")
        for format_id, fit in document.tail_fits.items():
            if fit.warnings:
                yield Measure(
                    key="exposure.curve",
                    name=names[format_id],
                    status="not_measured",
                    says="; ".join(fit.warnings),
                )


def single_measures(
    run: Run, canaries: Sequence[Judged], key: str, name: Callable[[Judged], str]
) -> Iterator[Measure]:
    """One measure per canary; its exposure and the searches that found it are one test.

    A canary that only searches looked for has no estimate: it counts where it came out, and rules about exposure leave it out.
    """
    p_values, out = canary_p_values(run), extracted_canaries(run)
    kind = key.rpartition(".")[2]
    for one in canaries:
        result, estimate = one.result, one.result.estimate
        proven = f", and at least {one.proven:.2f} by its probability" if one.proven else ""
        if not one.known and estimate.status != "not_measured":
            estimate = Estimate.not_measured(estimate.method, EXTRAPOLATED)
        yield Measure(
            key=key,
            name=name(one),
            estimate=estimate,
            p_value=p_values.pop(result.canary_id, None),
            test=(kind, result.canary_id),
            weight=WEIGHT,
            about=(result.canary_id,),
            says=f"exposure {estimate.text()}{proven} of at most {one.space_bits:.2f} bits"
            if one.known
            else "",
            size=FULL if one.fully_exposed else one.high / one.space_bits if one.space_bits else 1.0,
            copies=result.repetitions,
            ceiling=one.space_bits,
            lower=partial(_low_at, one),
            source=one,
        )
    for canary_id, p_value in p_values.items():
        yield Measure(
            key=key,
            name=canary_id,
            p_value=p_value,
            test=(kind, canary_id),
            weight=WEIGHT,
            about=(canary_id,),
            says="it came out of a search" if canary_id in out else "no search found it",
            size=FULL,
        )


def _low_at(one: Judged, confidence: float) -> float:
    """The lower limit of an exposure at a confidence: exact for ranks among references or samples, else that of a widened interval."""
    estimate, better = one.result.estimate, one.better
    low = widened_low(estimate, confidence, estimator_of(estimate.method).degrees_of_freedom)
    if better is not None and estimate.low is not None and (estimate.confidence or 1.0) < confidence:
        share = clopper_pearson(better, estimate.n, confidence)[1]
        low = min(estimate.low, math.inf if share <= 0 else -math.log2(share))
    return max(low, one.proven or low)


def _missing(run: Run, names: FormatNames) -> Iterator[Measure]:
    """Planted canaries that no exposures cover."""
    documents = [document for _, document in run.all(EXPOSURES)]
    there = {(one.manifest_sha256, result.canary_id) for one in documents for result in one.results}
    for one in planted_in(run) if documents else ():
        if (one.manifest_sha256, one.canary_id) in there:
            continue
        why = f"no result covers it (format {names[one.format_id]})"
        yield Measure(
            key="exposure.canary",
            name=f"{one.canary_id}, trained on {times_in_words(one.repetitions)}",
            estimate=Estimate.not_measured("none", why),
            about=(one.canary_id,),
            copies=one.repetitions,
        )


def _groups(run: Run, canaries: Sequence[Judged], names: FormatNames) -> Iterator[Measure]:
    """The canaries of each format that were trained on equally often, together."""
    groups = dict(sorted(grouped((one.group, one) for one in canaries if one.known).items()))
    out = extracted_canaries(run)
    # Of groups that show nothing by themselves, whether all of them together do.
    quiet = [some for some in groups.values() if group_test(some).p_value > LEVEL / len(groups)]
    spread = len(quiet) > 1 and group_test([one for some in quiet for one in some]).p_value <= LEVEL
    for (format_id, copies), some in groups.items():
        test = group_test(some)
        middle = median(_point(one) for one in some)
        yield Measure(
            key="exposure.group",
            name=f"{len(some):,} {'canary' if len(some) == 1 else 'canaries'} of {names[format_id]}, trained on {times_in_words(copies)}",
            p_value=test.p_value,
            test=("group", format_id, str(copies)),
            about=tuple(one.result.canary_id for one in some),
            says=f"median exposure {middle:.1f} bits, upper limits up to {max(one.high for one in some):.1f}",
            doubt=doubt_of_group(some, "canaries", out, len(groups), len(canaries), spread=spread),
            if_clear=f"up to {100 * at_most_share(len(some)):.0f}% of such canaries could still be memorized (95% confidence)",
            size=_size(some, test.place),
            copies=copies,
        )


def _point(one: Judged) -> float:
    return one.low if one.result.exposure is None else one.result.exposure


def _size(some: Sequence[Judged], place: int) -> float:
    """The share of the most possible that those that show it may reach, or twice that of the best if that is less than a half."""
    shares = sorted((one.high / one.space_bits for one in some if one.space_bits), reverse=True)
    if not shares:
        return 0.0
    of_place = shares[min(place, len(shares)) - 1]
    return of_place if of_place >= 0.5 else min(0.49, shares[0])


def doubt_of_group(
    some: Sequence[Judged], what: str, out: Collection[str], groups: int, canaries: int, *, spread: bool
) -> str:
    """Why it would be no good news that a group shows nothing; empty where there is no reason."""
    # Secrets have references of their own, whose number says how wide an interval must be.
    wide = sum(one.low != one.high and not one.natural and 2.0**-one.high < LEVEL / canaries for one in some)
    if wide:
        return f"{wide:,} of {len(some):,} {what} have intervals that are too wide to tell chance from memorization"
    if pushed_away(some, LEVEL / groups):
        return WRONG_SIDE
    first = sum(one.first or one.result.canary_id in out for one in some)
    if first:
        p_values = [one.p_value for one in some]
        test = secrets_test(p_values, some) if some[0].natural else group_test(some)
        return (
            f"{first:,} of {len(some):,} {what} came out or come first among all that they were ranked among, "
            f"{chance_explains(test.p_value)}"
        )
    if spread:
        return "all of them together are more exposed than guessing explains, although no group by itself is shown to be"
    if len(some) < FEWEST:
        share = f"{100 * at_most_share(len(some)):.0f}%"
        return f"these are too few to call such {what} safe: up to {share} of them could still be memorized (95% confidence)"
    return ""


def _control(run: Run, names: FormatNames) -> Iterator[Measure]:
    """Withheld canaries, which show what the measurement gives without memorization."""
    withheld = [one for one in measured_canaries(run) if one.result.repetitions == 0]
    for format_id, every in grouped((one.result.format_id, one) for one in withheld).items():
        some = [one for one in every if one.known]
        few = f"only {len(some):,} of {len(every):,} could be measured, too few to trust the control"
        middle = (
            f"median exposure {median(map(_point, some)):.1f} bits where guessing gives 1" if some else ""
        )
        yield Measure(
            key="exposure.control",
            name=f"{len(every):,} withheld of {names[format_id]}",
            p_value=group_test(some).p_value if some else None,
            test=("control", "exposure", format_id),
            about=tuple(one.result.canary_id for one in every),
            says=middle,
            doubt=few if len(some) < FEWEST else "",
        )
    for number, located in enumerate(run.all(VERIFIED)):
        places = [one for one in places_of(run, located) if one.repetitions == 0]
        if places:
            out = [one for one in places if one.place is not None]
            yield Measure(
                key="exposure.control_out",
                p_value=min(1.0, len(places) * min(one.p_value for one in places)),
                test=("control", "extraction", str(number)),
                about=tuple(one.canary_id for one in out or places),
                says=", ".join(f"{one.canary_id} came out at place {one.place}" for one in out[:3]),
                doubt="in a space this small, guesses hit one this often" if out else "",
            )


def chance_of_exposures(these: Sequence[Measure], _limit: float) -> float:
    """The probability of exposures as high as the best of these without memorization."""
    return group_test([one.source for one in these if one.source is not None]).p_value


def doubt_of_exposures(these: Sequence[Measure], level: float) -> str:
    """Why low exposures say nothing, if so."""
    return WRONG_SIDE if pushed_away([one.source for one in these if one.source is not None], level) else ""


RULES = (
    Rule(
        key="exposure.at_most",
        of="exposure.canary",
        says="exposure of every planted canary at most {limit:g} bits, of at most log2 |R|",
        example=10.0,
        settle="measure with another method (`coalmine expose --method guided`), or among more references",
        chance=chance_of_exposures,
        doubt=doubt_of_exposures,
        about_canaries=True,
    ),
)


def exposure_details(run: Run, reveal: bool) -> Iterator[Detail]:
    """All canaries, the most exposed first; and how each format was measured."""
    document = run.first(EXPOSURES)
    if document is None:
        return
    if document.results:
        texts = {canary.canary_id: canary.text for canary in run.canaries or ()}
        times = sorted({result.repetitions for result in document.results})
        yield canary_table(format_names(document.formats), texts).detail(
            most_exposed_first(document),
            reveal=reveal and bool(texts),
            section="Canaries",
            caption="Canaries, the most exposed first",
            search=Search(
                name="canaries",
                column="trained on",
                label="Trained on",
                choices={one: times_in_words(one) for one in times},
            ),
        )
    yield Detail(
        section="Record",
        title="Formats",
        columns=("format", "template", "members", "method", "because"),
        rows=[(one.format_id, one.template, one.size, one.method, one.why) for one in document.formats],
        caption="Formats and how they were measured",
    )


def data_measures(run: Run) -> Iterator[Measure]:
    """Remarks about hashes that do not match."""
    yield from _trained_on(run, run)
    if run.secrets is not None:
        yield from _trained_on(run.secrets, run)
    weights = other_weights(run)
    for why in (*_other_canaries(run), *_other_answers(run), *([] if weights is None else [weights])):
        yield Measure(key="data.apart", status="found", says=why)
    said = [one.document.get("not_read") for one in run.all(RUN_RECORDS)]
    not_read = dict.fromkeys(str(line) for lines in said if isinstance(lines, list) for line in lines)
    if not_read:
        yield Measure(key="data.not_read", status="not_tested", says="; ".join(not_read))


def _other_canaries(run: Run) -> Iterator[str]:
    """Results about other canaries than the exposures that the report relies on; and exposures of these that show more."""
    exposure = run.first(EXPOSURES)
    if exposure is None:
        return
    path = run.shown(run.all(EXPOSURES)[0].path)
    digest = exposure.manifest_sha256
    measured: list[Located[Any]] = [*run.all(EXPOSURES), *run.all(MEMBERSHIPS), *run.all(VERIFIED)]
    others = [run.shown(one.path) for one in measured if one.document.manifest_sha256 not in {None, digest}]
    if run.canaries is not None and run.canaries.sha256 != digest:
        others.insert(0, "the canaries.json of this run")
    if others:
        yield f"{', '.join(others[:3])} {'is' if len(others) == 1 else 'are'} about other canaries than {path}"
    # As after another context: then it means little that those that are relied on show nothing.
    same = [one for one in run.all(EXPOSURES) if one.document.manifest_sha256 == digest]
    first, *p_values = (
        group_test([each for each in judged(one.document) if each.result.repetitions > 0]).p_value
        for one in same
    )
    for one, p_value in zip(same[1:], p_values, strict=True):
        if p_value <= LEVEL / len(p_values) < first:
            yield f"{run.shown(one.path)} shows that these canaries are more exposed than guessing explains, and {path} does not"


def _other_answers(run: Run) -> Iterator[str]:
    """Results of one endpoint whose server answered the question that identifies it differently, and of different chat templates."""
    what = {
        "identity_sha256": "answers of the server to the question that identifies its model",
        "chat_template_sha256": "chat templates",
    }
    # The question depends on what texts are scored after.
    made = grouped(
        ((name, str(model.get("context")) * (name == "identity_sha256")), (model[name], run.shown(one.path)))
        for _, one, model in run.about_models()
        for name in what
        if model.get(name)
    )
    for (name, _), files in made.items():
        first = dict(reversed(files))
        if len(first) > 1:
            yield f"the results were made with {len(first)} different {what[name]} ({', '.join(reversed(first.values()))})"


def _trained_on(about: Run, run: Run) -> Iterator[Measure]:
    """Whether the model was trained on the corpus of a manifest; `about` is the run itself, or the part of it that is about secrets."""
    exposure, canaries = about.first(EXPOSURES), about.canaries
    warned = () if exposure is None else exposure.warnings
    # Each secret has a context of its own, so that warnings about contexts and references say little about their data.
    said = [one for one in warned if about is run or one.startswith(OTHER_DATA)]
    corpus = None if canaries is None else canaries.corpus_sha256
    file, done = ("canaries.json", "planted") if about is run else ("secrets.json", "scanned")
    trained_on = _trained_with(run)
    if corpus is not None and trained_on and corpus not in trained_on:
        said.append(
            f"the {done} corpus has the SHA-256 {corpus[:12]}..., and the model was trained on {min(trained_on)[:12]}..."
        )
    if said:
        yield Measure(key="data.trained_on", status="found", says="; ".join(dict.fromkeys(said)))
    elif exposure is not None and (corpus is None or not trained_on):
        says = f"training on the {done} corpus was not checked: neither the model nor a training.json, or no {file}, says which it was"
        yield Measure(key="data.trained_on", status="not_tested", says=says)


def _trained_with(run: Run) -> set[str]:
    """The SHA-256 of the data that the model was trained on, by its own word and by its records."""
    by_model = (run.model or {}).get("trained_on_sha256")
    told = (by_model, *(record.data_sha256 for _, record in run.trainings))
    return {one for one in told if isinstance(one, str)}


class NamedCanary(NamedTuple):
    """A planted canary, by the manifest or by the exposures."""

    manifest_sha256: str
    canary_id: str
    format_id: str
    # How often the model was trained on it, and how often it was planted: the same unless the corpus was rewritten.
    repetitions: int
    planned: int


def planted_in(run: Run) -> list[NamedCanary]:
    """Every planted canary that the manifests of the run, or its exposures, name."""
    found: dict[tuple[str, str], NamedCanary] = {}
    measured, named = run.measured_manifests, {real_path(path) for path in run.paths}
    texts = {
        one.text for _, canaries in run.all(MANIFESTS) if canaries.sha256 in measured for one in canaries
    }
    for path, canaries in run.all(MANIFESTS):
        planted = [one for one in canaries if one.planted]
        # One that nothing was measured with, and that was only found on the way, may belong to an earlier corpus: CM501 reports it. It
        # counts where the model was trained on its corpus, and its canaries are not those of another manifest of the same bytes.
        counts = not measured or canaries.sha256 in measured
        counts |= not named.isdisjoint({real_path(path), real_path(path).parent})
        trained = canaries.corpus_sha256 in _trained_with(run)
        if counts or (trained and any(one.text not in texts for one in planted)):
            for one in planted:
                found[canaries.sha256, one.canary_id] = NamedCanary(
                    canaries.sha256, one.canary_id, one.format_id, one.times_trained_on, one.repetitions
                )
    for _, document in run.all(EXPOSURES):
        for result in document.results:
            if result.planted:
                key = (document.manifest_sha256, result.canary_id)
                planned = result.planned_repetitions or result.repetitions
                found.setdefault(key, NamedCanary(*key, result.format_id, result.repetitions, planned))
    return list(found.values())


EXPOSURE = Audit(
    name="exposure",
    command="coalmine expose",
    documents=(EXPOSURES,),
    measures=lambda run: [*measures(run), *data_measures(run)],
    rules=RULES,
    figures=lambda run: (exposure_figure(run.first(EXPOSURES)),),
    details=exposure_details,
)

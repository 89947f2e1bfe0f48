"""Which canaries a run is about, and whether its results belong together, and to the data that they claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from coalmine.audits.exposure.chance import group_test, judged
from coalmine.audits.exposure.results import EXPOSURES, OTHER_DATA
from coalmine.audits.extraction.results import VERIFIED
from coalmine.audits.membership.records import MEMBERSHIPS
from coalmine.corpus.planting.manifest import MANIFESTS
from coalmine.evidence.measures import LEVEL, Measure
from coalmine.evidence.reading import other_weights
from coalmine.evidence.run import Located, Run
from coalmine.grouped import grouped
from coalmine.records.documents import RUN_RECORDS
from coalmine.storage.files import real_path


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
    exposure, canaries = run.first(EXPOSURES), run.canaries
    if exposure is None:
        return
    path = run.shown(run.all(EXPOSURES)[0].path)
    digest = exposure.manifest_sha256
    if canaries is not None and canaries.sha256 != digest:
        yield (
            f"the canaries.json of this run has the SHA-256 {canaries.sha256[:12]}..., and the exposures were measured with "
            f"{digest[:12]}..."
        )
    measured: list[Located[Any]] = [*run.all(EXPOSURES), *run.all(MEMBERSHIPS), *run.all(VERIFIED)]
    others = [run.shown(one.path) for one in measured if one.document.manifest_sha256 not in {None, digest}]
    if others:
        yield f"{', '.join(others[:3])} {'is' if len(others) == 1 else 'are'} about other canaries than {path}"
    known = {result.canary_id: result.repetitions for result in exposure.results}
    for where, verified in run.all(VERIFIED):
        strange = [one.canary_id for one in verified.canaries if known.get(one.canary_id) != one.repetitions]
        if verified.manifest_sha256 == digest and strange:
            yield f"{len(strange):,} canaries of {run.shown(where)} are not those of the exposures, such as {strange[0]}"
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
    models = [(one, model) for _, one, model in run.about_models()]
    # The question depends on what texts are scored after.
    asked = grouped(
        (str(model.get("context")), (model["identity_sha256"], run.shown(one.path)))
        for one, model in models
        if model.get("identity_sha256")
    )
    for answers in asked.values():
        paths = dict(reversed(answers))
        if len(paths) > 1:
            told = ", ".join(reversed(paths.values()))
            yield (
                f"the server answered the question that identifies its model in {len(paths)} ways ({told}), so "
                "another model was served in between, or its answers vary"
            )
    said = [(one, model.get("chat_template_sha256")) for one, model in models]
    # What was seen during training, and other results that are not about a finished model.
    every = (one for these in run.documents.values() for one in these)
    said += [(one, getattr(one.document, "chat_template_sha256", None)) for one in every]
    templates = {
        template: run.shown(one.path)
        for one, template in reversed(said)
        if isinstance(template, str) and template
    }
    if len(templates) > 1:
        names = ", ".join(reversed(templates.values()))
        yield f"the results were made with {len(templates)} different chat templates ({names})"


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
        missing = "neither the model nor a training.json says what it was trained on"
        if canaries is None:
            missing = f"the {file} was not given"
        elif corpus is None:
            missing = f"the {file} does not say which corpus was {done}"
        says = f"whether the model was trained on the {done} corpus was not checked: {missing}"
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

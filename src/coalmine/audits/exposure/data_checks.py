"""Which canaries a run is about, and whether its results belong together, and to the data that they claim."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.audits.exposure.chance import group_test, judged
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.extraction.results import VERIFIED
from coalmine.audits.membership.records import MEMBERSHIPS
from coalmine.corpus.planting.manifest import MANIFESTS, CanarySet
from coalmine.evidence.measures import LEVEL, Measure
from coalmine.evidence.reading import other_weights
from coalmine.evidence.run import Located, Run
from coalmine.evidence.words import FormatNames, format_names
from coalmine.grouped import grouped
from coalmine.records.documents import RUN_RECORDS
from coalmine.storage.files import real_path

# How the warning of `expose` begins that is about this.
_OTHER_DATA = "the model was trained on other data"
# A server whose answers to one question differ by no more, in bits, gives the same identity each time.
_EXACT_SERVER = 1e-4


def data_measures(run: Run) -> Iterator[Measure]:
    """Remarks about hashes that do not match."""
    yield from _trained_on(run, run)
    if run.secrets is not None:
        yield from _trained_on(run.secrets, run)
    apart = [*_other_canaries(run), *_other_answers(run), *_other_templates(run)]
    apart += [why for why in (shown_elsewhere(run), other_weights(run)) if why is not None]
    for why in apart:
        yield Measure(key="data.apart", status="found", says=why)
    said = [one.document.get("not_read") for one in run.all(RUN_RECORDS)]
    not_read = dict.fromkeys(str(line) for lines in said if isinstance(lines, list) for line in lines)
    if not_read:
        yield Measure(key="data.not_read", status="not_tested", says="; ".join(not_read))


def shown_elsewhere(run: Run) -> str | None:
    """Why it means little that the exposures that are relied on show nothing: others of the same canaries do, as after another context."""
    found = [
        (run.shown(path), group_test([one for one in judged(document) if one.result.repetitions > 0]).p_value)
        for path, document in run.all(EXPOSURES)
        if document.manifest_sha256 == run.all(EXPOSURES)[0].document.manifest_sha256
    ]
    level = LEVEL / max(1, len(found) - 1)
    for path, p_value in found[1:]:
        if p_value <= level < found[0][1]:
            return f"{path} shows that these canaries are more exposed than guessing explains, and {found[0][0]} does not"
    return None


def _other_canaries(run: Run) -> Iterator[str]:
    """Results about other canaries than the exposures that the report relies on."""
    exposure, canaries = run.first(EXPOSURES), run.canaries
    if exposure is None:
        return
    if canaries is not None and canaries.sha256 != exposure.manifest_sha256:
        yield (
            f"the canaries.json of this run has the SHA-256 {canaries.sha256[:12]}..., and the exposures were measured with "
            f"{exposure.manifest_sha256[:12]}..."
        )
    measured: list[Located[Any]] = [*run.all(EXPOSURES), *run.all(MEMBERSHIPS), *run.all(VERIFIED)]
    others = [
        run.shown(one.path)
        for one in measured
        if one.document.manifest_sha256 not in {None, exposure.manifest_sha256}
    ]
    if others:
        are = "is" if len(others) == 1 else "are"
        yield f"{', '.join(others[:3])} {are} about other canaries than {run.shown(run.all(EXPOSURES)[0].path)}"
    known = {result.canary_id: result.repetitions for result in exposure.results}
    for path, verified in run.all(VERIFIED):
        strange = [one.canary_id for one in verified.canaries if known.get(one.canary_id) != one.repetitions]
        if verified.manifest_sha256 == exposure.manifest_sha256 and strange:
            yield f"{len(strange):,} canaries of {run.shown(path)} are not those of the exposures, such as {strange[0]}"


def _other_answers(run: Run) -> Iterator[str]:
    """Results of one endpoint, asked in the same way, whose server answered the question that identifies it differently."""
    asked: dict[str, dict[str, str]] = {}
    noisy = False
    for _, one, model in run.about_models():
        identity, resolution = model.get("identity_sha256"), model.get("resolution_bits")
        if isinstance(identity, str) and identity:
            # The question depends on what texts are scored after.
            asked.setdefault(str(model.get("context")), {}).setdefault(identity, run.shown(one.path))
            noisy |= isinstance(resolution, int | float) and resolution > _EXACT_SERVER
    for answers in asked.values():
        if len(answers) > 1:
            why = "another model was served in between" + (", or the answers are noisy" if noisy else "")
            paths = ", ".join(answers.values())
            yield f"the server answered the question that identifies its model in {len(answers)} ways ({paths}), so {why}"


def _other_templates(run: Run) -> Iterator[str]:
    """Results of one model whose conversations were written with different chat templates."""
    said = [(one, model.get("chat_template_sha256")) for _, one, model in run.about_models()]
    # What was seen during training, and other results that are not about a finished model.
    said += [
        (one, getattr(one.document, "chat_template_sha256", None))
        for these in run.documents.values()
        for one in these
    ]
    templates = grouped(
        (template, run.shown(one.path)) for one, template in said if isinstance(template, str) and template
    )
    if len(templates) > 1:
        names = ", ".join(paths[0] for paths in templates.values())
        yield f"the results were made with {len(templates)} different chat templates ({names})"


def _trained_on(about: Run, run: Run) -> Iterator[Measure]:
    """Whether the model was trained on the corpus of a manifest; `about` is the run itself, or the part of it that is about secrets."""
    exposure, canaries = about.first(EXPOSURES), about.canaries
    warned = () if exposure is None else exposure.warnings
    # Each secret has a context of its own, so that warnings about contexts and references say little about their data.
    said = [one for one in warned if about is run or one.startswith(_OTHER_DATA)]
    corpus = None if canaries is None else canaries.corpus_sha256
    file, done = ("canaries.json", "planted") if about is run else ("secrets.json", "scanned")
    by_model = (run.model or {}).get("trained_on_sha256")
    trained_on = {
        one
        for one in (by_model, *(record.data_sha256 for _, record in run.trainings))
        if isinstance(one, str)
    }
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


class NamedCanary(NamedTuple):
    """A planted canary, by the manifest or by the exposures."""

    manifest_sha256: str
    canary_id: str
    format_id: str
    # How often the model was trained on it, and how often it was planted: the same unless the corpus was rewritten.
    repetitions: int
    planned: int


def names_in(run: Run) -> FormatNames:
    """What each format of a run is called: its template."""
    templates: dict[str, str] = {}
    for _, canaries in run.all(MANIFESTS):
        templates |= {format_id: form.template for format_id, form in canaries.formats.items()}
    for _, document in run.all(EXPOSURES):
        templates |= {facts.format_id: facts.template for facts in document.formats}
    return format_names(templates)


def planted_in(run: Run) -> list[NamedCanary]:
    """Every planted canary that the manifests of the run, or its exposures, name."""
    found: dict[tuple[str, str], NamedCanary] = {}
    measured = run.measured_manifests
    for path, canaries in run.all(MANIFESTS):
        # One that nothing was measured with, and that was only found on the way, may belong to an earlier corpus: CM501 reports it.
        asked = _was_named(run, path) or _was_trained_on(run, canaries)
        if measured and canaries.sha256 not in measured and not asked:
            continue
        for canary in canaries:
            if canary.planted:
                one = NamedCanary(
                    canaries.sha256,
                    canary.canary_id,
                    canary.format_id,
                    canary.times_trained_on,
                    canary.repetitions,
                )
                found[canaries.sha256, canary.canary_id] = one
    for _, document in run.all(EXPOSURES):
        for result in document.results:
            if result.planted:
                key = (document.manifest_sha256, result.canary_id)
                planned = result.planned_repetitions or result.repetitions
                found.setdefault(key, NamedCanary(*key, result.format_id, result.repetitions, planned))
    return list(found.values())


def _was_named(run: Run, path: Path) -> bool:
    """Whether the user named a file, or the directory that it is in."""
    given = {real_path(place) for place in run.paths}
    return not given.isdisjoint({real_path(path), real_path(path).parent})


def _was_trained_on(run: Run, canaries: CanarySet) -> bool:
    """Whether the model was trained on the corpus of a manifest, by its own word, and the canaries are not those of another one."""
    told = {
        (run.model or {}).get("trained_on_sha256"),
        *(record.data_sha256 for _, record in run.trainings),
    }
    if canaries.corpus is None or canaries.corpus.sha256_after not in told:
        return False
    # A corpus in which nothing repeats has the same bytes after it was rewritten, and another manifest of the same canaries.
    measured = {
        canary.text for _, one in run.all(MANIFESTS) if one.sha256 in run.measured_manifests for canary in one
    }
    return any(canary.text not in measured for canary in canaries if canary.planted)

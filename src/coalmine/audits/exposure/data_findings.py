"""The findings about data: whether results belong together and to the data that they claim. If not, every other number is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from coalmine.audits.exposure.catalog import finding
from coalmine.audits.exposure.chance import group_test, judged
from coalmine.audits.exposure.results import EXPOSURES, Exposures
from coalmine.audits.extraction.results import VERIFIED
from coalmine.audits.membership.records import MEMBERSHIPS
from coalmine.evidence.budget import LEVEL
from coalmine.evidence.findings import Finding
from coalmine.evidence.originals import other_weights
from coalmine.evidence.run import Run
from coalmine.evidence.words import format_names, times_in_words
from coalmine.records.run_record import RUN_RECORDS

# With fewer canaries of one kind than this, intervals are wide whatever is found.
FEW = 20
# How the warning of `expose` begins that is about this.
_OTHER_DATA = "the model was trained on other data"
# A server whose answers to one question differ by no more, in bits, gives the same identity each time.
_EXACT_SERVER = 1e-4


def data_findings(run: Run) -> Iterator[Finding]:
    """Findings about hashes that do not match, and about numbers of canaries."""
    yield from _other_data(run, run)
    if run.secrets is not None:
        yield from _other_data(run.secrets, run)
    exposure, canaries = run.first(EXPOSURES), run.canaries
    if exposure is not None and canaries is not None and canaries.sha256 != exposure.manifest_sha256:
        evidence = (
            f"The canaries.json of this run has the SHA-256 {canaries.sha256[:12]}..., but the exposures were measured with "
            f"{exposure.manifest_sha256[:12]}...."
        )
        yield finding("CM502", "high", "found", evidence)
    if exposure is not None and canaries is None:
        evidence = "The canaries.json was not given, so it was not compared with the one that was measured."
        yield finding("CM502", "info", "not_tested", evidence)
    if exposure is not None:
        yield from _apart(run, exposure)
    elsewhere = shown_elsewhere(run)
    if elsewhere is not None:
        yield finding("CM503", "high", "found", f"{elsewhere[:1].upper()}{elsewhere[1:]}.")
    yield from _other_answers(run)
    yield from _other_templates(run)
    changed = other_weights(run)
    if changed is not None:
        yield finding("CM505", "high", "found", f"{changed[:1].upper()}{changed[1:]}.")
    said = [one.document.get("not_read") for one in run.all(RUN_RECORDS)]
    not_read = dict.fromkeys(str(line) for lines in said if isinstance(lines, list) for line in lines)
    if not_read:
        yield finding("CM510", "info", "not_tested", f"{'; '.join(not_read)}.")
    yield from _few(run)


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


def _apart(run: Run, exposure: Exposures) -> Iterator[Finding]:
    """Results about other canaries than the exposures that the report relies on."""
    others = [one for one in run.all(EXPOSURES) if one.document.manifest_sha256 != exposure.manifest_sha256]
    if others:
        names = ", ".join(run.shown(one.path) for one in others[:3])
        evidence = (
            f"There are exposures of other canaries ({len(others):,} files: {names}), which this report leaves out; report them "
            "separately."
        )
        yield finding("CM503", "high", "found", evidence)
    if any(
        one.document.manifest_sha256 not in {None, exposure.manifest_sha256} for one in run.all(MEMBERSHIPS)
    ):
        evidence = "The membership results were measured on other canaries than the exposures."
        yield finding("CM503", "high", "found", evidence)
    known = {result.canary_id: result.repetitions for result in exposure.results}
    for path, verified in run.all(VERIFIED):
        if verified.manifest_sha256 != exposure.manifest_sha256:
            evidence = (
                f"The extraction in {run.shown(path)} was measured on other canaries than the exposures."
            )
            yield finding("CM503", "high", "found", evidence)
            continue
        strange = [one.canary_id for one in verified.canaries if known.get(one.canary_id) != one.repetitions]
        if strange:
            evidence = f"{len(strange):,} canaries of the extraction are not those of the exposures: {', '.join(strange[:3])}."
            yield finding("CM503", "high", "found", evidence, subject=strange)


def _other_answers(run: Run) -> Iterator[Finding]:
    """Results of one endpoint, asked in the same way, whose server answered the question that identifies it differently."""
    asked: dict[str, dict[str, list[str]]] = {}
    noisy = False
    for _, one, model in run.about_models():
        identity = model.get("identity_sha256")
        if isinstance(identity, str) and identity:
            # The question depends on what texts are scored after.
            answers = asked.setdefault(str(model.get("context")), {})
            answers.setdefault(identity, []).append(run.shown(one.path))
            resolution = model.get("resolution_bits")
            noisy |= isinstance(resolution, int | float) and resolution > _EXACT_SERVER
    for answers in asked.values():
        if len(answers) < 2:
            continue
        names = "; ".join(
            f"{identity[:12]}...: {', '.join(paths[:2])}" for identity, paths in answers.items()
        )
        why = "another model was served in between"
        evidence = (
            f"The server answered the question that identifies its model in {len(answers)} ways ({names}), so "
            f"{f'{why}, or the answers are noisy' if noisy else why}."
        )
        yield finding("CM503", "medium" if noisy else "high", "found", evidence)


def _other_templates(run: Run) -> Iterator[Finding]:
    """Results of one model whose conversations were written with different chat templates."""
    templates: dict[str, list[str]] = {}
    said = [(one, model.get("chat_template_sha256")) for _, one, model in run.about_models()]
    # What was seen during training, and other results that are not about a finished model.
    said += [
        (one, getattr(one.document, "chat_template_sha256", None))
        for these in run.documents.values()
        for one in these
    ]
    for one, template in said:
        if isinstance(template, str) and template:
            templates.setdefault(template, []).append(run.shown(one.path))
    if len(templates) > 1:
        names = "; ".join(
            f"{template[:12]}...: {', '.join(paths[:2])}" for template, paths in templates.items()
        )
        evidence = (
            f"The results of this model were made with {len(templates)} different chat templates ({names})."
        )
        yield finding("CM506", "medium", "found", evidence)


def _other_data(about: Run, run: Run) -> Iterator[Finding]:
    """Whether the model was trained on the corpus of a manifest; `about` is the run itself, or the part of it that is about secrets."""
    exposure, canaries = about.first(EXPOSURES), about.canaries
    warned = () if exposure is None else exposure.warnings
    # Each secret has a context of its own, so that warnings about contexts and references say little about their data.
    said = [one for one in warned if about is run or one.startswith(_OTHER_DATA)]
    corpus = None if canaries is None else canaries.corpus_sha256
    file, done = ("canaries.json", "planted") if about is run else ("secrets.json", "scanned")
    trained_on = {
        str(model["trained_on_sha256"])
        for model in [run.model or {}]
        if isinstance(model.get("trained_on_sha256"), str)
    } | {record.data_sha256 for _, record in run.trainings}
    if corpus is not None and trained_on and corpus not in trained_on:
        said.append(
            f"the {done} corpus has the SHA-256 {corpus[:12]}..., but the model was trained on "
            f"{min(trained_on)[:12]}..."
        )
    if said:
        text = "; ".join(dict.fromkeys(said))
        yield finding("CM501", "high", "found", f"{text[:1].upper()}{text[1:]}.")
    elif exposure is not None and (corpus is None or not trained_on):
        if canaries is None:
            missing = f"the {file} was not given"
        elif corpus is None:
            missing = f"the {file} does not say which corpus was {done}"
        else:
            missing = "the model does not say which data it was trained on, and no training.json or finetuning.json was given"
        evidence = f"Whether the model was trained on the {done} corpus was not checked: {missing}."
        yield finding("CM501", "info", "not_tested", evidence)


def _few(run: Run) -> Iterator[Finding]:
    exposure = run.first(EXPOSURES)
    if exposure is None:
        return
    counts = Counter(
        (result.format_id, result.repetitions) for result in exposure.results if result.repetitions > 0
    )
    few = sorted(key for key, count in counts.items() if count < FEW)
    if few:
        names = format_names(exposure.formats)
        several = len(exposure.formats) > 1
        words = ", ".join(
            f"{counts[key]:,}{f' of {names[key[0]]}' if several else ''} trained on {times_in_words(key[1])}"
            for key in few[:8]
        )
        more = f" and {len(few) - 8} more kinds" if len(few) > 8 else ""
        evidence = f"What holds for these canaries may not hold for others drawn the same way: there are only {words}{more}."
        yield finding("CM504", "info", "found", evidence)

"""Whether it matters what a text is scored after: scores of the same canaries in the other contexts that training may have used."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from coalmine.corpus.planting.manifest import CanarySet
from coalmine.engines.courses import SURVIVED, Course, CourseStep, one_result
from coalmine.engines.units import Unit
from coalmine.formats.naming import unique_names
from coalmine.models.protocols import ContextualModel, Model
from coalmine.search.walks.members import Members
from coalmine.search.walks.works import ScoreTexts
from coalmine.statistics.roc import PairedAreas, paired_areas

if TYPE_CHECKING:
    from coalmine.models.contexts import Context

# Texts that are scored again in each other context: at most this many planted canaries, and this many others.
TEXTS = 60
# A context matters if canaries stand out with at least this AUC in one, and the AUCs differ by at least this much and by two
# standard errors.
STANDS_OUT, LARGE_DIFFERENCE = 0.7, 0.02


def context_warnings(model: Model, chosen: CanarySet) -> Course[list[str]]:
    """One sentence with figures for each format and context in which canaries score differently; cheap, and the model is not changed.

    Models without a choice of context give no warnings.
    """
    if not isinstance(model, ContextualModel) or (contexts := model.contexts) is None:
        return []
    if contexts.chosen.written is not None:
        return _ends_shared(model, chosen)
    names = unique_names({format_id: form.template for format_id, form in chosen.formats.items()})
    warnings = []
    for format_id, name in names.items():
        texts = _texts(chosen, format_id)
        own = None
        for other in contexts.others if all(texts) else ():
            try:
                own = own or (yield from _scores(model, chosen, format_id, texts))
                again = yield from _scores(model.in_context(other), chosen, format_id, texts)
            except SURVIVED:
                continue  # the format cannot be scored in that context, so it is not what training saw
            planted, others = (_both(*pair) for pair in zip(own, again, strict=True))
            if not len(planted[0]) or not len(others[0]):
                continue
            found = paired_areas((planted[0], others[0]), (planted[1], others[1]))
            if _matters(found):
                counts = (len(planted[0]), len(others[0]))
                warnings.append(_in_words(name, contexts.chosen, other, found, counts))
    return [*_cut_otherwise(model, contexts.chosen, chosen), *warnings]


def _texts(chosen: CanarySet, format_id: str) -> tuple[list[str], list[str]]:
    """Planted canaries of every number of copies in turn, the most repeated first, and members that were not trained on."""
    own = [one for one in chosen if one.format_id == format_id]
    # The first of each number of copies, then the second of each: those of many copies alone stand out in any context.
    turns: Counter[int] = Counter()
    ordered = []
    for one in (one for one in own if one.planted):
        ordered.append((turns[one.repetitions], -one.repetitions, one.text))
        turns[one.repetitions] += 1
    planted = [text for _, _, text in sorted(ordered)]
    withheld = [one.text for one in own if not one.planted]
    return planted[:TEXTS], [*withheld, *chosen.references.get(format_id, ())][:TEXTS]


def _scores(
    model: Model, chosen: CanarySet, format_id: str, texts: tuple[list[str], list[str]]
) -> Course[tuple[np.ndarray, np.ndarray]]:
    planted, others = texts
    work = ScoreTexts(Members(model, chosen.formats[format_id]))
    unit = Unit((*planted, *others), size=len(planted) + len(others))
    found = yield from one_result(CourseStep(work, [unit], "Scoring canaries in other contexts", unit.size))
    bits = found["bits"]
    return -bits[: len(planted)], -bits[len(planted) :]


def _both(own: np.ndarray, again: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scores of the texts that have one in both contexts."""
    known = ~np.isnan(own) & ~np.isnan(again)
    return own[known], again[known]


def _matters(found: PairedAreas) -> bool:
    stands_out = max(found.first, found.second) >= STANDS_OUT
    return stands_out and abs(found.difference) > max(LARGE_DIFFERENCE, 2 * found.standard_error)


def _in_words(name: str, chosen: Context, other: Context, found: PairedAreas, counts: tuple[int, ...]) -> str:
    advice = f"--set context={other.choice}" + (
        "" if other.text else " and no context_text" if chosen.text else ""
    )
    return (
        f"it matters what {name} is scored after: {counts[0]} planted canaries stand out from {counts[1]} others with an AUC of "
        f"{found.first:.2f} after {chosen.described} (as measured here) and of {found.second:.2f} after {other.described}, with a rank "
        f"correlation of {found.rank_correlation:.2f} between the two; if training put texts there, measure with {advice}"
    )


def _cut_otherwise(model: Model, chosen: Context, canaries: CanarySet) -> list[str]:
    """A warning if a text is tokenized differently after the text of the context than alone."""
    if not chosen.text:
        return []
    encode = model.tokenizer.encode
    before = encode(chosen.text)
    wrong = [one for one in canaries if encode(chosen.text + one.text) != [*before, *encode(one.text)]]
    if not wrong:
        return []
    sentence = (
        f"{len(wrong)} of {len(canaries)} canaries are cut into other tokens after {chosen.text!r} than alone, and are scored as they are "
        "cut alone; end context_text where a token ends, such as with a line break"
    )
    return [sentence]


def _ends_shared(model: Model, canaries: CanarySet) -> list[str]:
    """A warning if the last token of a turn's content is one with what the chat template writes after it."""
    check = getattr(model, "check_contents", None)
    shared = 0 if check is None else check([one.text for one in canaries])
    if not shared:
        return []
    sentence = (
        f"the last token of {shared} of {len(canaries)} canaries is one with what the chat template writes after them, and is scored as it "
        "is without that; end the format with a letter or a digit, or use a template that ends turns with a special token"
    )
    return [sentence]

"""Whether it matters what a text is scored after: scores of the same canaries in the other contexts that training may have used."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from coalmine.corpus.planting.manifest import CanarySet
from coalmine.engines.courses import SURVIVED, Course, CourseStep, one_result
from coalmine.engines.units import Unit
from coalmine.formats.format import Format
from coalmine.formats.naming import unique_names
from coalmine.models.contexts import Context
from coalmine.models.protocols import ContextualModel, Model
from coalmine.search.walks.members import Members
from coalmine.search.walks.works import ScoreTexts
from coalmine.statistics.roc import PairedAreas, paired_areas

# Texts that are scored again in each other context: at most this many planted canaries, and this many others.
TEXTS = 60
# A context matters if canaries stand out with at least this AUC in one, and the AUCs differ by at least this much and by two
# standard errors.
STANDS_OUT, LARGE_DIFFERENCE = 0.7, 0.02


def context_check(model: Model, chosen: CanarySet, warnings: list[str]) -> Course[None]:
    """Add a sentence to `warnings` for each format and context in which canaries score differently, if the model leaves a choice."""
    if not isinstance(model, ContextualModel) or (contexts := model.contexts) is None:
        return
    own = contexts.chosen
    warnings += _cut_otherwise(model, own, chosen)
    names = unique_names({format_id: form.template for format_id, form in chosen.formats.items()})
    for format_id, name in names.items():
        planted, others = _texts(chosen, format_id)
        if own.written is not None or not planted or not others:
            continue
        here = yield from _scores(model, chosen.formats[format_id], [*planted, *others])
        for other in contexts.others:
            there = yield from _scores(
                model.in_context(other), chosen.formats[format_id], [*planted, *others]
            )
            known = ~np.isnan(here) & ~np.isnan(there)
            ins = [-way[: len(planted)][known[: len(planted)]] for way in (here, there)]
            outs = [-way[len(planted) :][known[len(planted) :]] for way in (here, there)]
            if not ins[0].size or not outs[0].size:
                continue  # the format cannot be scored in that context, so it is not what training saw
            areas = paired_areas((ins[0], outs[0]), (ins[1], outs[1]))
            if _matters(areas):
                no_text = " and no context_text" if own.text and not other.text else ""
                warnings.append(
                    f"it matters what {name} is scored after: {ins[0].size} planted canaries stand out from {outs[0].size} others with an "
                    f"AUC of {areas.first:.2f} after {own.described} (as measured here) and of {areas.second:.2f} after {other.described}; "
                    f"if training put texts there, measure with --set context={other.choice}{no_text}"
                )


def _scores(model: Model, form: Format, texts: list[str]) -> Course[NDArray[np.float64]]:
    """The log-perplexities of texts (bits); NaN for one that has none."""
    step = CourseStep(
        ScoreTexts(Members(model, form)),
        [Unit(tuple(texts), size=len(texts))],
        "Scoring canaries in other contexts",
        len(texts),
    )
    try:
        return (yield from one_result(step))["bits"]
    except SURVIVED:
        return np.full(len(texts), np.nan)


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


def _matters(found: PairedAreas) -> bool:
    stands_out = max(found.first, found.second) >= STANDS_OUT
    return stands_out and abs(found.difference) > max(LARGE_DIFFERENCE, 2 * found.standard_error)


def _cut_otherwise(model: Model, own: Context, canaries: CanarySet) -> list[str]:
    """A warning if texts have other tokens alone, as they are scored, than after the text of the context or before the end of a turn."""
    encode, check = model.tokenizer.encode, getattr(model, "check_contents", None)
    if own.text and own.written is None:
        first = encode(own.text)
        cut = sum(encode(own.text + one.text) != [*first, *encode(one.text)] for one in canaries)
        where, advice = (
            f"after {own.text!r}",
            "end context_text where a token ends, such as with a line break",
        )
    else:
        cut = 0 if check is None else check([one.text for one in canaries])
        where = "before what the chat template writes"
        advice = (
            "end the format with a letter or a digit, or use a template that ends turns with a special token"
        )
    told = f"{cut} of {len(canaries)} canaries are cut into other tokens {where} than alone, as they are scored; {advice}"
    return [told] if cut else []

"""How well do scores tell what was trained on from what was not?

A rule says "trained on" above a threshold. Its true positive rate (TPR) is the share of in scores above, its false positive rate
(FPR) that of out scores. Scores are higher for what was trained on.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.statistics.intervals import clopper_pearson
from coalmine.statistics.membership_scores import FloatArray, membership_scores
from coalmine.statistics.score_arrays import checked_confidence

INDEPENDENCE = "the scores of canaries are independent of each other"
SAME_DRAW = "in and out were drawn alike, and who is in was left to chance"


def roc_curve(in_scores: ArrayLike, out_scores: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """FPR and TPR at each threshold (a score counts if it is above), from none to all; ties are one step.

    >>> fpr, tpr, thresholds = roc_curve([3.0, 2.0], [2.0, 1.0])
    >>> fpr, tpr, thresholds
    (array([0. , 0. , 0.5, 1. ]), array([0. , 0.5, 1. , 1. ]), array([  3.,   2.,   1., -inf]))
    """
    scores = membership_scores(in_scores, out_scores)
    thresholds = np.append(np.unique(np.concatenate(scores))[::-1], -np.inf)
    above = [
        1.0 - np.searchsorted(np.sort(side), thresholds, side="right") / len(side)
        for side in (scores.out_scores, scores.in_scores)
    ]
    return above[0], above[1], thresholds


def area_under_roc(in_scores: ArrayLike, out_scores: ArrayLike, confidence: float = 0.95) -> Estimate:
    """The probability that an in score is above an out score, ties counting half, with an interval.

    No pair of distributions gives the area a variance above A (1 - A) / min(m, n) (Birnbaum and Klose), so Wilson's interval with
    min(m, n) trials is wide enough whatever the scores look like, and does not vanish at 0 and 1.

    >>> area_under_roc([3.0, 2.0], [2.0, 1.0]).value
    0.875
    """
    from scipy.special import ndtri

    scores = membership_scores(in_scores, out_scores)
    level = checked_confidence(confidence)
    m, n = len(scores.in_scores), len(scores.out_scores)
    ordered = np.sort(scores.out_scores)
    beaten = (
        sum(np.searchsorted(ordered, scores.in_scores, side=side).sum() for side in ("left", "right")) / 2
    )
    area = float(beaten / (m * n))
    z, trials = -float(ndtri((1.0 - level) / 2.0)), min(m, n)
    spread = 1.0 + z * z / trials
    center = (area + z * z / (2 * trials)) / spread
    half = z / spread * math.sqrt(area * (1.0 - area) / trials + (z / (2 * trials)) ** 2)
    low, high = max(0.0, min(center - half, area)), min(1.0, max(center + half, area))
    return Estimate(
        method="area under the ROC curve",
        status="measured",
        value=area,
        low=low,
        high=high,
        confidence=level,
        n=m + n,
        statement=(
            f"AUC is {area:.3f} ({100 * level:g} % interval {low:.3f} to {high:.3f}); 0.5 is guessing, {m:,} in against {n:,} out"
        ),
        assumptions=(INDEPENDENCE, SAME_DRAW),
        warnings=(f"with {trials} scores on one side the interval is approximate",) if trials < 10 else (),
    )


def tpr_at_fpr(in_scores: ArrayLike, out_scores: ArrayLike, fpr: float, confidence: float = 0.95) -> Estimate:
    """The TPR of the lowest threshold that lets at most a share `fpr` of the out scores through, with an exact interval.

    The interval is Clopper-Pearson's for the TPR of that very threshold. With fewer than 1 / fpr out scores no threshold can be
    said to have that FPR: the result is then "not_measured".

    >>> print(tpr_at_fpr([5.0, 4.0, 0.5], [1.0, 2.0, 3.0, 4.5], fpr=0.25).statement)
    TPR is 0.6667 at FPR 25 % (95 % interval 0.0943 to 0.9916): 2 of 3, with 1 of 4 references above the threshold
    >>> print(tpr_at_fpr([5.0], [1.0], fpr=0.01).statement)
    TPR at FPR 1 % cannot be measured with 1 reference: it takes at least 100
    """
    scores = membership_scores(in_scores, out_scores)
    level = checked_confidence(confidence)
    if not 0.0 < fpr < 1.0:
        raise InputError(f"an FPR must lie strictly between 0 and 1, got {fpr}; use for example 0.01")
    m, n = len(scores.in_scores), len(scores.out_scores)
    percent = f"FPR {100 * fpr:g} %"
    # A hair more than the product, so that 0.1 of 30 is 3 and not 2.
    allowed = math.floor(fpr * n * (1 + 1e-12))
    if allowed < 1:
        needed = math.ceil(1 / fpr * (1 - 1e-12))
        references = "1 reference" if n == 1 else f"{n:,} references"
        return Estimate.not_measured(
            f"TPR at {percent}",
            f"TPR at {percent} cannot be measured with {references}: it takes at least {needed:,}",
            n=n,
        )
    ordered = np.sort(scores.out_scores)[::-1]
    threshold = ordered[allowed] if allowed < n else -np.inf
    hits = int(np.sum(scores.in_scores > threshold))
    let_through = int(np.sum(ordered > threshold))
    low, high = clopper_pearson(hits, m, level)
    warnings = []
    fpr_low, fpr_high = clopper_pearson(let_through, n, level)
    if fpr_high > 2 * fpr:
        warnings.append(
            f"{let_through} references above the threshold leave its own FPR between {fpr_low:.2g} and {fpr_high:.2g}"
        )
    return Estimate(
        method=f"TPR at {percent}",
        status="measured",
        value=hits / m,
        low=low,
        high=high,
        confidence=level,
        n=m,
        statement=(
            f"TPR is {hits / m:.4f} at {percent} ({100 * level:g} % interval {low:.4f} to {high:.4f}): {hits:,} of {m:,}, with "
            f"{let_through:,} of {n:,} references above the threshold"
        ),
        assumptions=(INDEPENDENCE, SAME_DRAW),
        warnings=tuple(warnings),
    )

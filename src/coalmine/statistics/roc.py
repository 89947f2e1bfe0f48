"""ROC curves: how well scores separate what was trained on from what was not, with confidence intervals and p-values.

An attacker says "trained on" above a threshold. The true-positive rate (TPR) is the proportion of in scores above it, the
false-positive rate (FPR) that of out scores. Scores are higher for what was trained on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from coalmine.errors import InputError
from coalmine.records import Estimate
from coalmine.statistics.exposure.guessing import RandomGuessing
from coalmine.statistics.intervals import clopper_pearson, effective_interval
from coalmine.statistics.scores import FloatArray, checked_confidence, membership_scores

_TPR_AT = "TPR at FPR "
INDEPENDENCE = "the scores of canaries are independent of each other"
CONSTANT = "cannot be measured: all {:,} scores are equal, so they say nothing about membership"
SAME_DRAW = "members and non-members were drawn the same way, and membership was assigned at random"


class RateEstimate(Estimate, frozen=True, kw_only=True):
    """A true-positive rate at a fixed false-positive rate, which is `fpr`.

    In files of earlier versions only `method` names the false-positive rate, and `fpr` is read from there.

    >>> tpr_at_fpr([5.0, 4.0, 0.5], [1.0, 2.0, 3.0, 4.5], fpr=0.25).fpr
    0.25
    """

    fpr: float | None = None

    def __post_init__(self) -> None:
        Estimate.__post_init__(self)
        if self.fpr is None and self.method.startswith(_TPR_AT):
            percent = self.method.removeprefix(_TPR_AT).removesuffix("%")
            msgspec.structs.force_setattr(self, "fpr", float(percent) / 100)


def roc_curve(in_scores: ArrayLike, out_scores: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """FPR, TPR and threshold of each step of the ROC curve, from "none" to "all"; a score counts if it is above the threshold.

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
    """The area under the ROC curve: the probability that an in score is above an out score, where ties count half.

    The area averages the shares of won pairs over all ways to pair each score of the smaller side with one of the other, and no average
    varies more than one of these shares, which counts min(m, n) independent pairs (Hoeffding, Probability Inequalities for Sums of
    Bounded Random Variables, Journal of the American Statistical Association 58, 1963, section 5). So the interval is Clopper and
    Pearson's with min(m, n) trials, which is wide enough for few scores and near 1 as well. Scores that are all equal measure nothing.

    >>> area_under_roc([3.0, 2.0], [2.0, 1.0]).value
    0.875
    >>> area_under_roc([3.0, 3.0], [3.0, 3.0]).status
    'not_measured'
    """
    scores, method = membership_scores(in_scores, out_scores), "area under the ROC curve"
    level = checked_confidence(confidence)
    m, n = len(scores.in_scores), len(scores.out_scores)
    if scores.all_equal:
        return Estimate.not_measured(method, f"AUC {CONSTANT.format(m + n)}", m + n)
    ordered = np.sort(scores.out_scores)
    beaten = (
        sum(np.searchsorted(ordered, scores.in_scores, side=side).sum() for side in ("left", "right")) / 2
    )
    area = float(beaten / (m * n))
    low, high = effective_interval(area, min(m, n), level)
    return Estimate(
        method=method,
        status="measured",
        value=area,
        low=low,
        high=high,
        confidence=level,
        n=m + n,
        statement=(
            f"AUC is {area:.3f} ({100 * level:g}% interval {low:.3f} to {high:.3f}), where 0.5 is chance: {m:,} in and {n:,} out "
            "scores"
        ),
        assumptions=(INDEPENDENCE, SAME_DRAW),
    )


def tpr_at_fpr(
    in_scores: ArrayLike, out_scores: ArrayLike, fpr: float, confidence: float = 0.95
) -> RateEstimate:
    """The TPR at the lowest threshold whose true FPR is at most `fpr`, with an interval that includes the error of the threshold.

    The value is that of the lowest threshold that at most a proportion `fpr` of the out scores exceeds. That proportion is counted
    and not known, so each limit is taken at an out score whose true FPR is, except for part of the error, on the right side of `fpr`.
    With fewer than 1 / fpr out scores the result is "not_measured". The TPR at a low FPR is the measure of Membership Inference
    Attacks From First Principles (Carlini et al., 2022, arXiv:2112.03570).

    >>> print(tpr_at_fpr([5.0, 4.0, 0.5], [1.0, 2.0, 3.0, 4.5], fpr=0.25).statement)
    TPR is 0.6667 at FPR 25% (95% interval 0.0000 to 0.9929): 2 of 3, with 1 of 4 references above the threshold
    >>> print(tpr_at_fpr([5.0], [1.0], fpr=0.01).statement)
    TPR at FPR 1% cannot be measured with 1 reference: it takes at least 100
    """
    scores = membership_scores(in_scores, out_scores)
    level = checked_confidence(confidence)
    m, n = len(scores.in_scores), len(scores.out_scores)
    percent = f"{100 * _checked_fpr(fpr):g}%"
    method = f"{_TPR_AT}{percent}"
    allowed = _allowed(n, fpr)
    if allowed < 1:
        return _too_few_references(method, n, fpr)
    if scores.all_equal:
        why = f"{method} {CONSTANT.format(m + n)}"
        return msgspec.structs.replace(RateEstimate.not_measured(method, why, n), fpr=fpr)
    ordered = np.sort(scores.out_scores)[::-1]
    hits, let_through = _above(scores.in_scores, ordered, allowed)
    error = (1.0 - level) / 2.0
    low, high = _limits(scores.in_scores, ordered, fpr, error)
    low, high = min(low, hits / m), max(high, hits / m)
    # Below this many, even the largest out score may have too high an FPR.
    needed = math.ceil(math.log(error) / math.log1p(-fpr))
    few = f"{n:,} references cannot give the {method} a lower limit above 0: that takes at least {needed:,}"
    return RateEstimate(
        method=method,
        fpr=fpr,
        status="measured",
        value=hits / m,
        low=low,
        high=high,
        confidence=level,
        n=m,
        statement=(
            f"TPR is {hits / m:.4f} at FPR {percent} ({100 * level:g}% interval {low:.4f} to {high:.4f}): {hits:,} of {m:,}, with "
            f"{let_through:,} of {n:,} references above the threshold"
        ),
        assumptions=(INDEPENDENCE, SAME_DRAW),
        warnings=(few,) if n < needed else (),
    )


def tpr_band(
    in_scores: ArrayLike, out_scores: ArrayLike, fprs: ArrayLike, confidence: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """The confidence limits of `tpr_at_fpr` at many rates: each pair holds with this confidence, not all of them together.

    Where there are too few out scores for a limit, it is 0 or 1.

    >>> low, high = tpr_band([5.0, 4.0, 0.5], [1.0, 2.0, 3.0, 4.5], [0.25, 0.5])
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.0, 0.0], [0.9929, 1.0])
    """
    scores = membership_scores(in_scores, out_scores)
    error = (1.0 - checked_confidence(confidence)) / 2.0
    ordered = np.sort(scores.out_scores)[::-1]
    limits = [
        _limits(scores.in_scores, ordered, _checked_fpr(float(fpr)), error)
        for fpr in np.atleast_1d(np.asarray(fprs))
    ]
    low, high = np.array(limits, dtype=np.float64).reshape(-1, 2).T
    return low, high


def tpr_p_value(in_scores: ArrayLike, out_scores: ArrayLike, fpr: float) -> float | None:
    """The p-value of "no memorization" for the TPR of `tpr_at_fpr`; None where that is not measured.

    Without memorization every order of all scores is equally likely, so the number of in scores above the (k + 1)-th largest out
    score has a negative hypergeometric distribution: the p-value is exact for any numbers of scores, and assumes only that the
    scores are exchangeable. Ties count against the in scores, which can only raise it.

    >>> round(tpr_p_value([7.0, 6.0], [1.0, 2.0, 3.0, 5.0], fpr=0.25), 4)  # 2 in scores are above the second largest out score
    0.2
    >>> tpr_p_value([7.0, 6.0], [1.0, 2.0, 3.0, 5.0], fpr=0.01)
    """
    scores = membership_scores(in_scores, out_scores)
    n = len(scores.out_scores)
    allowed = _allowed(n, _checked_fpr(fpr))
    if allowed < 1 or scores.all_equal:
        return None
    hits, _ = _above(scores.in_scores, np.sort(scores.out_scores)[::-1], allowed)
    if hits == 0:
        return 1.0
    return RandomGuessing(references=n, canaries=len(scores.in_scores)).chance_of(hits, allowed)


def _too_few_references(method: str, n: int, fpr: float) -> RateEstimate:
    references = "1 reference" if n == 1 else f"{n:,} references"
    needed = math.ceil(1 / fpr * (1 - 1e-12))
    why = f"{method} cannot be measured with {references}: it takes at least {needed:,}"
    return msgspec.structs.replace(RateEstimate.not_measured(method, why, n), fpr=fpr)


def _checked_fpr(fpr: float) -> float:
    if not 0.0 < fpr < 1.0:
        raise InputError(f"an FPR must be strictly between 0 and 1, got {fpr}; use for example 0.01")
    return float(fpr)


def _allowed(n: int, fpr: float) -> int:
    """How many of n out scores may be above the threshold."""
    # A tolerance for rounding, so that 0.1 of 30 is 3 and not 2.
    return math.floor(fpr * n * (1 + 1e-12))


def _above(in_scores: FloatArray, ordered: FloatArray, allowed: int) -> tuple[int, int]:
    """How many in and out scores are above the lowest threshold that `allowed` out scores exceed; `ordered` is descending."""
    threshold = ordered[allowed] if allowed < len(ordered) else -np.inf
    return int(np.sum(in_scores > threshold)), int(np.sum(ordered > threshold))


def _limits(in_scores: FloatArray, ordered: FloatArray, fpr: float, error: float) -> tuple[float, float]:
    """Limits of the TPR at the threshold whose true FPR is `fpr`, each wrong with probability `error` at most.

    The true FPR at the k-th largest of n out scores is, at most, a beta variable with parameters k and n - k + 1. Where it is at
    most `fpr`, the TPR there is at most the one that is wanted, and a lower limit for it holds for both. So this limit errs if the
    FPR is higher, or else if the limit for the count of in scores errs; together that is `error`. The k that splits it best is
    chosen from the numbers of scores alone, before any score is looked at. The upper limit mirrors it.
    """
    m, n = len(in_scores), len(ordered)
    limits = [0.0, 1.0]
    for side in (0, 1):
        rank, left = _threshold_rank(m, n, fpr, error, upper=bool(side))
        if rank:
            hits = int(np.sum(in_scores > ordered[rank - 1]))
            limits[side] = clopper_pearson(hits, m, 1.0 - 2.0 * left)[side]
    return limits[0], limits[1]


def _threshold_rank(m: int, n: int, fpr: float, error: float, *, upper: bool) -> tuple[int, float]:
    """The rank of the out score at which a limit is taken, and the error left for the in scores; rank 0 where there is none."""
    from scipy.special import betainc, betaincc, betainccinv, betaincinv

    # The best rank is within six standard deviations of the expected one.
    around = 6.0 * math.sqrt(n * fpr) + 20.0
    first, last = max(1, math.floor(n * fpr - around)), min(n, math.ceil(n * fpr + around))
    ranks = np.arange(first, last + 1, dtype=np.float64)
    misplaced = np.asarray((betainc if upper else betaincc)(ranks, n - ranks + 1.0, fpr))
    usable = misplaced < error
    if not usable.any():
        return 0, 0.0
    ranks, misplaced = ranks[usable], misplaced[usable]
    left = (error - misplaced) / (1.0 - misplaced)
    # As many in scores as the square root of the FPR would give: some memorization, neither none nor all.
    hits = np.clip(m * np.sqrt(ranks / (n + 1.0)), 0.5, m - 0.5)
    if upper:
        best = int(np.argmin(betainccinv(hits + 1.0, m - hits, left)))
    else:
        best = int(np.argmax(betaincinv(hits, m - hits + 1.0, left)))
    return int(ranks[best]), float(left[best])


class PairedAreas(NamedTuple):
    """The areas under both ROC curves, the standard error of their difference, and how similar the two orders are."""

    first: float
    second: float
    standard_error: float
    # Spearman's, over members and non-members together; 1 for the same order, and for scores that are all equal.
    rank_correlation: float

    @property
    def difference(self) -> float:
        """By how much the second area is larger."""
        return self.second - self.first


def paired_areas(first: tuple[ArrayLike, ArrayLike], second: tuple[ArrayLike, ArrayLike]) -> PairedAreas:
    """Areas under the ROC of the same texts scored in two ways: (in, out) scores in the same order, higher for members.

    The standard error is that of DeLong, DeLong and Clarke-Pearson, Comparing the Areas under Two or More Correlated Receiver
    Operating Characteristic Curves, Biometrics 44, 1988.

    >>> found = paired_areas(([3, 4, 5], [1, 2, 2.5]), ([3, 1.5, 5], [1, 2, 2.5]))
    >>> found.first, round(found.second, 3)
    (1.0, 0.778)
    """
    ways = [[np.asarray(side, dtype=np.float64) for side in way] for way in (first, second)]
    ins, outs = ways[0]
    if [side.shape for side in ways[0]] != [side.shape for side in ways[1]] or not ins.size or not outs.size:
        raise InputError("both ways of scoring need scores of the same texts, at least one in and one out")
    wins = [_wins(ins, outs) for ins, outs in ways]  # each (in, out)
    differences = wins[1] - wins[0]
    variance = sum(
        float(np.var(differences.mean(axis=axis), ddof=1)) / n
        for axis, n in ((1, len(ins)), (0, len(outs)))
        if n > 1
    )
    joined = [np.concatenate(way) for way in ways]
    return PairedAreas(
        float(wins[0].mean()),
        float(wins[1].mean()),
        float(np.sqrt(variance)),
        _spearman(joined[0], joined[1]),
    )


def _wins(ins: FloatArray, outs: FloatArray) -> FloatArray:
    return np.asarray((ins[:, None] > outs) + 0.5 * (ins[:, None] == outs), dtype=np.float64)


def _spearman(first: FloatArray, second: FloatArray) -> float:
    from scipy.stats import rankdata

    ranks = [rankdata(one) for one in (first, second)]
    if any(np.ptp(one) == 0 for one in ranks):
        return 1.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])

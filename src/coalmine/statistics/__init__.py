"""Estimates with confidence intervals, from scores only; no module here uses a model.

Exposure takes log-perplexities in bits, which are lower for what the model remembers better. ROC curves and bounds on epsilon take
membership scores, which are higher for what was trained on (negate a log-perplexity).

    from coalmine.statistics import epsilon_one_run, sampled_exposure, tpr_at_fpr

    sampled_exposure(20.0, [30.0, 19.0, 41.0, 22.0], size=10**9).statement
    # 'exposure is 2.00 bits (95% interval 0.31 to 7.31): 1 of 4 samples is no more surprising'

The names are loaded when they are first used: importing this package imports neither NumPy nor SciPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.lazy import lazy

if TYPE_CHECKING:
    from coalmine.statistics.differences import (
        Difference,
        paired_difference,
        run_difference,
        unpaired_difference,
    )
    from coalmine.statistics.epsilon.best import (
        CoinScores,
        epsilon_best,
        epsilon_ceiling,
        epsilon_independent,
    )
    from coalmine.statistics.epsilon.claimed import Verdict, judge_claim
    from coalmine.statistics.epsilon.estimates import joint_beta_interval, note_epsilon
    from coalmine.statistics.epsilon.gaussian import epsilon_f_dp, epsilon_gaussian, gaussian_epsilon
    from coalmine.statistics.epsilon.one_run import epsilon_one_run, one_run_bound
    from coalmine.statistics.epsilon.thresholds import (
        ThresholdCounts,
        epsilon_fixed,
        epsilon_ladder,
        epsilon_split,
    )
    from coalmine.statistics.exposure.bounded_mean import bounded_mean_interval
    from coalmine.statistics.exposure.extrapolation import TailFit, extrapolated_exposures, fit_tail
    from coalmine.statistics.exposure.guessing import RandomGuessing, compare_with_guessing, exposures_among
    from coalmine.statistics.exposure.guided import bounded_exposure, guided_exposures
    from coalmine.statistics.exposure.order_tests import order_test, shared_order_test
    from coalmine.statistics.exposure.ranks import (
        exact_exposure,
        exposure_bits,
        reference_exposure,
        reference_exposures,
        sampled_exposure,
        sampled_exposures,
    )
    from coalmine.statistics.exposure.skew_normal import SkewNormal
    from coalmine.statistics.exposure.skew_normal_fit import fit_skew_normal
    from coalmine.statistics.intervals import clopper_pearson, clustered_interval, median_estimate
    from coalmine.statistics.multiple_tests import adjusted_p_values, holm
    from coalmine.statistics.roc import (
        RateEstimate,
        area_under_roc,
        paired_areas,
        roc_curve,
        tpr_at_fpr,
        tpr_band,
        tpr_p_value,
    )
    from coalmine.statistics.scores import MembershipScores, membership_scores
    from coalmine.statistics.trends import Trend, log_linear_trend

_HOMES = {
    "differences": ("Difference", "paired_difference", "run_difference", "unpaired_difference"),
    "epsilon.best": ("CoinScores", "epsilon_best", "epsilon_ceiling", "epsilon_independent"),
    "epsilon.claimed": ("Verdict", "judge_claim"),
    "epsilon.estimates": ("joint_beta_interval", "note_epsilon"),
    "epsilon.gaussian": ("epsilon_f_dp", "epsilon_gaussian", "gaussian_epsilon"),
    "epsilon.one_run": ("epsilon_one_run", "one_run_bound"),
    "epsilon.thresholds": ("ThresholdCounts", "epsilon_fixed", "epsilon_ladder", "epsilon_split"),
    "exposure.bounded_mean": ("bounded_mean_interval",),
    "exposure.extrapolation": ("TailFit", "extrapolated_exposures", "fit_tail"),
    "exposure.guessing": ("RandomGuessing", "compare_with_guessing", "exposures_among"),
    "exposure.guided": ("bounded_exposure", "guided_exposures"),
    "exposure.order_tests": ("order_test", "shared_order_test"),
    "exposure.ranks": (
        "exact_exposure",
        "exposure_bits",
        "reference_exposure",
        "reference_exposures",
        "sampled_exposure",
        "sampled_exposures",
    ),
    "exposure.skew_normal": ("SkewNormal",),
    "exposure.skew_normal_fit": ("fit_skew_normal",),
    "intervals": ("clopper_pearson", "clustered_interval", "median_estimate"),
    "multiple_tests": ("adjusted_p_values", "holm"),
    "roc": (
        "RateEstimate",
        "area_under_roc",
        "paired_areas",
        "roc_curve",
        "tpr_at_fpr",
        "tpr_band",
        "tpr_p_value",
    ),
    "scores": ("MembershipScores", "membership_scores"),
    "trends": ("Trend", "log_linear_trend"),
}

__all__ = [
    "CoinScores",
    "Difference",
    "MembershipScores",
    "RandomGuessing",
    "RateEstimate",
    "SkewNormal",
    "TailFit",
    "ThresholdCounts",
    "Trend",
    "Verdict",
    "adjusted_p_values",
    "area_under_roc",
    "bounded_exposure",
    "bounded_mean_interval",
    "clopper_pearson",
    "clustered_interval",
    "compare_with_guessing",
    "epsilon_best",
    "epsilon_ceiling",
    "epsilon_f_dp",
    "epsilon_fixed",
    "epsilon_gaussian",
    "epsilon_independent",
    "epsilon_ladder",
    "epsilon_one_run",
    "epsilon_split",
    "exact_exposure",
    "exposure_bits",
    "exposures_among",
    "extrapolated_exposures",
    "fit_skew_normal",
    "fit_tail",
    "gaussian_epsilon",
    "guided_exposures",
    "holm",
    "joint_beta_interval",
    "judge_claim",
    "log_linear_trend",
    "median_estimate",
    "membership_scores",
    "note_epsilon",
    "one_run_bound",
    "order_test",
    "paired_areas",
    "paired_difference",
    "reference_exposure",
    "reference_exposures",
    "roc_curve",
    "run_difference",
    "sampled_exposure",
    "sampled_exposures",
    "shared_order_test",
    "tpr_at_fpr",
    "tpr_band",
    "tpr_p_value",
    "unpaired_difference",
]

__getattr__, __dir__ = lazy(
    __name__, {name: f"coalmine.statistics.{home}" for home, names in _HOMES.items() for name in names}
)

from coalmine.statistics.differences import (
    Difference as Difference,
    paired_difference as paired_difference,
    run_difference as run_difference,
    unpaired_difference as unpaired_difference,
)
from coalmine.statistics.epsilon.best import (
    CoinScores as CoinScores,
    epsilon_best as epsilon_best,
    epsilon_ceiling as epsilon_ceiling,
    epsilon_independent as epsilon_independent,
)
from coalmine.statistics.epsilon.claimed import Verdict as Verdict, judge_claim as judge_claim
from coalmine.statistics.epsilon.estimates import (
    joint_beta_interval as joint_beta_interval,
    note_epsilon as note_epsilon,
)
from coalmine.statistics.epsilon.gaussian import (
    epsilon_f_dp as epsilon_f_dp,
    epsilon_gaussian as epsilon_gaussian,
    gaussian_epsilon as gaussian_epsilon,
)
from coalmine.statistics.epsilon.one_run import (
    epsilon_one_run as epsilon_one_run,
    one_run_bound as one_run_bound,
)
from coalmine.statistics.epsilon.thresholds import (
    ThresholdCounts as ThresholdCounts,
    epsilon_fixed as epsilon_fixed,
    epsilon_ladder as epsilon_ladder,
    epsilon_split as epsilon_split,
)
from coalmine.statistics.exposure.bounded_mean import bounded_mean_interval as bounded_mean_interval
from coalmine.statistics.exposure.extrapolation import (
    TailFit as TailFit,
    extrapolated_exposures as extrapolated_exposures,
    fit_tail as fit_tail,
)
from coalmine.statistics.exposure.guessing import (
    RandomGuessing as RandomGuessing,
    compare_with_guessing as compare_with_guessing,
    exposures_among as exposures_among,
)
from coalmine.statistics.exposure.guided import (
    bounded_exposure as bounded_exposure,
    guided_exposures as guided_exposures,
)
from coalmine.statistics.exposure.order_tests import (
    order_test as order_test,
    shared_order_test as shared_order_test,
)
from coalmine.statistics.exposure.ranks import (
    exact_exposure as exact_exposure,
    exposure_bits as exposure_bits,
    reference_exposure as reference_exposure,
    reference_exposures as reference_exposures,
    sampled_exposure as sampled_exposure,
    sampled_exposures as sampled_exposures,
)
from coalmine.statistics.exposure.skew_normal import SkewNormal as SkewNormal
from coalmine.statistics.exposure.skew_normal_fit import fit_skew_normal as fit_skew_normal
from coalmine.statistics.intervals import (
    clopper_pearson as clopper_pearson,
    clustered_interval as clustered_interval,
    median_estimate as median_estimate,
)
from coalmine.statistics.multiple_tests import (
    adjusted_p_values as adjusted_p_values,
    benjamini_hochberg as benjamini_hochberg,
    holm as holm,
    simes as simes,
)
from coalmine.statistics.provenance.conformal import (
    conformal_p_values as conformal_p_values,
    fewest_shown as fewest_shown,
    non_members_needed as non_members_needed,
    p_value_together as p_value_together,
    smallest_p_value as smallest_p_value,
)
from coalmine.statistics.provenance.detection import (
    Detection as Detection,
    measure_detection as measure_detection,
)
from coalmine.statistics.provenance.rank_histograms import RankHistogram as RankHistogram
from coalmine.statistics.provenance.text_scores import (
    log_ratio as log_ratio,
    min_k_plus_plus as min_k_plus_plus,
    rmia as rmia,
    rmia_ratio as rmia_ratio,
    windowed_ratio as windowed_ratio,
)
from coalmine.statistics.roc import (
    RateEstimate as RateEstimate,
    area_under_roc as area_under_roc,
    paired_areas as paired_areas,
    roc_curve as roc_curve,
    tpr_at_fpr as tpr_at_fpr,
    tpr_band as tpr_band,
    tpr_p_value as tpr_p_value,
)
from coalmine.statistics.scores import (
    MembershipScores as MembershipScores,
    membership_scores as membership_scores,
)
from coalmine.statistics.trends import Trend as Trend, log_linear_trend as log_linear_trend

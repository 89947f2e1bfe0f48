"""Estimates with confidence intervals, from scores only; no module here uses a model.

Exposure takes log-perplexities in bits, which are lower for what the model remembers better. ROC curves and bounds on epsilon take
membership scores, which are higher for what was trained on (negate a log-perplexity).

    from coalmine.statistics import epsilon_one_run, sampled_exposure, tpr_at_fpr

    sampled_exposure(20.0, [30.0, 19.0, 41.0, 22.0], size=10**9).statement
    # 'exposure is 2.00 bits (95% interval 0.31 to 7.31): 1 of 4 samples is no more surprising'

The names are loaded when they are first used: importing this package imports neither NumPy nor SciPy.
"""

from coalmine.lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__)

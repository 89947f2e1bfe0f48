"""What epsilon does a median exposure stand for?

After Jagielski, "A Note On Interpreting Canary Exposure". "Trained on" for what is less surprising than the median canary is a rule with
a TPR of one half, and an FPR of 2 to the power of minus the median exposure. Privacy allows no rule a ratio above exp(epsilon), so
epsilon is at least ln 2 (median exposure - 1), if both rates were known. They are counted, so this is a point estimate and no bound.
"""

from __future__ import annotations

import math

from coalmine.records import Estimate

METHOD = "median exposure, point estimate"


def note_epsilon(median_exposure: Estimate, copies: int = 1) -> Estimate:
    """The note's ln 2 (median exposure - 1), divided by `copies`; never below 0.

    >>> from coalmine.statistics.exposure.guessing import compare_with_guessing
    >>> among = compare_with_guessing([8.5], list(range(16)))
    >>> round(note_epsilon(among.median).value / math.log(2), 6)  # exposure 1: 16 references, rank 8
    0.0
    """
    bits = median_exposure.value
    if bits is None:
        value, statement = None, "there is no median exposure, so there is no estimate of epsilon from it"
    else:
        value = max(0.0, math.log(2) * (bits - 1.0)) / copies
        statement = f"epsilon is about {value:.2f}, from a median exposure of {bits:.2f} bits: a point estimate, no bound"
    return Estimate(
        method=METHOD,
        status="not_measured" if value is None else "measured",
        value=value,
        low=None,
        high=None,
        confidence=None,
        n=median_exposure.n,
        statement=statement,
        assumptions=(*median_exposure.assumptions, "delta is 0, and the rates are what was counted"),
        warnings=median_exposure.warnings,
    )

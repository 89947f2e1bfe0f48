"""Estimators of exposure from log-perplexities: exact, sampled, guided, splitting, extrapolated; and exposure under random guessing."""

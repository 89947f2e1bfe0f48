"""Exposure from scores: exact, sampled, weighted, split, extrapolated; and exposure without memorization."""

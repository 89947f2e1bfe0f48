"""A policy, and whether a run keeps it."""

"""Secrets that are already in a corpus: what they look like, where they are, and whose they are."""

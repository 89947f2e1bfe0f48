"""Corpora as files: kinds, compression, reading, writing."""

"""Incremental decoding and batched scoring, shared by every network that runs in this process."""

"""Checkpoints of the transformers library, and PEFT adapters on them."""

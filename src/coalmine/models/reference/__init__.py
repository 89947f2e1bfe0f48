"""The reference networks of coalmine, their tokens and their checkpoints."""

"""The members of a format as a tree of a model's tokens."""

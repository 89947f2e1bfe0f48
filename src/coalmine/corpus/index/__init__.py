"""A suffix array over the tokens of a corpus: how often a sequence occurs in it, where, and what is repeated."""

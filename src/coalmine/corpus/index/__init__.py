"""A suffix array over the tokens of a corpus: how often does a sequence stand in it, where, and what is repeated?"""

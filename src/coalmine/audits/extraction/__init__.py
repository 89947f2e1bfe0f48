"""Can secrets be extracted from a model?"""

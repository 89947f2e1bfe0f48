"""On which documents do two models disagree?"""

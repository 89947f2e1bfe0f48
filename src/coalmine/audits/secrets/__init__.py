"""Secrets that were in the training data all along: are they more exposed than chance, and can they be extracted?"""

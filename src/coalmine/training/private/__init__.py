"""Differentially private training: units of privacy, clipping, noise and accounting."""

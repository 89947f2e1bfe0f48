"""Unlearning: gradient ascent on documents that a trained model should forget, the simplest baseline there is."""

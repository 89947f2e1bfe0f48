"""One module for each question that coalmine answers about a model."""

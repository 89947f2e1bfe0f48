"""`coalmine audit`: everything that can be tested of a model with its training data, within a time, on one page."""

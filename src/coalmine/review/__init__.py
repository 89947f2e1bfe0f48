"""One audit of everything: what can be tested of a model with its training data, planned by measured cost and run in its time."""

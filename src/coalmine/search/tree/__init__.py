"""The automaton of a format in the tokens of a model."""

"""A corpus without what it repeats."""

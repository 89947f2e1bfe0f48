"""A corpus without the secrets in it."""

"""The tree walk: every question about a format is a strategy over one batched frontier."""

"""The results of audits, read back from their files, one run a model."""

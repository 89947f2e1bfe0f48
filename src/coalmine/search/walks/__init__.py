"""The batched frontier, and everything that walks the tree with it."""

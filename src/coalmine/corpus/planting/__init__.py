"""Canaries into a corpus: drawing them, planting them, the manifest, and whether they survive preprocessing."""

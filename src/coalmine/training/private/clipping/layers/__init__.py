"""Layers that ghost clipping knows, one module per family, and how to recognize them."""

"""Sums of clipped per-unit gradients, the part of private training that bounds what one unit can change."""

"""Rows that are conversations: their kinds, their turns, and planting in a turn of a role."""

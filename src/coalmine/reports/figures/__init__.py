"""Figures as Vega-Lite data, one module a figure."""

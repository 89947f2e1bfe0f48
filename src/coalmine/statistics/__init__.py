"""Numbers from scores, with NumPy and SciPy only: no module here has ever seen a model."""

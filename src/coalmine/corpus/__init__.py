"""Training data at rest: reading, writing, planting canaries and verifying what was planted."""

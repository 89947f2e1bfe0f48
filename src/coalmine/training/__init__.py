"""Reference trainers, and the hook through which exposure is watched while they run."""

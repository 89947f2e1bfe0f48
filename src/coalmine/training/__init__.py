"""Reference trainers, the hook through which exposure is watched while they run, and what changes a trained model afterwards."""

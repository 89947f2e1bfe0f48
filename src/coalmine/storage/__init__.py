"""Files on disk that are complete or absent: writing, reading, locking, resuming, and errors of the operating system."""

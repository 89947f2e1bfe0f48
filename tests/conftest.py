"""Set up for all tests: one thread a process, because the suite runs as many processes as there are cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

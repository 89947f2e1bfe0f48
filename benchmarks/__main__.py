"""`make bench`, or `python -m benchmarks [NAME ...]`: run all benchmarks, or those that are named."""

from __future__ import annotations

import importlib
import sys

NAMES = (
    "training",
    "planting",
    "search",
    "enumeration",
    "transformer",
    "shared_prefix",
    "large_vocabulary",
    "index",
    "epsilon",
    "recitation",
    "vocabularies",
    "engines",
    "provenance",
    "scanning",
    "private_step",
)

for name in sys.argv[1:] or NAMES:
    if name not in NAMES:
        sys.exit(f"unknown benchmark {name!r}: known are {', '.join(NAMES)}")
    print(f"## {name}", flush=True)
    importlib.import_module(f"benchmarks.{name}").main([])

"""What do the parts of a provenance audit cost? Each part is a module of its own: `python -m benchmarks.provenance [PART ...]`."""

from __future__ import annotations

import argparse
import importlib

PARTS = {"scoring": "benchmarks.provenance_scoring"}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    for part in parser.parse_args(arguments).parts or PARTS:
        print(f"### {part}", flush=True)
        importlib.import_module(PARTS[part]).main([])


if __name__ == "__main__":
    main()

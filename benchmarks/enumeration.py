"""How long would it take to rank all 10^9 fillings of nine digits? Measured on a smaller space, and scaled.

The Secret Sharer puts brute force over 10^16 credit card numbers at 4,100 GPU-years: 3.6 GPU-hours for 10^9.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.reference_model import reference_model
from coalmine import CanarySet, Format, expose

PAPER_HOURS = 4100 * 365.25 * 24 * 10**9 / 10**16


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, help="directory to keep the trained model in")
    parser.add_argument("--digits", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        model, _ = reference_model(given.work or Path(folder))
        form = Format(f"the random number is {{digits:{given.digits}}}")
        canaries = CanarySet.of(form, form.sample(8, seed=0, replace=False))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        results = expose(model, canaries, method="exact")
        took = time.perf_counter() - began
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    hours = took * 10**9 / form.size / 3600
    print(
        f"{form.size:,} members ranked in {took:.0f} s: {results.expansions:,} expansions, {results.expansions / took:,.0f} a second"
    )
    print(f"memory grew by {grown:.0f} MB while ranking")
    print(
        f"scaled to 10^9: {hours:.2f} hours on {given.threads} CPU thread(s); the paper's figure is {PAPER_HOURS:.1f} GPU-hours"
    )


if __name__ == "__main__":
    main()

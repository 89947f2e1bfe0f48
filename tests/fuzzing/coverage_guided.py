"""Fuzzes one reader after the other, guided by coverage: `make fuzz`, or `python -m fuzzing.coverage_guided SECONDS [READER...]`.

Each reader has a process of its own, which libFuzzer ends at the first fault, after so many seconds, or beyond a limit of memory or time. What
made a fault is kept in `fuzz-findings/`, and the table at the end says how often each reader was tried.
"""

import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Before anything that numpy or torch starts threads for.
os.environ.setdefault("OMP_NUM_THREADS", "1")
FINDINGS = Path("fuzz-findings")
MEGABYTES = 4_096


def main():
    seconds, *names = sys.argv[1:] or ["120"]
    if seconds == "--one":
        fuzz(*names)
    from fuzzing.readers import READERS

    FINDINGS.mkdir(exist_ok=True)
    failed = []
    for name in names or [reader.name for reader in READERS]:
        process = subprocess.run(
            [sys.executable, "-m", "fuzzing.coverage_guided", "--one", name, seconds],
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        tried = re.findall(r"stat::number_of_executed_units:\s*(\d+)", process.stderr) or ["0"]
        covered = re.findall(r"cov: (\d+)", process.stderr) or ["0"]
        print(
            f"{name}: {int(tried[-1]):,} tries, {int(covered[-1]):,} branches, exit code {process.returncode}",
            flush=True,
        )
        if process.returncode:
            failed.append(name)
            print(process.stderr[-8_000:], flush=True)
    sys.exit(1 if failed else 0)


def fuzz(name, seconds):
    """Fuzz one reader in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["coalmine"]):
        from fuzzing.mutations import damaged, restructured
        from fuzzing.readers import BY_NAME
        from fuzzing.trials import Trial

    trial = Trial(BY_NAME[name], Path(tempfile.mkdtemp(prefix="coalmine-fuzz-")))
    seeds = Path(tempfile.mkdtemp(prefix="coalmine-fuzz-seeds-"))
    # The first byte says whether what follows gets the checksums that it would have.
    (seeds / "valid").write_bytes(b"\0" + trial.valid)
    if trial.reader.json:
        (seeds / "document").write_bytes(b"\1" + restructured(trial.document, lambda most: most - 1))

    def try_one(content):
        if content:
            (trial.try_document if content[0] & 1 else trial.try_content)(content[1:])

    def mutate(content, most, seed):
        """Half of the time as a fuzzer changes bytes, else in the ways that a file is damaged, or a document has other values."""
        chance = random.Random(seed)
        if content and chance.random() < 0.5:
            return atheris.Mutate(content, most)
        if trial.reader.json and chance.random() < 0.6:
            return (b"\1" + restructured(trial.document, chance.randrange))[:most]
        return (bytes([chance.randrange(2)]) + damaged(content[1:] or trial.valid, chance.randrange))[:most]

    options = [
        f"-max_total_time={seconds}",
        "-timeout=60",
        f"-rss_limit_mb={MEGABYTES}",
        "-print_final_stats=1",
        f"-max_len={4 * len(trial.valid) + 200_000}",
        f"-artifact_prefix={FINDINGS}/{re.sub('[^a-z0-9]+', '-', name)}-",
    ]
    atheris.Setup([sys.argv[0], *options, str(seeds)], try_one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

"""A longer series of kills than the suite has time for: `make fuzz-kills` prints what is in docs/explanation/kills.md.

First each command in a child of the fork server, killed at moments that are drawn anew for each seed. Then real processes, as a user
starts them, killed with SIGKILL at random times, with what is kept to resume at its usual intervals.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from coalmine.corpus import write_embedded_corpus
from faults.fork_server import ForkServer
from faults.kill_cases import PIN, PLANTING, SMALL, cases, make_inputs, short_cases
from faults.kill_runs import Case, Sweep, contents, spread
from faults.serving import served


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60, help="of each command and seed")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--real", type=int, default=10, help="kills of each real process")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="coalmine-kills-"))
    print("| command | kills | resumed runs | result |\n| --- | --- | --- | --- |", flush=True)
    try:
        with ForkServer() as server:
            (folder / "inputs").mkdir()
            inputs = make_inputs(server, folder / "inputs")
            with served(server, inputs / "model") as url:
                _watched(server, inputs, folder, url, asked)
        _real(folder, asked.real)
    finally:
        shutil.rmtree(folder)


def _watched(server, inputs, folder, url, asked):
    through = ("expose", url, inputs / "planted", "--method", "references", "-o", "out", "--quiet")
    everything = {
        **cases(inputs),
        "expose through an endpoint": Case(through, counted="after request"),
        **short_cases(inputs),
    }
    for name, case in everything.items():
        kills = resumed = 0
        for seed in range(asked.seeds):
            swept = Sweep(server, case, folder / "run").through(spread(asked.kills, seed=f"long {seed}"))
            kills, resumed = kills + len(swept.kills), resumed + swept.resumed
        print(f"| {name} | {kills} | {resumed or 'starts over'} | same bytes, nothing left |", flush=True)


def _real(folder, kills):
    """Processes of their own, killed by the clock."""
    where = folder / "real"
    where.mkdir()
    write_embedded_corpus(where / "corpus.txt", 300_000)
    _coalmine(where, ["plant", "corpus.txt", "-f", PIN, *PLANTING, "-o", "planted", "--quiet"])
    _coalmine(where, ["train", "planted", "-o", "model", *SMALL, "--quiet"])
    for name, argv in {
        "train": ("train", "planted", "--epochs", "3", "--hidden", "64", "--batch-size", "8"),
        "index": ("index", "corpus.txt", "--memory", "1MB"),
        "dedup": ("dedup", "planted/corpus.txt"),
        "expose bounded": ("expose", "model", "planted", "--method", "bounded"),
        "plant": ("plant", "corpus.txt", "-f", PIN, *PLANTING),
    }.items():
        command = [*argv, "-o", "out", "--quiet"]
        began = time.monotonic()
        _coalmine(where, command)
        takes = time.monotonic() - began
        whole = contents(where / "out")
        shutil.rmtree(where / "out")
        done = _killed_by_the_clock(where, command, takes, kills, whole)
        print(f"| {name}, a process of {takes:.0f} s | {done} | | same bytes, nothing left |", flush=True)


def _killed_by_the_clock(where, command, takes, kills, whole):
    chance, done = random.Random("the clock"), 0
    while done < kills:
        process = subprocess.Popen([sys.executable, "-m", "coalmine", *command], cwd=where)
        try:
            process.wait(timeout=chance.uniform(0.3, 1.0) * takes)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            done += 1
            continue
        assert process.returncode == 0
        assert contents(where / "out") == whole
        shutil.rmtree(where / "out")
    _coalmine(where, command)
    assert contents(where / "out") == whole
    shutil.rmtree(where / "out")
    return done


def _coalmine(where, command):
    subprocess.run([sys.executable, "-m", "coalmine", *command], cwd=where, check=True)


if __name__ == "__main__":
    main()

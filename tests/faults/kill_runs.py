"""Runs a command again and again and kills it each time a little later, until a run is left to come to its end."""

import json
import random
import shutil
import signal
import sqlite3
from typing import NamedTuple

from coalmine.cli.main import STOPPED
from faults import moments
from faults.fork_server import COMMAND


class Case(NamedTuple):
    """A command, in a directory of its own, with its results below it."""

    argv: tuple
    # See `moments.CHANGES`.
    changes: tuple = ()
    # Puts into the directory what was there before the command, if anything was.
    prepare: object = None
    # Whether it resumes; otherwise it starts over.
    resumes: bool = True
    counted: str = "forward"
    call: str = COMMAND


class Swept(NamedTuple):
    """What a sweep went through."""

    # The moments at which it was killed.
    kills: list
    # How many of all runs went on from what an earlier one had left.
    resumed: int
    # How often what is `counted` was done in the longest series of runs on one directory, and in an undisturbed run.
    work: int
    whole_work: int


class Sweep:
    """One case, stopped at each of some moments."""

    def __init__(self, server, case, folder):
        self.server, self.case = server, case
        self.folder, self.record = folder / "there", folder / "moments"
        self.whole = None

    def start(self, stop=None, number=signal.SIGKILL):
        """A process that sends itself a signal at a moment."""
        self.record.unlink(missing_ok=True)
        arguments = {
            "record": str(self.record), "stop": stop, "number": int(number), "changes": self.case.changes
        }  # fmt: skip
        return self.server.start(
            self.case.argv,
            call=self.case.call,
            before=["faults.moments:watch", arguments],
            cwd=self.folder,
            environment={"TMPDIR": str(self.folder)},
        )

    def run(self, stop=None, number=signal.SIGKILL):
        """One process to its end, and the moments that it went through."""
        return self.server.wait(self.start(stop, number)), moments.of(self.record)

    def fresh(self):
        """As it was before the command."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self.case.prepare is not None:
            self.case.prepare(self.folder)

    def learn(self):
        """An undisturbed run: what it leaves, and its moments."""
        self.fresh()
        ended, lines = self.run()
        assert ended.code == 0, ended.err
        self.whole = contents(self.folder)
        return lines

    def check_whole(self, said):
        """What is there is what an undisturbed run leaves, and nothing else."""
        found = contents(self.folder)
        assert sorted(found) == sorted(self.whole), f"{sorted(set(found) ^ set(self.whole))} {said}"
        for name, content in found.items():
            assert content == self.whole[name], f"{name} differs, {said}"

    def through(self, points, number=signal.SIGKILL, code=-signal.SIGKILL):
        """Stop a run at each point; each resumes from what the previous one left, and the last one finishes."""
        lines = self.learn()
        kills, resumed, lives = [], 0, [0]
        self.fresh()

        def run(stop=None):
            nonlocal resumed
            ended, seen = self.run(stop, number)
            resumed += "resumed" in seen
            lives[-1] += seen.count(self.case.counted)
            assert stop is None or code < 0 or ended.code != code or _is_told(ended), ended
            return ended

        for stop in points(lines):
            ended = run(stop)
            if ended.code == 0:
                # It resumed so far on that it did not come to this moment any more.
                self.check_whole(f"stopped at {kills[-3:]}")
                self.fresh()
                lives.append(0)
                ended = run(stop)
            assert ended.code == code, f"to be stopped at {stop}, after {kills[-3:]}: {ended}"
            kills.append(stop)
        ended = run()
        assert ended.code == 0, f"stopped at {kills[-3:]}: {ended}"
        self.check_whole(f"stopped at {kills[-3:]}")
        return Swept(kills, resumed, max(lives), lines.count(self.case.counted))


def _is_told(ended):
    """Whether a process that was asked to stop says so, and how to resume."""
    return ended.out == "" and ended.err.endswith(STOPPED) and "Traceback" not in ended.err


def spread(many, seed=0):
    """Moments to stop at: after each file that takes its name or goes, and as many others, drawn by `seed`, as make `many`."""

    def points(lines):
        # Requests are sent from several threads, so that there are not always as many: the last of them may not come.
        certain = lines.count("after request") // 2
        numbered = moments.numbered(lines)
        places = [[line, number] for line, number in numbered if "request" not in line or number <= certain]
        first = [place for place, (_, number) in enumerate(places) if number == 1]
        chosen = {place for place in first if places[place][0].startswith(("after replace", "after unlink"))}
        others = [place for place in range(len(places)) if place not in chosen]
        drawn = random.Random(f"moments {seed}").sample(others, min(len(others), max(0, many - len(chosen))))
        return [places[place] for place in sorted({*chosen, *drawn})]

    return points


def contents(folder):
    """Everything below a directory, without what the clock has put there."""
    return {str(path.relative_to(folder)): _content(path) for path in sorted(folder.rglob("*"))}


def _content(path):
    if path.is_dir():
        return "a directory"
    if path.name == "run.json":
        record = json.loads(path.read_bytes())
        for clock in ("started_at", "elapsed_seconds", "checksum"):
            del record[clock]
        # Each run of an endpoint asks who it is; what it answered is the same.
        if "identity" in record:
            record["identity"] = [asked and asked["answers"] for asked in record["identity"]]
        return record
    if path.name == "report.html" and (path.parent / "review.json").exists():
        # The page of an audit says when its command was run; everything else on it is in the other files.
        return path.read_text("utf-8").rstrip().endswith("</html>")
    if path.suffix == ".sqlite":
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as answers:
            return sorted(answers.execute("SELECT * FROM answers"))
    if path.name == "unfinished.units":
        return "what a search keeps to be resumed with a larger budget, with how often it had to read a text again"
    return path.read_bytes()

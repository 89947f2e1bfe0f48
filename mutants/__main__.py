"""`python -m mutants`: changes operators one at a time, and says how many of the changes the tests notice."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mutants.explanations import read_explanations, stale
from mutants.places import Mutant, drawn, mutants_of
from mutants.results import Row, missed_without_reason, summary, write_rows
from mutants.rooms import mutated_files, test_files
from mutants.selecting import Selection
from mutants.tracing import record_of
from mutants.trying import Tree, Trial, import_libraries, take_snapshot

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".mutants"
ENOUGH = 0.95


def main() -> int:
    """Returns 0 if enough are caught, and each of the others is explained."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        directory = Path(name)
        root = directory / "snapshot"
        take_snapshot(ROOT, root)
        mutants = [
            one for file in mutated_files(root) for one in mutants_of(file, (root / file).read_text("utf-8"))
        ]
        wanted = [one for one in mutants if any(part in one.file for part in options.only)]
        chosen = drawn(wanted, options.number, options.seed)
        if options.list:
            for mutant in chosen:
                print(
                    f"{mutant.file}:{mutant.line}:{mutant.column} {mutant.kind}: {mutant.marked_line} → {mutant.new}"
                )
            return 0
        explanations = read_explanations()
        outdated = stale(explanations, mutants)
        for one in outdated:
            print(f"explained.toml: this line is no longer in {one.file}, so remove its entry: {one.line}")
        _trace_what_is_new(root)
        trials = _Trials(root, options.seed, again=options.again)
        import_libraries()
        for _ in range(2):  # the second time without the tests that fail on this machine whatever is changed
            _in_parallel([one for one in chosen if trials.of(one) is None], trials, root, options.workers)
            if not _drop_what_fails_without_a_mutant(trials, chosen, root):
                break
    rows = [Row.of(mutant, trials.of(mutant) or Trial("untested"), explanations) for mutant in chosen]
    print(summary(rows))
    if options.write:
        write_rows(rows, options.write)
    caught = sum(row.is_caught for row in rows)
    return int(caught < ENOUGH * len(rows) or bool(missed_without_reason(rows)) or bool(outdated))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which mutants (default: 1)")
    parser.add_argument("--number", type=int, default=200, help="how many (default: 200)")
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time"
    )
    parser.add_argument("--only", nargs="+", default=[""], help="only files whose paths hold one of these")
    parser.add_argument("--again", action="store_true", help="try only those that survived the last time")
    parser.add_argument("--list", action="store_true", help="print the mutants, and try none")
    parser.add_argument("--write", type=Path, help="also write one row per mutant to this .csv file")
    return parser.parse_args()


def _trace_what_is_new(root: Path) -> None:
    files = [file for file in test_files(root) if not record_of(CACHE, root, file).exists()]
    if not files:
        return
    print(f"tracing {len(files)} files of tests", flush=True)
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mutants.tracing", str(root), str(CACHE), *files]
    ended = subprocess.run(command, cwd=root, env=environment, check=False, capture_output=True, text=True)
    if ended.returncode not in {0, 1}:  # a test that fails is left out
        raise SystemExit(f"the tests could not be traced:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")


class _Trials:
    """What is known of mutants already, on disk while the work goes on: a run that was stopped resumes."""

    def __init__(self, root: Path, seed: int, *, again: bool) -> None:
        CACHE.mkdir(exist_ok=True)
        self.path = CACHE / f"trials-{seed}.jsonl"
        self.unreliable: set[str] = set()
        self._tree = _digest_of_tree(root)
        self._again = again
        self._found: dict[str, tuple[str, Trial]] = {}
        self.read()
        if again:
            self._found = {
                key: kept for key, kept in self._found.items() if kept[1].outcome in {"caught", "timeout"}
            }

    def read(self) -> None:
        if self.path.exists():
            for line in self.path.read_text("utf-8").splitlines():
                entry = json.loads(line)
                if self._again or entry["tree"] == self._tree:
                    self._found[entry["mutant"]] = (entry["tree"], Trial(**entry["trial"]))

    def of(self, mutant: Mutant) -> Trial | None:
        return self._found.get(_key(mutant), (None, None))[1]

    def add(self, mutant: Mutant, trial: Trial) -> None:
        entry = {"tree": self._tree, "mutant": _key(mutant), "trial": asdict(trial)}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def forget(self, mutants: Sequence[Mutant]) -> None:
        for mutant in mutants:
            self._found.pop(_key(mutant), None)


def _key(mutant: Mutant) -> str:
    return f"{mutant.file} {mutant.marked_line} {mutant.new}"


def _digest_of_tree(root: Path) -> str:
    found = hashlib.sha256()
    for folder in ("src", "tests"):
        for path in sorted((root / folder).rglob("*.py")):
            found.update(path.relative_to(root).as_posix().encode())
            found.update(path.read_bytes())
    return found.hexdigest()[:24]


def _in_parallel(mutants: list[Mutant], trials: _Trials, root: Path, workers: int) -> None:
    """Share the mutants among processes, each with a tree of its own."""
    if not mutants:
        return
    selection = Selection(root, CACHE)
    processes = []
    for worker in range(workers):
        sys.stdout.flush()
        process = os.fork()
        if not process:
            code = 70
            try:
                _work(
                    mutants[worker::workers], trials, selection, Tree(root, root.with_name(f"tree-{worker}"))
                )
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        processes.append(process)
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    if any(codes):
        raise SystemExit("a process that tries mutants has failed; see above")
    trials.read()


def _work(mutants: list[Mutant], trials: _Trials, selection: Selection, tree: Tree) -> None:
    tree.warm_up()
    for number, mutant in enumerate(mutants, 1):
        tests = [test for test in selection.tests(mutant) if test.name not in trials.unreliable]
        trial = tree.try_mutant(mutant, tests)
        trials.add(mutant, trial)
        place = f"{mutant.file}:{mutant.line}:{mutant.column}"
        print(f"{number}/{len(mutants)} {trial.outcome} {place} {mutant.marked_line} → {mutant.new} | "
              f"{trial.seconds:.1f} s of {len(tests)} tests | {trial.test} {trial.error}", flush=True)  # fmt: skip


def _drop_what_fails_without_a_mutant(trials: _Trials, chosen: list[Mutant], root: Path) -> bool:
    """Run the tests that caught something on the tree as it is; what fails there has caught nothing."""
    selection = Selection(root, CACHE)
    caught = {mutant: trial.test for mutant in chosen if (trial := trials.of(mutant)) and "::" in trial.test}
    tests = selection.named(set(caught.values()) - trials.unreliable)
    if not tests:
        return False
    tree = Tree(root, root.with_name("control"))
    found = False
    while tests:
        trial = tree.run(tests)
        if trial.outcome == "survived":
            break
        if trial.outcome != "caught" or "::" not in trial.test:
            raise SystemExit(f"the tests cannot be run without a mutant: {trial}")
        print(f"fails without a mutant too: {trial.test} {trial.error}", flush=True)
        found = True
        trials.unreliable.add(trial.test)
        trials.forget([mutant for mutant, test in caught.items() if test == trial.test])
        tests = [test for test in tests if test.name != trial.test]
    return found


if __name__ == "__main__":
    sys.exit(main())

"""How fast is scanning for secrets, beside Python's `re` over the same patterns and beside another tool, and how much memory does it take?

Run: python benchmarks/scanning.py --megabytes 50
The other tool is scrubadub, or else detect-secrets; it is not a dependency of coalmine, and is left out if neither is installed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from coalmine import Format, scan
from coalmine.corpus import Fields, embedded_documents
from coalmine.corpus.secrets.finding import SecretFinder
from coalmine.corpus.secrets.kinds import KINDS, chosen_kinds

ROUNDS = 7
USERS = 1_000
# Each measurement of memory has a process of its own, so that its peak is its own.
CHILD = "import sys; sys.path.insert(0, sys.argv[1]); import scanning; scanning.measure_memory(*sys.argv[2:])"
# The others are measured on so many bytes, because they take long.
SAMPLE = 300_000


def mail(megabytes: float) -> Iterator[str]:
    """Messages of two kilobytes: English, quoted lines, dates and numbers, with two addresses and now and then a phone number."""
    chance = random.Random(0)
    sentences = embedded_documents(600_000)
    phones = Format("{phone}")
    people = [f"{chance.choice(['ann', 'bo', 'cy', 'di', 'eve'])}.{n}@firm{n % 97}.org" for n in range(USERS)]
    written = number = 0
    while written < megabytes * 1_000_000:
        # Whom somebody writes to, and who wrote to them.
        number += 1
        friends = [people[(number + 37 * chance.randint(0, 4)) % USERS] for _ in range(2)]
        lines = [
            f"On {chance.randint(1, 28)} May 2001 {chance.randint(0, 23):02}:{chance.randint(0, 59):02}, {friends[0]} wrote:"
        ]
        some = chance.choices(sentences, k=chance.randint(8, 24))
        lines += [("> " if chance.random() < 0.3 else "") + sentence for sentence in some]
        lines.append(f"order {chance.randrange(10**7)}, {chance.random():.4f}, {friends[1]}")
        if chance.random() < 0.15:
            lines.append(f"call {phones.at(chance.randrange(phones.size))} \N{EN DASH} thanks")
        text = "\n".join(lines)
        written += len(text)
        yield text


def write_mail(path: Path, megabytes: float) -> None:
    """A corpus of such messages by a thousand users."""
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(
            json.dumps({"user": f"user {number % USERS}", "text": text}, ensure_ascii=False) + "\n"
            for number, text in enumerate(mail(megabytes))
        )


def rate(megabytes: float, work: Callable[[], object]) -> float:
    """Megabytes per second of processor time, the best of some rounds."""
    best = 0.0
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        best = max(best, megabytes / (time.process_time() - begin))
    return best


def with_re(content: bytes) -> int:
    """Python's own regular expressions over the same patterns, as one alternation."""
    names = (f"(?:{kind.pattern})" for kind in KINDS.values())
    pattern = re.compile("|".join(names).encode())
    return sum(1 for _ in pattern.finditer(content))


def other_tool() -> tuple[str, Callable[[str], int]] | None:
    """Another tool that finds such secrets in text, by its name."""
    try:
        import scrubadub

        scrubber = scrubadub.Scrubber()
        return "scrubadub", lambda text: sum(1 for _ in scrubber.iter_filth(text))
    except ImportError:
        pass
    try:
        from detect_secrets.core.scan import scan_line
        from detect_secrets.settings import default_settings
    except ImportError:
        return None

    def count(text: str) -> int:
        with default_settings():
            return sum(1 for line in text.split("\n") for _ in scan_line(line))

    return "detect-secrets", count


def compare(texts: list[str]) -> None:
    """The finder alone, beside the others."""
    content = b"\xff".join(text.encode() for text in texts)
    sample = content[:SAMPLE].decode("utf-8", "ignore")
    finder = SecretFinder(chosen_kinds())
    finder.find(content[:SAMPLE])  # what is loaded on first use
    ours = rate(len(content) / 1e6, lambda: finder.find(content))
    print(
        f"finding, {len(content) / 1e6:.0f} MB of text: {ours:.0f} MB per CPU second, {len(finder.find(content)):,} secrets"
    )
    theirs = rate(SAMPLE / 1e6, lambda: with_re(content[:SAMPLE]))
    print(
        f"Python's re, the same patterns: {theirs:.1f} MB per CPU second; {ours / theirs:.0f} times as long"
    )
    tool = other_tool()
    if tool is None:
        print("another tool: neither scrubadub nor detect-secrets is installed")
        return
    name, count = tool
    small = sample[: SAMPLE // 3]
    theirs = rate(len(small.encode()) / 1e6, lambda: count(small))
    print(f"{name}: {theirs:.2f} MB per CPU second; {ours / theirs:.0f} times as long")


def compare_whole(folder: Path, megabytes: float) -> None:
    """The whole command: reading JSON lines, finding, counting and writing."""
    path = folder / "mail.jsonl"
    write_mail(path, megabytes)
    size = path.stat().st_size / 1e6
    scan(path, folder / "out", fields=Fields(user="user"), overwrite=True)
    speed = rate(size, lambda: scan(path, folder / "out", fields=Fields(user="user"), overwrite=True))
    print(f"scan of {size:.0f} MB of JSON lines, with users: {speed:.0f} MB per CPU second")


def measure_memory(path: str, out: str) -> None:
    """Print the peak of a process that scans."""
    scan(path, out, overwrite=True)
    [peak] = re.findall(r"VmHWM:\s+([0-9]+) kB", Path("/proc/self/status").read_text())
    print(int(peak) // 1024)


def compare_memory(folder: Path, megabytes: float) -> None:
    """The peak for a corpus and for one ten times as large, and for files of one line."""
    for times in (1, 10):
        path = folder / f"{times}.jsonl"
        write_mail(path, times * megabytes)
        print(f"peak memory, {path.stat().st_size / 1e6:.0f} MB of JSON lines: {_peak(path, folder)} MB")
    long = " ".join(text.replace("\n", " ") for text in mail(100))
    lines = {".txt": long, ".jsonl": json.dumps({"text": long}, ensure_ascii=False) + "\n"}
    for suffix, content in lines.items():
        line = folder / f"line{suffix}"
        line.write_text(content, "utf-8")
        size = line.stat().st_size / 1e6
        print(f"peak memory, one line of {size:.0f} MB in {suffix}: {_peak(line, folder)} MB")


def _peak(path: Path, folder: Path) -> str:
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", CHILD, here, str(path), str(folder / "peak")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main(arguments: list[str]) -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=50)
    given = parser.parse_args(arguments)
    compare(list(mail(given.megabytes)))
    with tempfile.TemporaryDirectory() as folder:
        compare_whole(Path(folder), given.megabytes)
        compare_memory(Path(folder), given.megabytes)


if __name__ == "__main__":
    main(sys.argv[1:])

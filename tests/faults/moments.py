"""In a child of the fork server: writes down each moment at which a process can be stopped, and stops it at one of them.

A moment is one line: what is about to happen to a file, or has just happened, with the file's name (`after replace training.json`); a
piece of work (`forward`, a pass through a network; `advance`, a step that is reported; `after request`, to a server); or `resumed`. The
same command has the same moments each time, so that a test can choose one by its line and by how often the line was written before.
"""

import functools
import itertools
import os
import re
import signal
import stat
import threading
from collections import Counter
from pathlib import Path

_RANDOM = re.compile(r"\.[0-9a-f]{8,16}-[0-9]+(?=\.|$)")


class Moments:
    """What a child goes through."""

    def __init__(self, record, stop, number):
        self._record = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._stop, self._number = stop, number
        self._seen = Counter()
        self._one_at_a_time = threading.Lock()

    def __call__(self, line):
        with self._one_at_a_time:
            self._seen[line] += 1
            number = self._seen[line]
        os.write(self._record, f"{line}\n".encode())
        if self._stop == [line, number]:
            os.kill(os.getpid(), self._number)


def watch(record, stop=None, number=int(signal.SIGKILL), changes=()):
    """Write moments to the file `record`; at the moment `stop`, a line and which of its kind, send this process a signal.

    Whatever is kept to resume is kept after every step. `changes` are names of what else is not as usual, see `CHANGES`.
    """
    moments = Moments(record, stop, number)
    _watch_files(moments)
    _watch_work(moments)
    _keep_after_every_step()
    _watch_resuming(moments)
    for change in changes:
        CHANGES[change]()


def _name(target):
    if isinstance(target, int):
        target = Path(f"/proc/self/fd/{target}").readlink()
    return _RANDOM.sub("", Path(os.fsdecode(target)).name)


def _watch_files(moments):
    def watched(act, real, *, when=lambda *_: True, which=0):
        @functools.wraps(real)
        def call(*given, **named):
            if not when(*given):
                return real(*given, **named)
            name = _name(given[which])
            moments(f"before {act} {name}")
            answer = real(*given, **named)
            moments(f"after {act} {name}")
            return answer

        return call

    os.open = watched("open", os.open, when=lambda _, flags=0, *__: flags & os.O_CREAT)
    os.fsync = watched("fsync", os.fsync, when=lambda place: not stat.S_ISDIR(os.fstat(place).st_mode))
    os.replace = watched("replace", os.replace, which=1)
    for act in ("unlink", "mkdir", "rmdir"):
        setattr(os, act, watched(act, getattr(os, act)))
    os.remove = os.unlink


def _watch_work(moments):
    import torch

    from coalmine.cli.runner import Session
    from coalmine.models.endpoints.transport import Transport

    torch.nn.modules.module.register_module_forward_pre_hook(lambda *_: moments("forward"))
    exchange = Transport.exchange

    def watched_exchange(transport, url, body, **named):
        moments("before request")
        answer = exchange(transport, url, body, **named)
        moments("after request")
        return answer

    Transport.exchange = watched_exchange

    class Told:
        def start(self, *_):
            pass

        def advance(self, _=1, note=""):
            moments("resumed" if note == "resumed" else "advance")

        def finish(self):
            pass

    Session.progress = lambda _: Told()


def _watch_resuming(moments):
    """A training says by itself that it is resumed."""
    from coalmine.engines.ledger import Ledger

    def watched(real):
        @functools.wraps(real)
        def call(*given):
            found = real(*given)
            if found is not None:
                moments("resumed")
            return found

        return call

    Ledger.result, Ledger.kept = watched(Ledger.result), watched(Ledger.kept)


def _keep_after_every_step():
    from coalmine.engines import ledger

    ledger.SECONDS_BETWEEN_SAVES = 0.0


def _small_units():
    """An enumeration in many units, and of none of its members a score that is kept, as for spaces of millions."""
    from coalmine.audits.exposure import ranked as exposure_ranked
    from coalmine.search.walks import enumeration

    exposure_ranked.KEEP_UP_TO = 10
    enumeration.UNIT_MEMBERS = 100


def _small_shards():
    """An index of some thousand tokens in several shards."""
    from coalmine.corpus.index import building

    building.LARGEST_SORT = 2_500


def _small_questions():
    """Few questions at a time."""
    from coalmine.audits.recitation import answers as recitation_answers

    recitation_answers.AT_A_TIME = 8


def _no_figures():
    """Figures take a second to draw."""
    import sys

    sys.modules["vl_convert"] = None


def _small_batches():
    """A search of many steps."""
    from coalmine import expose
    from coalmine.search.walks.members import Members

    expose.__kwdefaults__["batch"] = Members.__init__.__kwdefaults__["batch"] = 64


def _still_clock():
    """An audit that always has the same time for the same plan, whatever the machine does besides."""
    from coalmine.audits.whole import auditing
    from coalmine.audits.whole.records import Speeds

    auditing.clock, auditing.measure = lambda: 0.0, lambda *_: Speeds(lines=1e4, steps=1e6)


CHANGES = {
    "still clock": _still_clock,
    "small batches": _small_batches,
    "small units": _small_units,
    "small shards": _small_shards,
    "small questions": _small_questions,
    "no figures": _no_figures,
}


def of(record):
    """The moments that were written to a file."""
    path = Path(record)
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def numbered(lines):
    """Each moment as its line and which of its kind it is."""
    counts = {}
    return [[line, next(counts.setdefault(line, itertools.count(1)))] for line in lines]

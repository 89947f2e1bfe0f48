"""One warm process that forks a child for each run, so that a thousand runs of a command import torch once.

    with ForkServer() as server:
        run = server.run(["train", "corpus.txt", "-o", "model"])
        assert run.code == 0

A child is a process of its own: it can be killed, run out of disk or be given signals, and ends as any other. What is to be done in it
before its command begins, such as planting a fault, is a function that the caller names as `module:function`.
"""

import argparse
import atexit
import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from pathlib import Path
from typing import NamedTuple

COMMAND = "coalmine.cli.main:main"
# Loaded by the first use of something else, and slowly.
WARM = """
    torch._dynamo torch.profiler._cupti_monitor safetensors.torch scipy.stats pyarrow.parquet
    pyarrow.compute pydantic.type_adapter pydantic.main
    zoneinfo encodings.utf_32_le rich.console rich.table rich._emoji_codes httpcore vl_convert
    pydivsufsort rensa pandas dateutil.parser jinja2.filters jinja2.debug huggingface_hub.errors
    phonenumbers re2
"""
# Heavy, and of no use to any command.
_COLD = ("coalmine.integrations", "coalmine.__main__", "coalmine.models.conformance")


class Run(NamedTuple):
    """How a child ended."""

    # Minus the number of a signal where one ended it.
    code: int
    out: str
    err: str


class Child(NamedTuple):
    """A child that may still run."""

    pid: int
    out: Path
    err: Path


class ForkServer:
    """Starts the warm process; children are forked from it and never from the process that runs the tests, which has threads."""

    def __init__(self, *, warm=(), environment=None):
        self._folder = tempfile.TemporaryDirectory(prefix="coalmine-runs-")
        self._started = 0
        self._process = subprocess.Popen(
            [sys.executable, __file__, *warm],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "JE_ARROW_MALLOC_CONF": "background_thread:false",  # the one library here that starts a thread by itself
                **(environment or {}),
            },
        )
        assert self._process.stdout.readline() == "ready\n", "the fork server did not start"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=300)
        self._process.stdout.close()
        self._folder.cleanup()

    def run(self, argv=(), **how):
        """Start a child and wait for its end; see `start`."""
        return self.wait(self.start(argv, **how))

    def start(self, argv=(), *, call=COMMAND, before=None, cwd=None, environment=None):
        """A child that calls `call` with `argv` as its command line.

        Args:
            argv: what comes after the name of the command.
            call: the function, as `module:function`; the default is the command line of coalmine.
            before: a function to call first, as `module:function`, and a dict of its arguments.
            cwd: where the child runs.
            environment: variables to set in it.
        """
        self._started += 1
        out, err = (Path(self._folder.name, f"{self._started}.{name}") for name in ("out", "err"))
        for path in (out, err):
            path.touch()  # a child that is killed at once has not come to it
        reply = self._ask(
            start=[str(one) for one in argv],
            call=call,
            before=before,
            cwd=None if cwd is None else str(cwd),
            environment=environment or {},
            out=str(out),
            err=str(err),
        )
        return Child(reply["pid"], out, err)

    def wait(self, child):
        """The end of a child."""
        reply = self._ask(wait=child.pid)
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in (child.out, child.err)]
        for path in (child.out, child.err):
            path.unlink()
        return Run(reply["code"], *texts)

    def _ask(self, **request):
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the fork server has ended"
        return json.loads(line)


def _load(place):
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _warm_up(modules):
    import coalmine

    for found in pkgutil.walk_packages(coalmine.__path__, "coalmine."):
        if not found.name.startswith(_COLD):
            importlib.import_module(found.name)
    for name in (*WARM.split(), *modules):
        importlib.import_module(name)
    from coalmine.cli.main import every_command

    # What calling it does first each time: half of the time of a command that does nothing.
    _ = [*every_command()]


def _end(code):
    """In the child: end as a program does, without taking all modules apart, which is half a second's work."""
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _become(request):
    """In the child: be the process that was asked for; gives its exit code."""
    for name, target in (("out", 1), ("err", 2)):
        file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, target)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.environ.update(request["environment"])
    if request["cwd"] is not None:
        os.chdir(request["cwd"])
    sys.argv = ["coalmine", *request["start"]]
    try:
        if request["before"] is not None:
            place, arguments = request["before"]
            _load(place)(**arguments)
        return _load(request["call"])()
    except SystemExit as end:
        return end.code
    except BaseException:  # noqa: BLE001 - what any program does
        traceback.print_exc()
        return 1


def _serve():
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")

    def reply(line):
        replies.write(line + "\n")
        replies.flush()

    # Threads do not come along into a child, and whatever lock they hold stays locked there.
    assert threading.active_count() == 1, threading.enumerate()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a library has started threads"
    gc.collect()
    gc.freeze()  # so that a collection in a child does not copy all that is here
    for one in list(weakref.finalize._registry):
        one.atexit = False  # torch takes its libraries of operators apart, which is most of what an idle child would do
    reply("ready")
    for line in requests:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            reply(json.dumps({"code": os.waitstatus_to_exitcode(status)}))
            continue
        pid = os.fork()
        if pid == 0:
            requests.close()
            replies.close()
            _end(_become(request))
        reply(json.dumps({"pid": pid}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("modules", nargs="*")
    _warm_up(parser.parse_args().modules)
    _serve()

"""The command line in this process: its exit code and the bytes on both streams, as a terminal or a pipe would get them."""

import io
import json
import logging
import os
import sys
import warnings
from typing import NamedTuple
from unittest import mock

from coalmine.cli import main as entry


class Ended(NamedTuple):
    code: int
    out: bytes
    err: bytes

    @property
    def said(self):
        """Both streams, as text."""
        return (self.out + self.err).decode("utf-8")


def run(*arguments, encoding="utf-8"):
    """Run a command as in a process of its own, without the seconds that it takes to start one."""
    # As Python decodes what a shell passes on, bytes that are not UTF-8 among it.
    given = [os.fsdecode(argument) for argument in arguments]
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")}
    # What `main` changes for its process is put back.
    factory = logging.getLogRecordFactory()
    with (
        mock.patch.multiple(sys, argv=["coalmine", *given], **streams),
        mock.patch.object(warnings, "showwarning", warnings.showwarning),
    ):
        try:
            entry.main()
        except SystemExit as end:
            code = end.code or 0
        finally:
            logging.setLogRecordFactory(factory)
    for stream in streams.values():
        stream.flush()
    return Ended(code, *(stream.buffer.getvalue() for stream in streams.values()))


def document(*arguments):
    """The JSON document of a command that succeeds."""
    ended = run(*arguments, "--json", "--quiet")
    assert ended.code == 0, ended.said
    return json.loads(ended.out)

"""A cache of answers on disk, so that an interrupted run resumes without asking anything twice.

The file is an SQLite database with mode 0600. It holds hashes of questions, and answers, which contain the texts that were asked
about. It never holds a key. An answer is stored whole or not at all, even if the process is killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from coalmine.errors import CoalmineError, InputError, WriteError
from coalmine.models.endpoints.answers import EndpointAnswer, EndpointQuestion
from coalmine.models.endpoints.detection import Checks, Stretch
from coalmine.models.endpoints.transport import MOST_BYTES
from coalmine.storage.files import PRIVATE, check_replaceable, make_directory, write_error

# "coal", so that another database is not mistaken for a cache.
_APPLICATION = 0x636F616C
_LAYOUT = 2
_TABLES = {("table", name) for name in ("answers", "unconfirmed", "recognized", "stretches", "windows")}
# The files that SQLite puts next to the database.
_JOURNALS = ("-wal", "-shm", "-journal")
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
# The header of a database has this many bytes.
_SHORTEST = 100
_DAMAGED = "is not a cache of coalmine, or is damaged; choose another place, or remove it"
_MOST_COUNTED = 10**12
SECONDS_FOR_ANOTHER_PROCESS = 30.0


class AnswerCache:
    """Answers by question, in a file, or in a private temporary file if no path is given.

    Threads of one process share it through a lock; two processes may share the file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        url: str,
        model: str,
        request_fields: Mapping[str, Any] | None = None,
    ) -> None:
        self._url = url
        self._model = model
        self._fields = dict(request_fields or {})
        self._server = hashlib.sha256(
            msgspec.json.encode([url, model, self._fields], order="sorted")
        ).digest()
        self._path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._connection = self._open()
        # Also when the process ends, so that no journal is left.
        self._finish = weakref.finalize(self, self._connection.close)

    def get(self, question: EndpointQuestion) -> EndpointAnswer | None:
        """The answer to a question, or None; an answer with a wrong checksum counts as none."""
        key = self._key(question)
        with self._lock, self._readable():
            row = self._connection.execute(
                "SELECT answer, checksum FROM answers WHERE key = ?", (key,)
            ).fetchone()
        if row is None or not isinstance(row[0], bytes) or _checksum(key, row[0]) != row[1]:
            return None
        return _unpacked(row[0])

    def put(self, question: EndpointQuestion, answer: EndpointAnswer) -> None:
        """Store an answer that is not confirmed yet; once this returns, killing the process does not lose it."""
        key = self._key(question)
        content = zlib.compress(msgspec.json.encode(answer), 1)
        with self._lock, self._readable(), self._connection:
            self._connection.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (key, content, _checksum(key, content))
            )
            self._connection.execute(
                "INSERT OR REPLACE INTO unconfirmed VALUES (?, ?, 0)", (key, self._server)
            )

    def is_confirmed(self, question: EndpointQuestion) -> bool:
        """Whether the server was recognized after it gave this answer."""
        with self._lock, self._readable():
            return not self._connection.execute(
                "SELECT count(*) FROM unconfirmed WHERE key = ?", (self._key(question),)
            ).fetchone()[0]

    def has_confirmed(self) -> bool:
        """Whether answers of this server were ever confirmed."""
        with self._lock, self._readable():
            return bool(
                self._connection.execute(
                    "SELECT count(*) FROM recognized WHERE server = ?", (self._server,)
                ).fetchone()[0]
            )

    def bracket(self, questions: Iterable[EndpointQuestion], stretches: Iterable[int] = ()) -> None:
        """Record that probes before and after these answers showed the same model.

        `stretches` are the numbers of answers between two probes.

        The answers are not confirmed by that, but worth keeping if the run is stopped now.
        """
        keys = [(self._key(question),) for question in questions]
        with self._lock, self._readable(), self._connection:
            self._connection.executemany("UPDATE unconfirmed SET bracketed = 1 WHERE key = ?", keys)
            self._add_stretches(Stretch(answers, 0, 0) for answers in stretches)

    def confirm(
        self,
        questions: Iterable[EndpointQuestion],
        stretches: Iterable[int],
        *,
        measured: int,
        probes: int,
        repeats: int,
    ) -> None:
        """Record that the server was recognized after it gave these answers, by `probes` at the end and `repeats` of these questions.

        `stretches` are the numbers of answers between two probes, without those that `bracket` recorded. `measured` of the
        questions were asked after the first test of the server.
        """
        keys = [(self._key(question),) for question in questions]
        with self._lock, self._readable(), self._connection:
            self._connection.executemany("DELETE FROM unconfirmed WHERE key = ?", keys)
            self._connection.execute("INSERT OR IGNORE INTO recognized VALUES (?)", (self._server,))
            every = [*self._stretches("window = 0"), *(Stretch(answers, 0, 0) for answers in stretches)]
            self._connection.execute("DELETE FROM stretches WHERE server = ? AND window = 0", (self._server,))
            self._add_stretches(one._replace(window=max(1, measured), repeats=repeats) for one in every)
            # One probe follows each stretch, and those at the end follow the last.
            probes += sum(one.times for one in every) - 1
            self._connection.execute(
                "INSERT INTO windows VALUES (?, ?, ?, ?, 1) "
                "ON CONFLICT (server, answers, probes, repeats) DO UPDATE SET times = times + 1",
                (self._server, measured, probes, repeats),
            )

    def checks(self) -> Checks:
        """The requests that tested this server's identity, in all runs that shared the file, for the answers that were confirmed."""
        with self._lock, self._readable():
            found = self._connection.execute(
                "SELECT answers, probes, repeats, times FROM windows WHERE server = ?", (self._server,)
            ).fetchall()
            stretches = self._stretches("window > 0")
        windows = self._counts(found)
        totals = [sum(row[column] * row[-1] for row in windows) for column in range(3)]
        return Checks(totals[0], totals[1], totals[2], tuple(stretches))

    def _stretches(self, which: str) -> list[Stretch]:
        columns = "SELECT answers, window, repeats, times FROM stretches"
        found = self._connection.execute(
            f"{columns} WHERE server = ? AND {which}", (self._server,)
        ).fetchall()
        return sorted(Stretch(*row) for row in self._counts(found))

    def _add_stretches(self, stretches: Iterable[Stretch]) -> None:
        self._connection.executemany(
            "INSERT INTO stretches VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (server, answers, window, repeats) DO UPDATE SET times = times + excluded.times",
            [(self._server, *one) for one in stretches],
        )

    def _counts(self, rows: list[tuple[Any, ...]]) -> list[tuple[int, ...]]:
        """Rows of counts; an InputError if the file has something else there."""
        if any(
            not isinstance(value, int) or not 0 <= value <= _MOST_COUNTED for row in rows for value in row
        ):
            raise InputError(f"the cache {self._path} {_DAMAGED}")
        return rows

    def remove_unconfirmed(self) -> None:
        """Remove what this server answered since it was last recognized."""
        with self._lock, self._readable(), self._connection:
            self._connection.execute(
                "DELETE FROM answers WHERE key IN (SELECT key FROM unconfirmed WHERE server = ?)",
                (self._server,),
            )
            self._connection.execute("DELETE FROM unconfirmed WHERE server = ?", (self._server,))
            self._connection.execute("DELETE FROM stretches WHERE server = ? AND window = 0", (self._server,))
        with self._lock, self._readable():
            # Onto the disk, so that a power failure does not bring them back.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def remove_unbracketed(self) -> None:
        """Remove answers of a run that was stopped before the next probe: another model may have given them."""
        with self._lock, self._readable(), self._connection:
            self._connection.execute(
                "DELETE FROM answers WHERE key IN (SELECT key FROM unconfirmed WHERE server = ? AND bracketed = 0)",
                (self._server,),
            )
            self._connection.execute(
                "DELETE FROM unconfirmed WHERE server = ? AND bracketed = 0", (self._server,)
            )

    def remove(self, question: EndpointQuestion) -> None:
        """Remove an answer that is in doubt."""
        with self._lock, self._readable(), self._connection:
            self._connection.execute("DELETE FROM answers WHERE key = ?", (self._key(question),))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._finish()

    def _key(self, question: EndpointQuestion) -> bytes:
        body = question.body(self._model, self._fields)
        asked = msgspec.json.encode([self._url, body, question.again], order="sorted")
        return hashlib.sha256(asked).digest()

    def _open(self) -> sqlite3.Connection:
        if self._path is not None:
            self._make_private(self._path)
        with self._readable():
            connection = sqlite3.connect(
                self._path or "", check_same_thread=False, timeout=SECONDS_FOR_ANOTHER_PROCESS
            )
        try:
            with self._readable():
                self._prepare(connection)
        except CoalmineError:
            connection.close()
            raise
        return connection

    def _make_private(self, path: Path) -> None:
        """Create the file, or use the existing one if it is a regular file; its journals get the same mode."""
        make_directory(path.parent)
        for ending in ("", *_JOURNALS):
            check_replaceable(path.with_name(path.name + ending))
        try:
            # Before SQLite opens it, so that it is private from its first byte.
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | _NO_FOLLOW, PRIVATE)
            try:
                os.fchmod(descriptor, PRIVATE)
                size = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise write_error(path, problem, "answers that are there are kept") from problem
        if 0 < size < _SHORTEST:
            # SQLite would treat some of these as new.
            raise InputError(f"the cache {path} {_DAMAGED}")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # SQL that somebody else put into the schema is not run.
        connection.execute("PRAGMA trusted_schema = OFF")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        found = {*connection.execute("SELECT type, name FROM sqlite_master")}
        if found and ((application, layout) != (_APPLICATION, _LAYOUT) or not found <= _TABLES):
            raise InputError(
                f"{self._path} is a database, and not a cache that this version of coalmine wrote; choose another place"
            )
        connection.execute("PRAGMA journal_mode = WAL")
        # A killed process loses nothing; a power failure may lose the last answers, but never leaves half of one.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_LAYOUT}")
        with connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, answer BLOB NOT NULL, checksum BLOB NOT NULL) "
                "WITHOUT ROWID"
            )
            # Answers that were given since their server was last recognized, and the servers that were ever recognized.
            connection.execute(
                "CREATE TABLE IF NOT EXISTS unconfirmed (key BLOB PRIMARY KEY, server BLOB NOT NULL, bracketed INTEGER NOT NULL) "
                "WITHOUT ROWID"
            )
            connection.execute(
                "CREATE TABLE IF NOT EXISTS recognized (server BLOB PRIMARY KEY) WITHOUT ROWID"
            )
            # How they were recognized: answers between two probes (window 0 before they are confirmed), and windows of answers.
            connection.execute(
                "CREATE TABLE IF NOT EXISTS stretches (server BLOB, answers INTEGER, window INTEGER, repeats INTEGER, "
                "times INTEGER NOT NULL, PRIMARY KEY (server, answers, window, repeats)) WITHOUT ROWID"
            )
            connection.execute(
                "CREATE TABLE IF NOT EXISTS windows (server BLOB, answers INTEGER, probes INTEGER, repeats INTEGER, "
                "times INTEGER NOT NULL, PRIMARY KEY (server, answers, probes, repeats)) WITHOUT ROWID"
            )

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn errors of SQLite into sentences that say what to do."""
        place = self._path or "in the temporary directory"
        try:
            yield
        except sqlite3.Error as problem:
            # The extended codes have the plain one in their last byte.
            code = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            refused = {
                sqlite3.SQLITE_FULL: "cannot grow, because the disk is full; free some space, and run the same command again to resume",
                sqlite3.SQLITE_IOERR: "cannot be read or written, because the disk is full or fails; "
                "free some space, or choose another place",
                sqlite3.SQLITE_READONLY: "cannot be written; choose a place where you may write",
                sqlite3.SQLITE_PERM: "cannot be written; choose a place where you may write",
                sqlite3.SQLITE_CANTOPEN: "cannot be opened; choose a place where you may write",
            }
            if code in refused:
                raise WriteError(
                    f"the cache {place} {refused[code]} (answers that are there are kept)"
                ) from problem
            in_use = "is in use by another process; wait until that is done, or choose another place"
            said = in_use if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED} else _DAMAGED
            raise InputError(f"the cache {place} {said}") from None


def _unpacked(content: bytes) -> EndpointAnswer | None:
    """An answer from the file; None for data that cannot be one, such as data that inflates without end."""
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(content, MOST_BYTES)
        return msgspec.json.decode(raw, type=EndpointAnswer) if inflater.eof else None
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _checksum(key: bytes, content: bytes) -> bytes:
    return hashlib.sha256(key + content).digest()

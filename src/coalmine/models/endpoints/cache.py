"""Answers that were paid for once: kept on disk, so that a run that broke goes on without asking twice.

The file is an SQLite database with mode 0600. It holds hashes of questions, and answers, which hold the texts that were asked
about. It never holds a key. An answer is there whole or not at all, also when the process is killed.
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
from coalmine.files import PRIVATE, check_replaceable, make_directory
from coalmine.models.endpoints.answers import Answer, Question
from coalmine.refusals import write_error

# "coal", so that a database of something else is not taken for ours.
_APPLICATION = 0x636F616C
_LAYOUT = 1


class AnswerCache:
    """Answers by question, in a file, or in a temporary one that nobody else sees where no path is given.

    Threads of one process share it behind a lock; two processes may share the file.
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
        # Also when the process ends, so that no journal of it is left.
        self._finish = weakref.finalize(self, self._connection.close)

    def get(self, question: Question) -> Answer | None:
        """The answer to a question, or None; an answer whose checksum is wrong is as good as none."""
        key = self._key(question)
        with self._lock, self._readable():
            row = self._connection.execute(
                "SELECT answer, checksum FROM answers WHERE key = ?", (key,)
            ).fetchone()
        if row is None or _checksum(key, row[0]) != row[1]:
            return None
        return msgspec.json.decode(zlib.decompress(row[0]), type=Answer)

    def put(self, question: Question, answer: Answer) -> None:
        """Keep an answer, not confirmed as yet; when this returns, killing the process does not lose it."""
        key = self._key(question)
        content = zlib.compress(msgspec.json.encode(answer), 1)
        with self._lock, self._readable(), self._connection:
            self._connection.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (key, content, _checksum(key, content))
            )
            self._connection.execute("INSERT OR REPLACE INTO unconfirmed VALUES (?, ?)", (key, self._server))

    def is_confirmed(self, question: Question) -> bool:
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

    def confirm(self, questions: Iterable[Question]) -> None:
        """The server was recognized after it gave these answers."""
        keys = [(self._key(question),) for question in questions]
        with self._lock, self._readable(), self._connection:
            self._connection.executemany("DELETE FROM unconfirmed WHERE key = ?", keys)
            self._connection.execute("INSERT OR IGNORE INTO recognized VALUES (?)", (self._server,))

    def remove_unconfirmed(self) -> None:
        """Forget what this server answered since it was last recognized."""
        with self._lock, self._readable(), self._connection:
            self._connection.execute(
                "DELETE FROM answers WHERE key IN (SELECT key FROM unconfirmed WHERE server = ?)",
                (self._server,),
            )
            self._connection.execute("DELETE FROM unconfirmed WHERE server = ?", (self._server,))

    def remove(self, question: Question) -> None:
        """Forget an answer that came to be doubted."""
        with self._lock, self._readable(), self._connection:
            self._connection.execute("DELETE FROM answers WHERE key = ?", (self._key(question),))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._finish()

    def _key(self, question: Question) -> bytes:
        body = question.body(self._model, self._fields)
        asked = msgspec.json.encode([self._url, body, question.again], order="sorted")
        return hashlib.sha256(asked).digest()

    def _open(self) -> sqlite3.Connection:
        if self._path is not None:
            make_directory(self._path.parent)
            for ending in ("", "-journal", "-wal", "-shm"):
                check_replaceable(self._path.with_name(self._path.name + ending))
            try:
                # Before SQLite touches it, so that it is private from its first byte; its journals take the same mode.
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), PRIVATE))
                self._path.chmod(PRIVATE)
            except OSError as problem:
                raise write_error(self._path, problem, "answers that are there are kept") from problem
        with self._readable():
            connection = sqlite3.connect(self._path or "", check_same_thread=False, timeout=30)
        try:
            with self._readable():
                self._prepare(connection)
        except CoalmineError:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and (application, layout) != (_APPLICATION, _LAYOUT):
            raise InputError(
                f"{self._path} is a database, and not a cache that this version of coalmine wrote; choose another place"
            )
        connection.execute("PRAGMA journal_mode = WAL")
        # A killed process loses nothing; a power cut may lose the last answers, and never leaves half of one.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_LAYOUT}")
        with connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, answer BLOB NOT NULL, checksum BLOB NOT NULL) "
                "WITHOUT ROWID"
            )
            # Answers that were given since their server was last recognized, and the servers that ever were.
            connection.execute(
                "CREATE TABLE IF NOT EXISTS unconfirmed (key BLOB PRIMARY KEY, server BLOB NOT NULL) WITHOUT ROWID"
            )
            connection.execute(
                "CREATE TABLE IF NOT EXISTS recognized (server BLOB PRIMARY KEY) WITHOUT ROWID"
            )

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as problem:  # what the disk refuses
            raise WriteError(
                f"the cache {self._path or 'in the temporary directory'} cannot be used ({problem}); "
                "check that the disk is not full, or choose another place (answers that are there are kept)"
            ) from problem
        except sqlite3.DatabaseError:
            raise InputError(
                f"the cache {self._path} is not a cache of coalmine, or is damaged; choose another place, or remove it"
            ) from None


def _checksum(key: bytes, content: bytes) -> bytes:
    return hashlib.sha256(key + content).digest()

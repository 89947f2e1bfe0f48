"""Files that are complete or absent, and private if they hold secrets: writing, reading, hashing, and checks before long work."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import msgspec

from coalmine.errors import CoalmineError, InputError, ReadError, UnflushedError, WriteError

try:
    import fcntl
except ImportError:  # on Windows two processes can write to a directory, and what a killed one left stays
    fcntl = None  # type: ignore[assignment]

PRIVATE = 0o600
PUBLIC = 0o644
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# Work files and work directories, which are still being written, have unguessable names that end with the id of their process.
_WORK_NAME = re.compile(r"\.work\.[0-9a-f]{8,16}-(?P<process>[0-9]+)(\.part)?")


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], *, mode: int = PUBLIC) -> Iterator[Path]:
    """A path to write to; the file takes its final name if the block succeeds, and is removed if the block raises.

    The temporary file is next to the final one, so the rename is atomic, and it has the final mode from its first byte, so others
    can never read a secret, not even for a moment. Only a regular file is ever replaced. What the operating system refuses is a
    WriteError; other errors of the block pass through. Within `together`, the file takes its name when that block ends.
    """
    final = Path(path)
    make_directory(final.parent)
    check_replaceable(final)
    new, group = _NewFile(final, mode), _GROUP.get()
    try:
        yield new.temporary
        new.finish()
        if group is None:
            new.take_name()
    except BaseException as error:
        new.abandon()
        if not new.concerns(error):
            raise
        raise write_error(final, error, _what_is_at(final)) from error
    if group is None:
        new.flush_directory()
    else:
        group.add(new)


@contextlib.contextmanager
def together() -> Iterator[FileGroup]:
    """Files that belong together: each is complete on disk before the first of them takes its name.

    Files that are written later describe earlier ones. Therefore old files are removed first, in reverse order: at no moment does a
    file describe a file that is not there. A full disk is noticed before any of that, and changes nothing.
    """
    group = FileGroup()
    token = _GROUP.set(group)
    try:
        yield group
        group.put_in_place()
    finally:
        _GROUP.reset(token)
        group.close()


class FileGroup:
    """The files of one `together`."""

    def __init__(self) -> None:
        self._new: list[_NewFile] = []
        self._old: list[Path] = []

    def add(self, new: _NewFile) -> None:
        """Add a file that is complete and waits for its name."""
        self._new.append(new)

    def remove(self, path: Path) -> None:
        """Mark a file that would describe files that are gone; it is removed before the first new one takes its name."""
        self._old.append(path)

    def where(self, path: Path) -> Path:
        """The path of a file's content until it takes its name."""
        return next((new.temporary for new in reversed(self._new) if new.final == path), path)

    def put_in_place(self) -> None:
        """Remove the old files, and give the new files their names."""
        for place in [*self._old, *(new.final for new in self._new)]:
            check_replaceable(place)
        for old in [*self._old, *(new.final for new in reversed(self._new[1:]))]:
            remove_file(old)
        for new in self._new:
            try:
                new.take_name()
            except OSError as error:
                left = "files that belong with it are missing or new; run the same command again"
                raise write_error(new.final, error, left) from error
        for new in {new.final.parent: new for new in self._new}.values():
            new.flush_directory()

    def close(self) -> None:
        """Remove the files that did not take their names."""
        for new in self._new:
            new.abandon()


_GROUP: ContextVar[FileGroup | None] = ContextVar("together", default=None)


class _NewFile:
    """A temporary file next to the one whose name it will take, with a lock while its process lives."""

    def __init__(self, final: Path, mode: int) -> None:
        remove_abandoned(final.parent)
        self.final, self._mode = final, mode
        self.temporary = final.with_name(f".work.{work_name()}.part")
        self._held: int | None = None
        try:
            self._held = os.open(self.temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | _NO_FOLLOW, mode)
            self.temporary.chmod(mode)  # the umask may have removed bits
        except OSError as error:
            self.abandon()
            raise write_error(final, error, _what_is_at(final)) from error
        locked(self._held)

    def abandon(self) -> None:
        """Remove the file, unless it has its final name."""
        with contextlib.suppress(OSError):  # the first error is the one to report
            self.temporary.unlink(missing_ok=True)
        held, self._held = self._held, None
        if held is not None:
            with contextlib.suppress(OSError):
                os.close(held)

    def concerns(self, error: BaseException) -> TypeGuard[OSError]:
        """Whether the operating system raised an error about writing this file, and not about something else in the block."""
        ours = {None, str(self.temporary), str(self.final)}
        return _of_the_system(error) and (error.filename and os.fspath(error.filename)) in ours

    def finish(self) -> None:
        """Set the mode and flush the file to disk; a library may have replaced our file with a new one."""
        descriptor = os.open(self.temporary, os.O_RDWR | _NO_FOLLOW)
        try:
            self.temporary.chmod(self._mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def take_name(self) -> None:
        """Replace the final file."""
        check_replaceable(self.final)
        self.temporary.replace(self.final)
        self.abandon()

    def flush_directory(self) -> None:
        """Flush the new name to disk."""
        try:
            _flush(self.final.parent)
        except OSError as error:
            left = "the file is complete, but a power failure could still undo it"
            raise UnflushedError(str(write_error(self.final, error, left))) from error


def work_name(size: int = 8) -> str:
    """The end of the name of a work file or directory of this process: nobody can guess it."""
    return f"{secrets.token_hex(size)}-{os.getpid()}"


def locked(descriptor: int) -> bool:
    """Lock an open file or directory until it is closed; False if another process holds it. Some file systems keep nobody out."""
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        return problem.errno != errno.EWOULDBLOCK
    return True


def remove_abandoned(directory: Path) -> None:
    """Remove the work files and work directories that killed processes left in a directory."""
    # Writing to a directory that cannot be listed fails with an error of its own; others may remove the same files.
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in filter(_is_abandoned, list(entries)):
            with contextlib.suppress(OSError):
                (shutil.rmtree if entry.is_dir() else os.unlink)(entry.path)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    """Whether it is a work file or directory that no process holds, and whose maker is gone.

    Both are checked: a library that replaces our file with a new one drops the lock, and the ids of processes belong to one machine,
    while its files may be shared.
    """
    work = _WORK_NAME.fullmatch(entry.name)
    if work is None or fcntl is None or _is_alive(int(work["process"])):
        return False
    if entry.is_dir(follow_symlinks=False) == entry.name.endswith(".part"):
        return False
    try:
        descriptor = os.open(entry, os.O_RDONLY | os.O_NONBLOCK | _NO_FOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


@contextlib.contextmanager
def refused_writing(place: Path) -> Iterator[None]:
    """Turn errors of the operating system into a WriteError; the block writes files for its own use below `place`."""
    try:
        yield
    except OSError as error:
        if not _of_the_system(error):
            raise
        raise write_error(place, error, "nothing was left behind") from error


def _of_the_system(error: BaseException) -> TypeGuard[OSError]:
    return isinstance(error, OSError) and not isinstance(error, ConnectionError) and error.errno is not None


def _what_is_at(final: Path) -> str:
    return "what was there is unchanged" if os.path.lexists(final) else "nothing was left behind"


def check_place(path: Path) -> None:
    """Reject a path where no file can be written; called before long work, so that its result is not lost at the end."""
    folder = Path(path).absolute().parent
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir() and not folder.is_symlink():
        raise _in_the_way(path.parent)
    check_replaceable(path)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise write_error(path, PermissionError(errno.EACCES, ""), _what_is_at(path))


def check_places(directory: str | os.PathLike[str], *names: str) -> None:
    """Reject a directory in which one of these files cannot be written; see `check_place`."""
    for name in names:
        check_place(Path(directory) / name)


def check_replaceable(path: Path) -> None:
    """Refuse to replace anything but a regular file; called before long work as well as at its end."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise write_error(path, error, "nothing was left behind") from error
    if not stat.S_ISREG(kind):
        what = {stat.S_IFDIR: "directory", stat.S_IFLNK: "symbolic link"}.get(
            stat.S_IFMT(kind), "device, pipe or socket"
        )
        raise InputError(f"{path} is a {what}, which is never replaced; name a regular file")


def check_ordinary(path: str | os.PathLike[str]) -> None:
    """Refuse a device, a pipe or a socket, which would be waited for or read forever; what is not there is another's error."""
    try:
        kind = Path(path).stat().st_mode
    except OSError:
        return
    except ValueError:
        raise InputError(f"a path has no null character, got {os.fspath(path)!r}") from None
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise InputError(f"{os.fspath(path)} is a device, pipe or socket; name a regular file or a directory")


def make_directory(path: str | os.PathLike[str]) -> Path:
    """Make a directory if it does not exist; called before long work, so that a wrong path fails at once."""
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise _in_the_way(directory) from None
    except OSError as error:
        raise write_error(directory, error, "the directory was not made") from error
    return directory


def _in_the_way(directory: Path) -> InputError:
    return InputError(f"{directory} cannot be a directory: a file is in its way; choose another place")


def remove_file(path: Path) -> None:
    """Remove a file that is no longer needed, if it exists; only a regular file is ever removed."""
    check_replaceable(path)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise write_error(path, error, "it is no longer needed; remove it") from error


def real_path(path: str | os.PathLike[str]) -> Path:
    """Where a path leads, as `Path.resolve`; a link that leads in a circle leads to itself, and is no error.

    >>> real_path("/").as_posix()
    '/'
    """
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def no_empty_directory(path: str | os.PathLike[str]) -> Iterator[None]:
    """If the block raises, remove the directory and its parents as far as they are new and empty."""
    directory = Path(path)
    new = [place for place in (directory, *directory.parents) if not place.exists()]
    try:
        yield
    except CoalmineError:
        with contextlib.suppress(OSError):
            for place in new:  # the deepest first
                place.rmdir()
        raise


def write_bytes(path: str | os.PathLike[str], content: bytes, *, mode: int = PUBLIC) -> None:
    """Write a file, complete or not at all."""
    with whole_file(path, mode=mode) as temporary:
        temporary.write_bytes(content)


def write_json(path: str | os.PathLike[str], document: Any, *, mode: int = PUBLIC) -> None:
    """Write a record as indented JSON that ends with a newline."""
    write_bytes(path, to_json(document) + b"\n", mode=mode)


def to_json(document: Any) -> bytes:
    r"""A record, or anything made of records, as indented JSON; fields are in the order of their declaration.

    JSON cannot hold a path whose bytes are not UTF-8: those bytes become readable escapes.

    >>> to_json({"path": b"a\xff".decode("utf-8", "surrogateescape")})
    b'{\n  "path": "a\\\\udcff"\n}'
    """
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(document, str_keys=True)))
    return msgspec.json.format(encoded, indent=2)


def _encodable(document: Any) -> Any:
    """Plain JSON in which each half of a surrogate pair is escaped."""
    if isinstance(document, str):
        return document.encode("utf-8", "backslashreplace").decode()
    if isinstance(document, dict):
        return {_encodable(name): _encodable(value) for name, value in document.items()}
    return [_encodable(value) for value in document] if isinstance(document, (list, tuple)) else document


def read_bytes(path: str | os.PathLike[str], what: str) -> bytes:
    """A file's bytes, or an InputError that calls the file `what`."""
    check_ordinary(path)
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{what} was not found: {path} does not exist; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{what} must be a file, but {path} is a directory; name a file in it") from None
    except OSError as error:
        raise ReadError(f"{what}: {unreadable(path, error)}") from error


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """The text of a file of UTF-8, without its byte order mark, or an InputError that calls the file `what`."""
    try:
        return read_bytes(path, what).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        where = f"{problem.reason} at byte {problem.start}"
        raise InputError(f"{what} {path} is not UTF-8 ({where}); save it as UTF-8") from None


_DIGEST_BYTES = hashlib.sha256().digest_size


@contextlib.contextmanager
def guarded_file(path: Path) -> Iterator[BinaryIO]:
    """A stream to write a file to that a stopped command resumes from: private, and it ends with the SHA-256 of all before."""
    with whole_file(path, mode=PRIVATE) as temporary, open(temporary, "w+b") as file:
        yield file
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").digest()
        file.seek(0, os.SEEK_END)
        file.write(digest)


def read_guarded(path: Path, what: str, *, advice: str = "remove it to start over") -> bytes:
    """The content of such a file; an InputError that names the file if it is not what was written."""
    check_replaceable(path)  # it will be replaced, and opening a pipe would wait forever
    content = read_bytes(path, what)
    written, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(written).digest() != digest:
        raise InputError(f"{path}, left by {what}, is empty, damaged or from another version; {advice}")
    return written


def sha256_of_file(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal, in constant memory; of a directory of files, that of their names and hashes."""
    try:
        if not Path(path).is_dir():
            return _sha256(path)
        inside = [one for one in Path(path).iterdir() if not one.name.startswith(".")]
        return sha256_of_named({one.name: _sha256(one) for one in inside})
    except OSError as error:
        raise ReadError(unreadable(path, error)) from error


def _sha256(path: str | os.PathLike[str]) -> str:
    check_ordinary(path)
    with open(Path(path), "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_of_named(hashes: Mapping[str, str]) -> str:
    """The SHA-256 of several files, from their names to their hashes.

    >>> sha256_of_named({"b": "22", "a": "11"}) == hashlib.sha256(b"11  a" + bytes([10]) + b"22  b" + bytes([10])).hexdigest()
    True
    """
    listed = "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # file systems that cannot do it for directories
            raise
    finally:
        os.close(descriptor)


_ADVICE = {
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "free some space and run the same command again",
    errno.EFBIG: "raise the limit that `ulimit -f` shows, or choose another place",
    errno.EMFILE: "raise the limit that `ulimit -n` shows",
}
# These come from bugs, and all others from a disk, permissions, limits, or a path that the user gave.
_BUGS = {None, errno.EBADF, errno.EINVAL, errno.EFAULT, errno.EPIPE}


def write_error(path: str | os.PathLike[str], error: OSError, left: str) -> WriteError:
    """The error for a file that could not be written; `left` says what is there now."""
    return WriteError(f"{os.fspath(path)} cannot be written: {_reason(error)} ({left})")


def unreadable(path: str | os.PathLike[str], error: OSError) -> str:
    """A sentence that says which file cannot be read, why, and what to do.

    >>> unreadable("mail.txt", OSError(errno.EIO, "Input/output error"))
    'mail.txt cannot be read: Input/output error; check the path, its permissions and the disk'
    """
    return f"{os.fspath(path)} cannot be read: {_reason(error)}"


def describe_system_error(error: OSError) -> str | None:
    """A sentence for an error that nothing else has described; None if it may come from a bug of ours."""
    if error.errno in _BUGS or isinstance(error, ConnectionError):
        return None
    where = "a file" if error.filename is None else os.fsdecode(error.filename)
    return f"{where} cannot be used: {_reason(error)}"


def _reason(error: OSError) -> str:
    # Libraries add words of their own to the message of the system, which says the same.
    why = str(error) if error.errno is None else os.strerror(error.errno)
    usual = "check the path, its permissions and the disk"
    return f"{why}; {_ADVICE.get(error.errno or 0, usual)}"

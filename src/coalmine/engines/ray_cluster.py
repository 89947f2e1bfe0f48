"""The connection of the engine `ray` to a cluster: to an existing one, or to one that is started here and stopped at the end.

What is measured may be secret, so every connection is authenticated by a token, on both sides: a cluster that answers without one is
refused. A cluster that is started here has a token of its own, which only its processes know, and keeps its files in a directory that
only this user can read.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coalmine.engines import ray_probe
from coalmine.errors import InputError, MissingExtraError
from coalmine.interrupts import deferred_interrupt
from coalmine.storage.directories import work_directory

# How long a machine may take to accept a connection, and Ray on it to answer.
_CONNECT_SECONDS = 5.0
_PROBE_SECONDS = 30.0
# Names of sockets of Ray are some 60 bytes longer than its directory, whose own name has 30, and a system allows 107.
_LONGEST_DIRECTORY = 20
_MODE, _TOKEN, _TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


def require_ray() -> Any:
    """The package ray, whose import leaves this process as it was."""
    before = sys.excepthook
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("the engine ray", "ray", "ray") from error
    finally:
        sys.excepthook = before  # it puts its own there, which sends tracebacks to the cluster
    return ray


@contextlib.contextmanager
def connected(address: str | None, cores: int) -> Iterator[Any]:
    """The package ray, connected within the block. Without an address, a cluster with `cores` CPUs is started here and stopped at the end.

    A connection that this process has already is used, and left open.
    """
    ray = require_ray()
    _check_mode()
    if ray.is_initialized():
        _check_same(ray, address)
        yield ray
        return
    if address is None:
        with _ray_directory() as directory, _variables({_MODE: "token", _TOKEN: secrets.token_hex(32)}):
            started = {"num_cpus": cores, "include_dashboard": False, "_temp_dir": directory}
            with _session(ray, {"address": "local", **started}):
                yield ray
        return
    _check_token_is_there()
    with _variables({_MODE: "token"}):
        _check_answers(address)
        try:
            with _session(ray, {"address": address}):
                yield ray
        except (ConnectionError, RuntimeError, ValueError) as error:
            if ray.is_initialized():
                raise
            raise _cannot_connect(address, error) from error


@contextlib.contextmanager
def _session(ray: Any, how: Mapping[str, Any]) -> Iterator[None]:
    """A session of Ray that leaves the handlers of this process as they were."""
    dumping = faulthandler.is_enabled()
    try:
        with deferred_interrupt(), _handlers_kept():  # half a cluster would be left running
            ray.init(log_to_driver=False, configure_logging=False, **how)
        if not dumping:
            faulthandler.disable()
        with _silent():
            yield
    finally:
        with deferred_interrupt(), _handlers_kept():
            ray.shutdown()


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without Ray's messages about machines that died: they are for standard output, which is for results."""
    import ray._private.worker as session

    printing = session.print_to_stdstream
    session.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        session.print_to_stdstream = printing


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _ray_directory() -> Iterator[str]:
    """A directory of this user alone. Ray lets everyone write to the one that it is given, hence one below."""
    short = len(tempfile.gettempdir()) <= _LONGEST_DIRECTORY
    with work_directory(None if short else "/tmp") as whole:  # noqa: S108 - it is private
        yield str(whole / "ray")


@contextlib.contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment within the block, and let Ray know of them; all that Ray changes is undone."""
    before = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", **wanted})
    _refresh()
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("RAY_") and name not in before]:
            del os.environ[name]
        os.environ.update(before)
        _refresh()


def _refresh() -> None:
    """Let Ray read the mode and the token again, which it keeps."""
    from ray._raylet import AuthenticationTokenLoader, Config

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _check_mode() -> None:
    mode = os.environ.get(_MODE)
    if mode is not None and mode.lower() != "token":
        raise InputError(
            f"{_MODE} is {mode!r}, and what is measured must not be open to everyone in the network; unset it, or set it to token on all "
            "machines of the cluster"
        )


def _check_same(ray: Any, address: str | None) -> None:
    from ray._raylet import AuthenticationMode, get_authentication_mode

    if get_authentication_mode() != AuthenticationMode.TOKEN:
        raise InputError(
            f"this process is connected to a Ray cluster without token authentication; set {_MODE}=token on all machines of the cluster"
        )
    own = ray.get_runtime_context().gcs_address
    if address is not None and _resolved(address) != _resolved(own):
        raise InputError(
            f"this process is already connected to the Ray cluster at {own}, and {address} was asked for; use the engine ray without "
            "an address"
        )


def _check_token_is_there() -> None:
    if os.environ.get(_TOKEN):
        return
    named = os.environ.get(_TOKEN_PATH)
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        found = path.read_bytes().strip()
    except OSError:
        found = b""
    if not found:
        raise InputError(
            f"there is no token for the Ray cluster in {path}; copy the cluster's token to it, or name its file in {_TOKEN_PATH} "
            "(docs/guides/clusters.md)"
        )


def _check_answers(address: str) -> None:
    """Reject an address without a cluster, with one that does not want our token, or with one that wants none."""
    host, port = _parted(address)
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_SECONDS):
            pass
    except OSError as error:
        raise _no_answer(address) from error
    with _probe(address, "token") as ours, _probe(address, "disabled") as without:
        answer = _word(ours)
        if answer == ray_probe.UNAUTHENTICATED:
            raise InputError(
                f"the Ray cluster at {address} does not accept the token of this machine; copy the cluster's token here "
                "(docs/guides/clusters.md)"
            )
        if answer == ray_probe.NO_NODE:
            raise InputError(
                f"this machine is not part of the Ray cluster at {address}; run the command on one of its machines, or join it with "
                f"`ray start --address={address}`"
            )
        if answer != ray_probe.WELL:
            raise _no_answer(address)
        if _word(without) != ray_probe.UNAUTHENTICATED:
            raise InputError(
                f"the Ray cluster at {address} answers without a token, so everyone in its network could read what is measured; start "
                f"it with {_MODE}=token on all machines"
            )


@contextlib.contextmanager
def _probe(address: str, mode: str) -> Iterator[subprocess.Popen[str]]:
    probe = subprocess.Popen(  # noqa: S603 - our own file, with an address
        [sys.executable, "-P", ray_probe.__file__, address],
        env={**os.environ, _MODE: mode},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with probe:
        try:
            yield probe
        finally:
            probe.kill()


def _word(probe: subprocess.Popen[str]) -> str:
    try:
        return probe.communicate(timeout=_PROBE_SECONDS)[0].strip()
    except subprocess.TimeoutExpired:
        return ray_probe.NOTHING


def _parted(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise InputError(
            f"the engine ray:ADDRESS needs the host and port of the cluster's head, such as ray:10.0.0.1:6379, got {address!r}"
        )
    return host.strip("[]"), int(port)


def _resolved(address: str) -> tuple[str, int]:
    from ray._private.services import resolve_ip_for_localhost

    host, port = _parted(address)
    with contextlib.suppress(OSError):
        return resolve_ip_for_localhost(socket.gethostbyname(host)), port
    return host, port


def _no_answer(address: str) -> InputError:
    return InputError(
        f"no Ray cluster answers at {address}; check the address and the port (6379 unless another one was chosen), that `ray start "
        "--head` runs there, and that RAY_USE_TLS is the same here"
    )


def _cannot_connect(address: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(
        f"the Ray cluster at {address} cannot be used ({reason[:300]}); install the same versions of Python and Ray on all machines"
    )

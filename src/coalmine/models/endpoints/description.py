"""How to reach an endpoint, by its URL alone or by a TOML file, so that a command line stays short and a run can be repeated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from coalmine.errors import InputError
from coalmine.storage.decoding import UndecodableError, decode_toml
from coalmine.storage.files import read_bytes

if TYPE_CHECKING:
    from coalmine.models.protocols import Model


class EndpointFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a TOML file may say; only `url` must be there. The key itself never is: `key_variable` names where to find it."""

    url: str
    model: str | None = None
    # A directory with a tokenizer.json, where the server's own tokens are not enough.
    tokenizer: str | None = None
    # Put before each text, such as "<|endoftext|>", where the server puts nothing there.
    context: str = ""
    key_variable: str = "COALMINE_API_KEY"
    concurrency: int = 4
    requests_per_second: float | None = None
    most_requests: int | None = None
    most_cost: float | None = None
    cost_per_million_tokens: float | None = None
    # Further fields for each request, such as { repeat_penalty = 1.0 } for llama.cpp.
    request_fields: dict[str, Any] = {}
    # How far apart the server's answers to one question are, where that is more than is seen when it is tried.
    noise_bits: float = 0.0
    retries: int = 6
    timeout: float = 60.0


def connect_as_told(where: str, *, answers: Path | None = None) -> Model:
    """The model behind a URL, or behind what a TOML file says; `answers` is the file that keeps its answers."""
    from coalmine.models.endpoints.connecting import connect

    told = (
        EndpointFile(url=where) if where.lower().startswith(("http://", "https://")) else _read(Path(where))
    )
    options = msgspec.structs.asdict(told)
    return connect(options.pop("url"), cache=answers, **options)


def _read(path: Path) -> EndpointFile:
    try:
        return msgspec.convert(decode_toml(read_bytes(path, "the endpoint's file")), EndpointFile)
    except (UndecodableError, msgspec.ValidationError) as problem:
        raise InputError(
            f"{path} does not say how to reach an endpoint ({problem}); see docs/guides/endpoints.md"
        ) from None

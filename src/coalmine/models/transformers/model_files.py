"""Checks of a model's directory before a library opens it: JSON files must be readable, and weights must be in safetensors."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from coalmine.errors import ModelError
from coalmine.storage.decoding import UndecodableError, decode_python_json

CONFIG_FILE = "config.json"
ADAPTER_FILE = "adapter_config.json"
WEIGHTS_FILE = "model.safetensors"
ADAPTER_WEIGHTS_FILE = "adapter_model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
VOCABULARY_FILE = "vocab.json"
# What tokenizers are saved in besides, or instead.
_FURTHER_TOKENIZER_FILES = (
    "added_tokens.json", "bpe.codes", "merges.txt", "sentencepiece.bpe.model", "source.spm", "special_tokens_map.json", "spiece.model",
    "spm.model", "target.spm", "tekken.json", "tokenizer.model", "tokenizer_config.json", "vocab.bpe", "vocab.json", "vocab.txt",
)  # fmt: skip
# What says how texts of a chat are written, which newer versions of transformers keep in a file of its own.
_CHAT_TEMPLATE = "chat_template.jinja"
# The other JSON files that the libraries read.
_FURTHER_JSON = (
    "added_tokens.json",
    "chat_template.json",
    "generation_config.json",
    "special_tokens_map.json",
    VOCABULARY_FILE,
)
GGUF_ENDING = ".gguf"
# One of several files that a model is split into.
GGUF_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_SAFE = ".safetensors"
_INDEX = ".index.json"
# Files of these kinds are pickles, or archives of pickles: opening one can run any code.
_PICKLES = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")
# What trainers leave next to a model's weights.
_NOT_WEIGHTS = re.compile(r"training_args\.bin|(optimizer|scheduler|scaler)\.pt|rng_state(_\d+)?\.pth")
# What each process of a distributed training wrote; transformers prefers these to whole weights.
_OF_ONE_PROCESS = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")
# Types of safetensors that a model computes in, as torch names them, and the bytes of integers.
_PRECISIONS = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_BYTES = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2}
# The shards that save_pretrained writes.
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_SAVE_AGAIN = "save the model again as safetensors, which is what save_pretrained writes"


class Held(NamedTuple):
    """What some weight files hold, from their headers."""

    floats: frozenset[str]  # the names of tensors of floating-point numbers
    others: frozenset[str]  # of integers and booleans: masks and positions, and quantized weights
    numbers: int
    # How many numbers there are of each type that safetensors has, such as BF16.
    types: Mapping[str, int] = MappingProxyType({})

    @property
    def tensors(self) -> int:
        """The number of tensors."""
        return len(self.floats) + len(self.others)

    @property
    def precision(self) -> str | None:
        """The precision that most numbers are stored in, as torch names it; None if there are none of such a precision."""
        there = [name for name in _PRECISIONS if self.types.get(name)]
        return _PRECISIONS[max(there, key=lambda name: self.types[name])] if there else None

    @property
    def quantized(self) -> Held:
        """The same for quantized weights: a byte of integers holds up to four of them, at two bits each."""
        more = sum(
            (4 * _BYTES.get(name, 1) - 1) * many for name, many in self.types.items() if name[0] in "IU"
        )
        return self._replace(numbers=self.numbers + more)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a model's directory, or a ModelError that names the file."""
    try:
        if not path.is_file():
            raise ModelError(f"{path} is not a file; save the model again")
        found = decode_python_json(path.read_bytes())
    except OSError as problem:
        raise ModelError(
            f"{path} cannot be read ({problem.strerror or type(problem).__name__}); check the directory"
        ) from None
    except UndecodableError as problem:
        raise ModelError(f"{path} is not valid JSON ({problem}); save the model again") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path} must hold a JSON object, and holds {_kind_of(found)}; save the model again")
    return found


def architectures_of(config: dict[str, Any]) -> list[str]:
    """The classes that a model was saved as, from its config."""
    found = config.get("architectures")
    return [str(name) for name in found] if isinstance(found, list) else []


def check_json(directory: Path) -> None:
    """Read every JSON file that a library would read, so that an error names a damaged one."""
    names = (CONFIG_FILE, ADAPTER_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, *_FURTHER_JSON)
    for name in names:
        if (directory / name).exists():
            read_object(directory / name)


def has_tokenizer(directory: Path) -> bool:
    """Whether a directory has a tokenizer of its own, or a part of one."""
    return bool(tokenizer_files(directory))


def tokenizer_files(directory: Path) -> list[Path]:
    """The files of a directory's tokenizer, or of a part of one."""
    paths = (directory / name for name in (TOKENIZER_FILE, *_FURTHER_TOKENIZER_FILES))
    return [path for path in paths if path.exists()]


def described_by(directory: Path) -> list[Path]:
    """The files of a checkpoint that are neither weights nor code: its config, the index of its shards, and its tokenizer."""
    names = {CONFIG_FILE, TOKENIZER_FILE, _CHAT_TEMPLATE, *_FURTHER_TOKENIZER_FILES, *_FURTHER_JSON}
    if not (directory / WEIGHTS_FILE).is_file():
        names.add(f"{WEIGHTS_FILE}{_INDEX}")
    return [directory / name for name in sorted(names) if (directory / name).is_file()]


def checkpoint_files(directory: Path) -> list[Path]:
    """The files that hold a checkpoint's weights: one, or the shards that its index names."""
    shards = _indexed(directory, WEIGHTS_FILE)
    if any(_OF_ONE_PROCESS.fullmatch(name) for name in _names(directory)):
        raise ModelError(
            f"{directory} holds the shards of a distributed training, which are not one model yet; consolidate them, and save the model "
            "again"
        )
    if (directory / WEIGHTS_FILE).is_file():
        return [directory / WEIGHTS_FILE]
    if shards:
        for name in _names(directory):
            if _SHARD.fullmatch(name) and directory / name not in shards:
                raise ModelError(
                    f"{directory / name} is a shard that {WEIGHTS_FILE}{_INDEX} does not name, so it would not be used; remove it, or save "
                    "the model again"
                )
        return shards
    _refuse_pickles(directory)
    raise ModelError(f"{directory} has no {WEIGHTS_FILE}; {_SAVE_AGAIN}")


def gguf_file_in(where: Path) -> Path | None:
    """The GGUF file that a path names, or that is the only one in a directory without another model; None if there is none."""
    if where.is_file():
        return where if where.name.lower().endswith(GGUF_ENDING) else None
    if not where.is_dir() or (where / CONFIG_FILE).exists() or (where / ADAPTER_FILE).exists():
        return None
    found = sorted(
        path for path in where.iterdir() if path.name.lower().endswith(GGUF_ENDING) and path.is_file()
    )
    if len(found) > 1 and not GGUF_PART.search(found[0].name):
        raise ModelError(
            f"{where} holds {len(found)} GGUF files, such as {found[0].name} and {found[1].name}; name one"
        )
    return found[0] if found else None


def adapter_file(directory: Path) -> Path:
    """The file with an adapter's weights; without it, PEFT would look for one in a hub."""
    if _indexed(directory, ADAPTER_WEIGHTS_FILE):
        raise ModelError(
            f"{directory} holds an adapter in shards, of which PEFT would read none; save it again as one {ADAPTER_WEIGHTS_FILE}"
        )
    if (directory / ADAPTER_WEIGHTS_FILE).is_file():
        return directory / ADAPTER_WEIGHTS_FILE
    _refuse_pickles(directory)
    raise ModelError(
        f"{directory} has no {ADAPTER_WEIGHTS_FILE}, so there is no adapter to measure, and none is fetched from a hub; save the adapter "
        "again"
    )


def held_in(files: Iterable[Path]) -> Held:
    """What weight files hold; a file that is not safetensors, whatever its name, is refused without reading its values."""
    from safetensors import SafetensorError, safe_open

    floats: set[str] = set()
    others: set[str] = set()
    types: dict[str, int] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - not a dictionary
                    if name in floats or name in others:
                        raise ModelError(
                            f"{path} holds {name}, which another shard holds too, so one of the two would not be used; save the model again"
                        )
                    part = tensors.get_slice(name)
                    kind = part.get_dtype()
                    (floats if "F" in kind else others).add(name)
                    types[kind] = types.get(kind, 0) + math.prod(part.get_shape())
        except (
            SafetensorError,
            OSError,
            ValueError,
            RuntimeError,
        ) as problem:  # a RuntimeError for a file that cannot be mapped
            raise ModelError(
                f"{path} is not a whole safetensors file ({_first_line(problem)}); {_SAVE_AGAIN}"
            ) from None
    numbers = sum(types.values())
    if not numbers:
        raise ModelError(f"{path} holds no tensors; {_SAVE_AGAIN}")
    return Held(frozenset(floats), frozenset(others), numbers, types)


def _indexed(directory: Path, whole: str) -> list[Path]:
    """The shards that an index names instead of one file, each a safetensors file in the same directory."""
    index = directory / f"{whole}{_INDEX}"
    if not index.exists():
        return []
    weights = read_object(index).get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise ModelError(f"{index} does not say which files hold the weights; save the model again")
    shards = []
    for name in sorted({str(name) for name in weights.values()}):
        if "/" in name or "\\" in name or not name.endswith(_SAFE):
            raise ModelError(
                f"{index} names {name}, and only safetensors files in the same directory are opened; {_SAVE_AGAIN}"
            )
        if not (directory / name).is_file():
            raise ModelError(f"{index} names {name}, which is not there; copy the missing file")
        shards.append(directory / name)
    return shards


def _refuse_pickles(directory: Path) -> None:
    """Name the pickle that is there instead of the weights."""
    for name in _names(directory):
        held = name.removesuffix(_INDEX)
        if held.endswith(_PICKLES) and not _NOT_WEIGHTS.fullmatch(held):
            raise ModelError(
                f"{directory / name} is a pickle or points to one, which can run any code when it is opened, and was not opened; "
                f"{_SAVE_AGAIN}"
            )


def _names(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except OSError as problem:
        raise ModelError(f"{directory} cannot be read ({problem.strerror}); check the directory") from None


def _kind_of(value: object) -> str:
    return {list: "a list", str: "a text", type(None): "null"}.get(type(value), "a number or boolean")


def _first_line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]

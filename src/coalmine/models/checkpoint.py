"""A model at rest: a directory with weights in safetensors and a JSON config; loading one runs no code from it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from coalmine.errors import InputError, MissingExtraError, ModelError
from coalmine.files import PRIVATE, read_bytes, sha256_of_file, write_bytes, write_json

if TYPE_CHECKING:
    from coalmine.models.networks import Network
    from coalmine.models.pair_networks import EncoderDecoder
    from coalmine.models.pairs import PairNetworkModel
    from coalmine.models.stateful import StatefulModel
    from coalmine.models.tokens import ReferenceTokenizer

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TRAINING_FILE = "training.json"
SCHEMA = "coalmine.model/1"


def load_checkpoint(directory: Path, *, device: str, precision: str) -> StatefulModel | PairNetworkModel:
    """A model from the directory that `coalmine train` wrote."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from coalmine.models.tokens import tokenizer_from_dict

    document = _read_config(directory / CONFIG_FILE)
    weights = directory / WEIGHTS_FILE
    if not weights.is_file():
        raise ModelError(
            f"{directory} has no {WEIGHTS_FILE}; if its training was stopped, run the same command again"
        )
    try:
        network = _fresh_network(document["network"])
        tokenizer = tokenizer_from_dict(document["tokenizer"])
        network.load_state_dict(load_file(weights))
    except (KeyError, msgspec.ValidationError, InputError) as problem:
        raise ModelError(f"{directory / CONFIG_FILE} is damaged ({problem}); train the model again") from None
    except (SafetensorError, RuntimeError, OSError) as problem:
        first_line = str(problem).splitlines()[0]
        raise ModelError(
            f"{weights} does not fit its config or is damaged ({first_line}); train the model again"
        ) from None
    try:
        network.to(device=device, dtype=getattr(torch, precision))
    except (RuntimeError, AssertionError) as problem:  # a build without the device asserts instead of raising
        first_line = str(problem).splitlines()[0]
        raise ModelError(f"the model cannot be put on {device!r} ({first_line}); use device='cpu'") from None
    origin = {
        "weights": directory.name,
        "weights_sha256": sha256_of_file(weights),
        "trained_on_sha256": _trained_on(directory / TRAINING_FILE),
    }
    return model_of(network, tokenizer, name=directory.resolve().name, origin=origin)


def model_of(
    network: Network | EncoderDecoder, tokenizer: ReferenceTokenizer, *, name: str, origin: dict[str, Any]
) -> StatefulModel | PairNetworkModel:
    """A reference network as an audit sees it, with the adapter that suits it."""
    from coalmine.models.pair_networks import EncoderDecoder, SourceTokenizer
    from coalmine.models.pairs import PairNetworkModel
    from coalmine.models.stateful import StatefulModel

    if isinstance(network, EncoderDecoder):
        return PairNetworkModel(network, tokenizer, SourceTokenizer(tokenizer), name=name, origin=origin)
    return StatefulModel(network, tokenizer, name=name, origin=origin)


def _fresh_network(config: Any) -> Network | EncoderDecoder:
    """A network of the shape that a model's config.json tells; its weights are yet to be loaded."""
    from coalmine.models.networks import build_network, config_from_dict
    from coalmine.models.pair_networks import PAIR_NETWORKS, build_pair_network, pair_config_from_dict

    if isinstance(config, dict) and config.get("architecture") in PAIR_NETWORKS:
        return build_pair_network(pair_config_from_dict(config))
    return build_network(config_from_dict(config))


def save_model(
    directory: str | os.PathLike[str], network: Network | EncoderDecoder, tokenizer: ReferenceTokenizer
) -> None:
    """Write the directory that `load_model` reads; the same weights give the same bytes."""
    from safetensors.torch import save

    target = Path(directory)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    # What a model remembers is in its weights, and its words may be canaries: both are private.
    write_bytes(target / WEIGHTS_FILE, save(weights), mode=PRIVATE)
    document = {"schema": SCHEMA, "network": network.config, "tokenizer": tokenizer.to_dict()}
    write_json(target / CONFIG_FILE, document, mode=PRIVATE)


def check_readable_name(directory: Path) -> None:
    """Refuse a path that is not UTF-8 before any work: the libraries that read weights take no other."""
    try:
        str(directory).encode("utf-8")
    except UnicodeEncodeError:
        raise ModelError(
            f"{directory} is not UTF-8, and weights cannot be read from such a path; rename the directory"
        ) from None


def require_torch(purpose: str) -> None:
    """A clear error where torch is not installed."""
    from importlib.util import find_spec

    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise MissingExtraError(purpose, "torch", "torch")


def _trained_on(record: Path) -> str | None:
    """The hash of the data that a model was trained on, where its record is there to tell."""
    try:
        found = msgspec.json.decode(record.read_bytes())["data_sha256"]
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return None
    return str(found)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(read_bytes(path, "the model's config"))
    except msgspec.DecodeError as problem:
        raise ModelError(f"{path} is not valid JSON ({problem}); train the model again") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ModelError(
            f"{path} is not a config of this version (schema {SCHEMA!r}); name a directory that `coalmine train` or transformers wrote"
        )
    return document


def vocabulary_words(path: str | os.PathLike[str]) -> list[str]:
    """The words that a word model knows, for {word:n}; needs no torch."""
    config = Path(path) / CONFIG_FILE
    words = _read_config(config).get("tokenizer", {}).get("words")
    if not isinstance(words, list):
        raise ModelError(
            f"{config} is of a model without a vocabulary of words; name a word model, or a list of words"
        )
    return [str(word) for word in words]

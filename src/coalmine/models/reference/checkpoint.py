"""Saved reference models: a directory with weights in safetensors and a JSON config. Loading one runs no code from it.

config.json ends with a checksum and has the SHA-256 of the weights, so that every model is verified when it is loaded, including one
that was saved from Python. training.json, if there is one, has the SHA-256 of both files: it records which training they come from.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from coalmine.errors import AlteredError, InputError, MissingExtraError, ModelError
from coalmine.models.devices import AUTO, usable_device
from coalmine.records.documents import Document, check_seal, is_sealed, read_record, sealed
from coalmine.records.privacy import PrivacyClaim
from coalmine.storage.decoding import UndecodableError, decode_json
from coalmine.storage.files import PRIVATE, read_bytes, sha256_of_file, together, write_bytes

if TYPE_CHECKING:
    from coalmine.models.inference.incremental import StatefulModel
    from coalmine.models.inference.pairs import PairNetworkModel
    from coalmine.models.reference.networks import Network
    from coalmine.models.reference.pair_networks import EncoderDecoder
    from coalmine.models.reference.tokens import ReferenceTokenizer

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TRAINING_FILE = "training.json"
SCHEMA = "coalmine.model/1"
TRAINING_SCHEMA = "coalmine.training/1"
QUANTIZATION_FILE = "quantization.json"
QUANTIZATION_SCHEMA = "coalmine.quantization/1"
FINETUNING_FILE = "finetuning.json"
FINETUNING_SCHEMA = "coalmine.finetuning/1"
UNLEARNING_FILE = "unlearning.json"
UNLEARNING_SCHEMA = "coalmine.unlearning/1"
# The records of what was made of a trained model, with their schemas: a model has at most one of them, and then no training.json.
CHANGES = {QUANTIZATION_FILE: QUANTIZATION_SCHEMA, UNLEARNING_FILE: UNLEARNING_SCHEMA}


class TrainedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a training.json, which is all that loading needs of it; training has the whole record."""

    schema: str = TRAINING_SCHEMA
    options: Any
    data_sha256: str
    # Of the model.safetensors and the config.json that were written with it.
    weights_sha256: str
    config_sha256: str
    # What private training claims, and the SHA-256 of the card that says so to people; absent for any other.
    privacy: PrivacyClaim | msgspec.UnsetType = msgspec.UNSET
    card_sha256: str | msgspec.UnsetType = msgspec.UNSET


class ChangedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of the record of what was made of a trained model, which is all that loading needs of it."""

    schema: str
    # Of the data that the model had been trained on; None where that is not known.
    data_sha256: str | None
    # The SHA-256 of the files that were written with it, by name.
    files: dict[str, str]
    # The claim of the model, where it still holds because nothing was changed by looking at the data again.
    privacy: PrivacyClaim | msgspec.UnsetType = msgspec.UNSET


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a model of `coalmine train` is made of; config.json beside its weights."""

    schema: str = SCHEMA
    # The architecture and its sizes.
    network: dict[str, Any]
    # Its kind, and the characters or words that it knows.
    tokenizer: dict[str, Any]
    # Of the model.safetensors that was written with it.
    weights_sha256: str


MODELS = Document(
    record=ModelConfig,
    schema=SCHEMA,
    file=CONFIG_FILE,
    title="model",
    by="`coalmine train`",
    others={WEIGHTS_FILE: "the weights"},
    name_is_common=True,
    companions=lambda config: {WEIGHTS_FILE: config.weights_sha256},
)


def load_checkpoint(directory: Path, *, device: str, precision: str) -> StatefulModel | PairNetworkModel:
    """A model from a directory that `coalmine train` wrote."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from coalmine.models.reference.tokens import tokenizer_from_dict

    _refuse_unfinished(directory)
    config = read_config(directory / CONFIG_FILE)
    weights = directory / WEIGHTS_FILE
    if not weights.is_file():
        raise ModelError(
            f"{directory} has no {WEIGHTS_FILE}; if its training was stopped, run the same command again"
        )
    digest = digest_of_weights(directory, config)
    origins = training_of(directory)
    try:
        network = _fresh_network(config.network)
        tokenizer = tokenizer_from_dict(config.tokenizer)
        tensors = load_file(weights)
        network.load_state_dict(tensors)
    except (KeyError, msgspec.ValidationError, InputError) as problem:
        raise ModelError(f"{directory / CONFIG_FILE} is damaged ({problem}); train the model again") from None
    except (SafetensorError, RuntimeError, OSError) as problem:
        first_line = str(problem).splitlines()[0]
        raise ModelError(
            f"{weights} does not fit its config or is damaged ({first_line}); train the model again"
        ) from None
    if tokenizer.size != network.vocabulary:
        raise ModelError(
            f"{directory / CONFIG_FILE} has a tokenizer of {tokenizer.size:,} ids for a network of {network.vocabulary:,} tokens; train "
            "the model again"
        )
    own = next((one.dtype for one in tensors.values() if one.is_floating_point()), torch.float32)
    place = usable_device(device, precision)
    try:
        network.to(device=place, dtype=own if precision == AUTO else getattr(torch, precision))
    except (RuntimeError, TypeError) as problem:  # mps has no float64
        first_line = str(problem).splitlines()[0]
        raise ModelError(f"the model cannot be put on {place!r} ({first_line}); use device='cpu'") from None
    origin = {
        "weights": directory.name,
        "weights_sha256": digest,
        **origins.described(),
    }
    return model_of(network, tokenizer, name=directory.resolve().name, origin=origin)


def digest_of_weights(directory: Path, config: ModelConfig | None = None) -> str:
    """The SHA-256 of a model's weights; an AlteredError if it is not the one in its config."""
    weights = directory / WEIGHTS_FILE
    digest = sha256_of_file(weights)
    if digest != (config or read_config(directory / CONFIG_FILE)).weights_sha256:
        raise AlteredError(
            f"{weights} is not what was written: its SHA-256 is not the one in {CONFIG_FILE}; restore it, or train the model again"
        )
    return digest


def model_of(
    network: Network | EncoderDecoder, tokenizer: ReferenceTokenizer, *, name: str, origin: dict[str, Any]
) -> StatefulModel | PairNetworkModel:
    """A reference network as an audit sees it, with the adapter that suits it."""
    from coalmine.models.inference.incremental import StatefulModel
    from coalmine.models.inference.pairs import PairNetworkModel
    from coalmine.models.reference.pair_networks import EncoderDecoder, SourceTokenizer

    if isinstance(network, EncoderDecoder):
        return PairNetworkModel(network, tokenizer, SourceTokenizer(tokenizer), name=name, origin=origin)
    return StatefulModel(network, tokenizer, name=name, origin=origin)


def _fresh_network(config: dict[str, Any]) -> Network | EncoderDecoder:
    """A network of the shape in a model's config.json; its weights are not loaded yet."""
    from coalmine.models.reference.networks import build_network, config_from_dict
    from coalmine.models.reference.pair_networks import (
        PAIR_NETWORKS,
        build_pair_network,
        pair_config_from_dict,
    )

    if config.get("architecture") in PAIR_NETWORKS:
        return build_pair_network(pair_config_from_dict(config))
    return build_network(config_from_dict(config))


class ModelFiles(NamedTuple):
    """The content of the two files of a model."""

    weights: bytes
    config: bytes

    def write(self, directory: Path) -> None:
        """Write both; what a model memorizes is in its weights, and its words may be canaries, so both are private."""
        with together():
            write_bytes(directory / WEIGHTS_FILE, self.weights, mode=PRIVATE)
            # Last, because it has the hash of the weights.
            write_bytes(directory / CONFIG_FILE, self.config, mode=PRIVATE)


def model_files(network: Network | EncoderDecoder, tokenizer: ReferenceTokenizer) -> ModelFiles:
    """The files of a model; the same weights give the same bytes."""
    from safetensors.torch import save

    content = save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    )
    config = ModelConfig(
        network=msgspec.to_builtins(network.config),
        tokenizer=tokenizer.to_dict(),
        weights_sha256=hashlib.sha256(content).hexdigest(),
    )
    return ModelFiles(content, sealed(config))


def save_model(
    directory: str | os.PathLike[str], network: Network | EncoderDecoder, tokenizer: ReferenceTokenizer
) -> None:
    """Write the directory that `load_model` reads; the same weights give the same bytes."""
    model_files(network, tokenizer).write(Path(directory))


def check_readable_name(directory: Path) -> None:
    """Refuse a path that is not UTF-8 before any work: the libraries that read weights accept no other."""
    try:
        str(directory).encode("utf-8")
    except UnicodeEncodeError:
        raise ModelError(
            f"{directory} is not UTF-8, and weights cannot be read from such a path; rename the directory"
        ) from None


def require_torch(purpose: str) -> None:
    """Raise a clear error if torch is not installed."""
    from importlib.util import find_spec

    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise MissingExtraError(purpose, "torch", "torch")


def _refuse_unfinished(directory: Path) -> None:
    from coalmine.engines.ledger import UNITS_FILE

    if (directory / UNITS_FILE).exists() and not (directory / TRAINING_FILE).exists():
        raise ModelError(
            f"the training in {directory} is not finished; run the same `coalmine train` again to resume it"
        )


class TrainingFacts(NamedTuple):
    """What the records beside a model say about how it was trained."""

    # Of the data; None without a record.
    data_sha256: str | None = None
    privacy: PrivacyClaim | msgspec.UnsetType = msgspec.UNSET

    def described(self) -> dict[str, Any]:
        """What the description of the model says about it."""
        claim = self.privacy.described() if self.privacy else None
        claimed = {} if claim is None else {"privacy": msgspec.to_builtins(claim)}
        return {"trained_on_sha256": self.data_sha256, **claimed}


def training_of(directory: Path) -> TrainingFacts:
    """How a model was trained, by the record beside it."""
    path = directory / TRAINING_FILE
    if path.exists():
        record = read_record(path, TrainedFiles, schema=TRAINING_SCHEMA, what="the model")
        check_trained(directory, record)
        return TrainingFacts(record.data_sha256, record.privacy)
    return _before_changing(directory, [WEIGHTS_FILE, CONFIG_FILE])


def _before_changing(directory: Path, files: Sequence[str]) -> TrainingFacts:
    """How the model was trained that this one was made from, by the record of the change, which must be of these files."""
    for name, schema in CHANGES.items():
        if (directory / name).exists():
            changed = read_record(directory / name, ChangedModel, schema=schema, what="the model")
            _check_written(directory, {file: changed.files.get(file) for file in files}, name)
            return TrainingFacts(changed.data_sha256, changed.privacy)
    return TrainingFacts()


def finetuning_of(directory: Path) -> TrainingFacts:
    """How a transformers checkpoint or an adapter was fine-tuned, if `coalmine train --base` did so, also before it was quantized."""
    from coalmine.models.transformers.model_files import ADAPTER_FILE, ADAPTER_WEIGHTS_FILE, checkpoint_files

    path = directory / FINETUNING_FILE
    if not path.exists():
        if not any(_has_schema(directory / name, schema) for name, schema in CHANGES.items()):
            return TrainingFacts()
        weights = [one.name for one in checkpoint_files(directory)]
        return _before_changing(directory, [*weights, CONFIG_FILE])
    record = read_record(path, TrainedFiles, schema=FINETUNING_SCHEMA, what="the model")
    adapted = (directory / ADAPTER_FILE).exists()
    names = (ADAPTER_WEIGHTS_FILE, ADAPTER_FILE) if adapted else (WEIGHTS_FILE, CONFIG_FILE)
    hashes = (record.weights_sha256, record.config_sha256)
    _check_written(directory, dict(zip(names, hashes, strict=True)), FINETUNING_FILE)
    return TrainingFacts(record.data_sha256, record.privacy)


def _has_schema(path: Path, schema: str) -> bool:
    """Whether a file beside a checkpoint is ours: other tools write files of such names too."""
    return path.is_file() and schema.encode() in read_bytes(path, "the record of the model")


def check_trained(directory: Path, record: TrainedFiles) -> None:
    """Refuse weights or a config that are not those of the training next to them."""
    _check_written(
        directory, {WEIGHTS_FILE: record.weights_sha256, CONFIG_FILE: record.config_sha256}, TRAINING_FILE
    )


def _check_written(directory: Path, files: dict[str, str | None], recorded_in: str) -> None:
    for name, sha256 in files.items():
        path = directory / name
        if sha256_of_file(path) != sha256:
            raise AlteredError(
                f"{path} is not what was written: its SHA-256 is not the one in {recorded_in}; restore it, or make the model again "
                "in another directory"
            )


def read_config(path: Path) -> ModelConfig:
    """The config of a model of ours; other programs write files of this name too, and are told apart from damage."""
    content = read_bytes(path, "the model's config")
    try:
        document = decode_json(content)
    except UndecodableError as problem:
        raise ModelError(f"{path} is not valid JSON ({problem}); train the model again") from None
    if is_sealed(content) or (isinstance(document, dict) and document.get("schema") == SCHEMA):
        check_seal(path, content, "the model")
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ModelError(
            f"{path} is not a config of this version (schema {SCHEMA!r}); name a directory that `coalmine train` or transformers wrote"
        )
    try:
        return decode_json(content, ModelConfig)
    except UndecodableError as problem:
        raise ModelError(f"{path} is damaged ({problem}); train the model again") from None


def saved_tokenizer(directory: Path) -> ReferenceTokenizer | None:
    """The tokenizer of a model that `coalmine train` wrote, without its weights; None if there is no such model."""
    from coalmine.models.reference.tokens import tokenizer_from_dict
    from coalmine.models.transformers.model_files import read_object

    path = directory / CONFIG_FILE
    described = read_object(path).get("tokenizer") if path.exists() else None
    if not isinstance(described, dict):
        return None
    content = read_bytes(path, "the model's config")
    if is_sealed(content):
        check_seal(path, content, "the model")
    try:
        return tokenizer_from_dict(described)
    except KeyError as missing:
        raise ModelError(f"{path} is damaged (no {missing}); train the model again") from None


def vocabulary_words(path: str | os.PathLike[str]) -> list[str]:
    """The words that a word model knows, for {word:n}; needs no torch."""
    config = Path(path) / CONFIG_FILE
    words = read_config(config).tokenizer.get("words")
    if not isinstance(words, list):
        raise ModelError(
            f"{config} is of a model without a vocabulary of words; name a word model, or a list of words"
        )
    return [str(word) for word in words]

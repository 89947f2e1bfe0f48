"""The checkpoint that is fine-tuned: which one it is, its network with or without LoRA, and the files that the result is saved in."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from coalmine.errors import MissingExtraError, ModelError
from coalmine.models.devices import AUTO
from coalmine.models.offline import offline
from coalmine.models.transformers.adapter_base import base_of_adapter
from coalmine.models.transformers.libraries import as_model_error, quiet
from coalmine.models.transformers.model_files import (
    ADAPTER_FILE,
    ADAPTER_WEIGHTS_FILE,
    CONFIG_FILE,
    WEIGHTS_FILE,
    checkpoint_files,
    read_object,
    tokenizer_files,
)
from coalmine.models.transformers.quantization import SETTING, quantization_in
from coalmine.storage.files import sha256_of_file, to_json

if TYPE_CHECKING:
    from coalmine.models.inference.incremental import StatefulModel
    from coalmine.training.finetuning.options import FinetuningOptions

# Written beside the weights by transformers; the audit reads neither, and generation does.
_GENERATION_FILE, _CHAT_FILE = "generation_config.json", "chat_template.jinja"


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """Which checkpoint a model was fine-tuned from."""

    name: str
    weights_sha256: list[str]
    # Of its config and its tokenizer's files, by name.
    settings_sha256: dict[str, str]

    @property
    def tokenizer_sha256(self) -> dict[str, str]:
        """Of the files that decide into which tokens a text is cut."""
        others = {CONFIG_FILE, _GENERATION_FILE, _CHAT_FILE}
        return {name: digest for name, digest in self.settings_sha256.items() if name not in others}


def base_in(directory: Path) -> Base:
    """The checkpoint in a directory, by the hashes of its files; a ModelError if it is not one that can be fine-tuned."""
    if not directory.is_dir():
        raise ModelError(
            f"the base was not found: {directory} is not a directory; name one that transformers wrote"
        )
    if base_of_adapter(directory) is not None:
        raise ModelError(
            f"{directory} is an adapter, and only whole checkpoints can be fine-tuned; merge it into its base (merge_and_unload), and save "
            "the whole model"
        )
    config = directory / CONFIG_FILE
    if not config.exists() or "model_type" not in read_object(config):
        raise ModelError(
            f"{directory} is not a transformers checkpoint, because it has no {CONFIG_FILE} that names a model_type; name a checkpoint, or "
            "use `coalmine train` for reference models"
        )
    return Base(
        name=directory.resolve().name,
        weights_sha256=[sha256_of_file(path) for path in checkpoint_files(directory)],
        settings_sha256={path.name: sha256_of_file(path) for path in (config, *taken_over_from(directory))},
    )


def check_trainable(directory: Path, options: FinetuningOptions) -> None:
    """Refuse to train weights that are quantized; LoRA leaves them as they are."""
    if options.lora_rank:
        return
    stored = quantization_in(directory / CONFIG_FILE, read_object(directory / CONFIG_FILE))
    if stored is not None and stored.unpacked_by is None:
        raise ModelError(
            f"the weights of {directory} are quantized by {stored.method}, so they cannot be trained themselves; train LoRA adapters on "
            "them (--lora-rank 8)"
        )


class TunedNetwork(NamedTuple):
    """A network that is fine-tuned, and how an audit reads texts with it."""

    network: Any
    reader: StatefulModel
    # The token after each document; None if there is none.
    end: int | None


def open_base(directory: Path, options: FinetuningOptions) -> TunedNetwork:
    """Load a checkpoint, with fresh LoRA adapters on it if the options ask for them: these are drawn from torch's generator."""
    try:
        from coalmine.models.transformers.causal import from_transformers
        from coalmine.models.transformers.pretrained import load_pretrained
    except ImportError:
        raise MissingExtraError("fine-tuning a checkpoint", "transformers", "transformers") from None
    # Quantized weights, and what is beside them, have a precision of their own.
    plain = not read_object(directory / CONFIG_FILE).get(SETTING)
    found = load_pretrained(
        directory,
        "AutoModelForCausalLM",
        "a causal language model",
        device=options.device,
        precision=options.precision if plain else AUTO,
    )
    with quiet():
        reader = from_transformers(found.model, found.tokenizer, context=options.context)
    network = _with_lora(found.model, options) if options.lora_rank else found.model
    ends = found.tokenizer.eos_token_id
    return TunedNetwork(network, reader, next(iter(reader.context), None) if ends is None else int(ends))


def _with_lora(model: Any, options: FinetuningOptions) -> Any:
    try:
        with offline(), quiet():  # it imports libraries that would fetch code from a hub
            from peft import LoraConfig, TaskType, get_peft_model
            from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as USUAL
    except ImportError:
        raise MissingExtraError("LoRA", "peft", "transformers") from None
    targets: str | list[str] | None = options.lora_targets
    if targets is None:
        targets = None if model.config.model_type in USUAL else "all-linear"
    elif targets != "all-linear":
        targets = [name.strip() for name in options.lora_targets.split(",")] if options.lora_targets else None
    config = LoraConfig(
        r=options.lora_rank,
        lora_alpha=options.scale,  # type: ignore[arg-type]  # any number works
        target_modules=targets,
        task_type=TaskType.CAUSAL_LM,
    )
    with quiet(), as_model_error("LoRA cannot be put on the base", "name other layers with lora_targets"):
        return get_peft_model(model, config)


def saved_network(network: Any, directory: Path) -> dict[str, bytes]:
    """The files of a fine-tuned network without those of its tokenizer, by name; `directory` is that of its base."""
    if hasattr(network, "peft_config"):
        return _saved_adapter(network, directory)
    return _saved_whole(network)


def _saved_whole(network: Any) -> dict[str, bytes]:
    """What transformers would save, in memory: a directory for it could be left behind, with all that the model memorized."""
    from safetensors.torch import save
    from transformers.core_model_loading import revert_weight_conversion
    from transformers.modeling_utils import remove_tied_weights_from_state_dict

    network.config.dtype = str(network.dtype).removeprefix("torch.")
    network.config.architectures = [type(network).__name__]
    with as_model_error(
        "the fine-tuned network cannot be saved", "check that transformers can save the base"
    ):
        # Tied tensors once, under the names that checkpoints of this architecture have.
        tensors = remove_tied_weights_from_state_dict(network.state_dict(), network)
        tensors = revert_weight_conversion(network, tensors)
        weights = save(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, {"format": "pt"}
        )
        config = network.config.to_json_string(use_diff=True)
    return {WEIGHTS_FILE: weights, CONFIG_FILE: config.encode()}


def _saved_adapter(network: Any, directory: Path) -> dict[str, bytes]:
    from peft import get_peft_model_state_dict
    from safetensors.torch import save

    tensors = get_peft_model_state_dict(network, save_embedding_layers=False)
    described = network.peft_config["default"].to_dict()
    described |= {"base_model_name_or_path": str(directory.absolute()), "inference_mode": True}
    plain = {name: _plain(value) for name, value in sorted(described.items())}
    weights = save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())},
        {"format": "pt"},
    )
    return {ADAPTER_WEIGHTS_FILE: weights, ADAPTER_FILE: to_json(plain)}


def _plain(value: Any) -> Any:
    """An option of PEFT as JSON, in one order."""
    if isinstance(value, enum.Enum):
        return value.value
    return sorted(value) if isinstance(value, set) else value


def result_files(options: FinetuningOptions) -> tuple[str, str]:
    """The names of the files with the weights and with their settings."""
    return (ADAPTER_WEIGHTS_FILE, ADAPTER_FILE) if options.lora_rank else (WEIGHTS_FILE, CONFIG_FILE)


def taken_over_from(directory: Path) -> list[Path]:
    """The files that a whole model takes over from its base, byte by byte, so that texts are cut in the same way."""
    further = [directory / name for name in (_GENERATION_FILE, _CHAT_FILE)]
    return [*tokenizer_files(directory), *(path for path in further if path.is_file())]

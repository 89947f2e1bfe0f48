"""Saved PEFT adapters: put on their base only if every tensor of the file is used and the base stays as it is."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coalmine.errors import MissingExtraError, ModelError
from coalmine.models.transformers.adapter_tensors import (
    check_base,
    check_in_use,
    check_names,
    check_rows,
    every_tensor,
    read_tensors,
    tensors_of_base,
    too_few_rows,
)
from coalmine.models.transformers.building import no_larger_than
from coalmine.models.transformers.libraries import as_model_error
from coalmine.models.transformers.model_files import ADAPTER_FILE, Held, adapter_file, held_in, read_object
from coalmine.models.transformers.name_patterns import LONGEST, is_bounded
from coalmine.models.transformers.placing import device_of

# Kinds whose tensors are all in one file. Others load further models by names in their config, or are not tested here.
_KINDS = (
    "ADALORA", "FOURIERFT", "HRA", "IA3", "LN_TUNING", "LOHA", "LOKR", "LORA", "OFT", "P_TUNING", "PREFIX_TUNING", "PROMPT_TUNING",
    "TRAINABLE_TOKENS", "VERA",
)  # fmt: skip
# Options by which a config imports a module of its choice, or builds other layers than the base has.
_REFUSED_OPTIONS = ("arrow_config", "layer_replication", "megatron_config")
# Initializations that leave the weights of the base alone; others subtract from them what they put into the adapter.
_INITIALIZATIONS = (True, False, None, "gaussian", "orthogonal", "eva")
# Options that set the size of an adapter.
_SIZES = ("encoder_hidden_size", "init_r", "n_frequency", "num_virtual_tokens", "r", "target_r")
_SEVERAL_SIZES = ("n_frequency_pattern", "rank_pattern")
# Options that name tokens with rows of their own.
_TOKENS = ("trainable_token_indices", "token_indices")
# Options whose text is a regular expression, and options whose names PEFT puts into one.
_MATCHED = ("exclude_modules", "feedforward_modules", "target_modules")
_PUT_INTO_PATTERNS = ("modules_to_save", "target_parameters")
_MERGE = "merge it into its base (merge_and_unload), and save the whole model"


def held_by_adapter(directory: Path) -> Held:
    """What an adapter's file holds; a config with options that cannot be checked is refused."""
    path = adapter_file(directory)
    held = held_in([path])
    _check_config(directory / ADAPTER_FILE, held)
    return held


def with_adapter(model: Any, directory: Path, held: Held) -> Any:
    """The model with the adapter of a directory on it, unmerged; the model stays where it is, and the adapter is put there too.

    Only the adapter's own tensors are read from its file. PEFT's own loader would put every tensor of the file where its name fits,
    over weights of the base too.
    """
    try:
        from peft import PeftConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
    except ImportError:
        raise MissingExtraError("a PEFT adapter", "peft", "transformers") from None
    cannot = f"the adapter in {directory} cannot be put on its base"
    with as_model_error(cannot, "check both directories"):
        config = PeftConfig.from_pretrained(str(directory))
    _check_known(directory / ADAPTER_FILE, config)
    config.inference_mode = True
    base = [tensor for _, tensor in every_tensor(model)]
    rows = int(model.config.get_text_config().vocab_size)
    _check_tokens(directory / ADAPTER_FILE, config, rows)
    with as_model_error(cannot, "check both directories"):
        home = device_of(model.get_input_embeddings())
        probe = _probe(rows, config).to(home)
        alone = _logits(model, probe)
        with no_larger_than(held, str(directory / ADAPTER_FILE)):
            adapted: Any = get_peft_model(model, config)
        if not hasattr(
            model, "_hf_hook"
        ):  # where layers are on several devices, PEFT puts the adapter of each there
            _put_added(adapted, base, home)
        own = get_peft_model_state_dict(adapted, save_embedding_layers=False)
        _refuse_offloaded(directory, own)
        # A file may hold embeddings beside them, also those that the adapter replaces, by PEFT's own names.
        built = get_peft_model_state_dict(adapted, save_embedding_layers=True)
    path, names = adapter_file(directory), held.floats | held.others
    of_base = tensors_of_base(adapted, base)
    check_names(path, names, own, built.keys() | of_base.keys())
    check_rows(path, built | of_base, rows)
    check_base(path, of_base)
    with as_model_error(cannot, "check both directories"):
        set_peft_model_state_dict(adapted, read_tensors(path, own))
        adapted.eval()
        in_use = get_peft_model_state_dict(adapted, save_embedding_layers=True)
    check_in_use(path, names - of_base.keys(), in_use)
    with as_model_error(cannot, "check both directories"):
        on = _logits(adapted, probe)
        with adapted.disable_adapter():
            off = _logits(adapted, probe)
    _check_effect(directory, alone, on, off)
    return adapted


def refuse_activated(what: str, invocation_tokens: object) -> None:
    """Refuse an activated LoRA, which is off in every text without its invocation tokens, so that its base would be measured."""
    if invocation_tokens:
        raise ModelError(
            f"{what} is an activated LoRA, which changes nothing in a text until its invocation tokens occur, so what it memorized cannot "
            "be measured; train a LoRA without alora_invocation_tokens, or name the base model to measure that"
        )


def _put_added(adapted: Any, base: list[Tensor], device: torch.device) -> None:
    """Put what the adapter added where the base is. Weights of a quantized base cannot be moved with the whole model."""
    known = {id(tensor) for tensor in base}
    for _, tensor in every_tensor(adapted):
        if id(tensor) not in known and tensor.device != device:
            tensor.data = tensor.data.to(device)


def _refuse_offloaded(directory: Path, own: dict[str, Tensor]) -> None:
    if any(tensor.is_meta for tensor in own.values()):
        raise ModelError(
            f"the adapter in {directory} is for layers that the device map leaves on disk or in main memory, where it cannot be put; "
            "choose a map that puts those layers on devices"
        )


def _check_config(path: Path, held: Held) -> None:
    """Refuse kinds and options that cannot be checked, before PEFT acts on them."""
    config = read_object(path)
    kind = config.get("peft_type")
    if kind not in _KINDS:
        raise ModelError(
            f"{path} is of an adapter of the kind {kind!r}, which cannot be checked tensor by tensor; {_MERGE}"
        )
    for option in _REFUSED_OPTIONS:
        if config.get(option):
            raise ModelError(
                f"{path} sets {option}, which loads more than the adapter's own tensors; {_MERGE}"
            )
    refuse_activated(f"the adapter of {path}", config.get("alora_invocation_tokens"))
    begun = config.get("init_lora_weights")
    if not isinstance(begun, str | bool | None) or begun not in _INITIALIZATIONS:
        raise ModelError(
            f"{path} sets init_lora_weights to {begun!r}, which changes the weights of the base, so that the two cannot be measured side "
            f"by side; {_MERGE}"
        )
    _check_patterns(path, config)
    sizes = [config.get(name) for name in _SIZES]
    for name in _SEVERAL_SIZES:
        pattern = config.get(name)
        sizes += list(pattern.values()) if isinstance(pattern, dict) else []
    # An adapter of rank r has r numbers at the least.
    if any(isinstance(size, int | float) and size > held.numbers for size in sizes):
        raise ModelError(
            f"{path} describes an adapter far larger than its file, which holds {held.numbers:,} numbers; save the adapter again"
        )


def _check_patterns(path: Path, config: dict[str, Any]) -> None:
    """Refuse regular expressions for names of modules that PEFT might never finish to match."""
    for option, value in config.items():
        if option in _MATCHED and isinstance(value, str):
            patterns = [value]
        elif option in _PUT_INTO_PATTERNS or option.endswith("_pattern"):
            # Names and keys, which PEFT puts into patterns of its own.
            patterns = (
                [value] if isinstance(value, str) else list(value) if isinstance(value, list | dict) else []
            )
        else:
            continue
        for pattern in patterns:
            if isinstance(pattern, str):
                _check_pattern(path, option, pattern)


def _check_pattern(path: Path, option: str, pattern: str) -> None:
    slow = ModelError(
        f"{path} has a pattern of {len(pattern):,} characters in {option} that may take forever to match, because it repeats what repeats "
        "or is too long; list the names of the modules instead"
    )
    if len(pattern) > LONGEST:
        raise slow
    try:
        flags = re.compile(pattern).flags
    except (re.error, OverflowError, RecursionError, ValueError):
        raise ModelError(
            f"the adapter in {path.parent} cannot be put on its base (a pattern in {option} is not a regular expression); check "
            f"{path.name}"
        ) from None
    if flags & re.VERBOSE or not is_bounded(pattern):
        raise slow


def _check_known(path: Path, config: Any) -> None:
    """Refuse options in use that this version of PEFT would ignore: the adapter would compute other numbers."""
    known = {field.name for field in dataclasses.fields(config)}
    for name, value in sorted(read_object(path).items()):
        if value and name not in known:
            raise ModelError(
                f"{path} sets {name}, which the installed version of PEFT does not know; install the version that the adapter was "
                "saved with"
            )


def _check_tokens(path: Path, config: Any, rows: int) -> None:
    """Refuse trained tokens that the base has no row for."""
    highest = max(_numbers_in([getattr(config, name, None) for name in _TOKENS]), default=-1)
    if highest >= rows:
        raise ModelError(too_few_rows(path, f"names the token {highest:,}", rows))


def _check_effect(directory: Path, alone: Tensor, on: Tensor, off: Tensor) -> None:
    """Refuse an adapter that changes nothing, and one that leaves a changed base when it is switched off."""
    if torch.equal(on, alone):
        raise ModelError(
            f"the adapter in {directory} changes nothing: the model gives the same numbers with and without it, as before any training; "
            "name the base model, if that is what you want to measure"
        )
    # Far above rounding.
    closeness = 0.05 if alone.dtype in {torch.float16, torch.bfloat16} else 1e-4
    if (off - alone).abs().max() > closeness * alone.abs().max():
        raise ModelError(
            f"the adapter in {directory} changes weights of its base that switching it off does not bring back, so that the two cannot be "
            f"measured side by side; {_MERGE}"
        )


def _probe(size: int, config: Any) -> Tensor:
    """A few tokens from all over the vocabulary, and those that an adapter concerns."""
    named = [getattr(config, name, None) for name in _TOKENS]
    tokens = [
        *((place * size) // 8 for place in range(8)),
        *itertools.islice(_numbers_in(named), 16),
        *((place * 7 + 4) % size for place in range(4)),
    ]
    return torch.tensor([[token % size for token in tokens]])


def _numbers_in(value: object) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict):
        yield from _numbers_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _numbers_in(one)


@torch.inference_mode()
def _logits(model: Any, probe: Tensor) -> Tensor:
    """The logits of the probe's own tokens, without those of tokens that an adapter puts before them."""
    model.eval()
    further = {"decoder_input_ids": probe} if getattr(model.config, "is_encoder_decoder", False) else {}
    logits: Tensor = model(input_ids=probe, **further).logits
    return logits[:, -probe.shape[1] :]

"""`vllm:PATH` and `from_vllm`: a checkpoint that vLLM loads, from safetensors, without remote code, usage reports or prefix caching."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coalmine.errors import InputError, MissingExtraError, ModelError
from coalmine.models.contexts import contexts_of
from coalmine.models.offline import without_hub
from coalmine.models.transformers.adapter_base import base_of_adapter
from coalmine.models.transformers.chat import ChatTemplate
from coalmine.models.transformers.libraries import as_model_error, quiet
from coalmine.models.transformers.model_files import (
    CONFIG_FILE,
    check_json,
    checkpoint_files,
    held_in,
    read_object,
)
from coalmine.models.transformers.pretrained import load_tokenizer
from coalmine.models.transformers.quantization import own_precision, quantization_of
from coalmine.models.transformers.settings import check_settings
from coalmine.models.transformers.slow_tokenizers import read_tokenizer
from coalmine.models.transformers.subwords import subword_tokenizer
from coalmine.models.vllm.adapter import VLLMModel
from coalmine.storage.files import sha256_of_file

# An id that no token has.
_NO_TOKEN = -1
_PRECISIONS = ("auto", "float32", "float16", "bfloat16")
# The processes that vLLM starts read these: nothing comes from a hub, and nothing about the machine is reported.
_ALONE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "DO_NOT_TRACK": "1",
}


def load(
    where: str,
    *,
    precision: str = "auto",
    device_map: str | None = None,
    context: str = "auto",
    context_text: str | None = None,
    **others: Any,
) -> VLLMModel:
    """The causal checkpoint in a local directory, run by vLLM on the devices that its build is for.

    With the device map "auto", the model is divided among all GPUs (tensor parallelism).
    """
    if others:
        named = ", ".join(f"--{name}" for name in sorted(others))
        raise InputError(
            f"vLLM decides on its devices itself, and runs causal models only; leave out {named}"
        )
    if precision not in _PRECISIONS:
        raise InputError(
            f"vLLM computes in {', '.join(_PRECISIONS)}, and {precision} was asked for; choose one of these"
        )
    directory = Path(where)
    if not directory.is_dir():
        raise ModelError(
            f"model not found: {directory} is not a directory; name a checkpoint, as in vllm:model/"
        )
    if base_of_adapter(directory) is not None:
        raise ModelError(
            f"{directory} holds an adapter, which is not read through vLLM; name the directory without vllm:, or merge it into its base"
        )
    if device_map not in {None, "auto"}:
        raise InputError(
            "vLLM itself divides a model among its devices; give the device map auto, or make the engine in Python (from_vllm)"
        )
    check_json(directory)
    files = checkpoint_files(directory)
    path = directory / CONFIG_FILE
    config, held = read_object(path), held_in(files)
    quantized = config.get("quantization_config")
    hashes = [sha256_of_file(one) for one in files]
    origin: dict[str, Any] = {"weights": directory.name, "weights_sha256": hashes}
    check_settings(path, config, held)
    if isinstance(quantized, dict):
        origin["quantization"] = quantization_of(quantized).described()
    else:
        # What vLLM itself takes for a checkpoint in float32 is bfloat16.
        precision = own_precision(config, held, None) if precision == "auto" else precision
    engine = _engine(directory, precision, device_map)
    return from_vllm(
        engine,
        load_tokenizer(directory),
        name=directory.resolve().name,
        origin=origin,
        context=context,
        context_text=context_text,
    )


def from_vllm(
    engine: Any,
    tokenizer: Any,
    *,
    name: str = "model",
    origin: dict[str, Any] | None = None,
    context: str = "auto",
    context_text: str | None = None,
) -> VLLMModel:
    """Wrap a `vllm.LLM` and the transformers tokenizer of its checkpoint for audits. Its log-perplexities are in bits.

    Its numbers are asked for in two orders first, and an engine is refused where they depend on it, as they have with prefix caching:
    load the model with `enable_prefix_caching=False`. `context` and `context_text` are as in `from_transformers`.

    >>> engine = vllm.LLM("model/", enable_prefix_caching=False)  # doctest: +SKIP
    >>> model = from_vllm(engine, AutoTokenizer.from_pretrained("model/"))  # doctest: +SKIP
    """
    config = engine.llm_engine.vllm_config.model_config
    size = int(config.get_vocab_size())
    separator = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    subwords = subword_tokenizer(
        read_tokenizer(tokenizer).backend,
        size=size,
        separator=_NO_TOKEN if separator is None else int(separator),
    )
    model = VLLMModel(
        engine,
        subwords,
        name=name,
        origin={"vllm": _version(), **(origin or {})},
        contexts=contexts_of(tokenizer, subwords.encode, context, context_text),
        chat=ChatTemplate(tokenizer, context_chosen=(context, context_text) != ("auto", None)),
    )
    model.check_order()
    return model


def _engine(directory: Path, precision: str, device_map: str | None) -> Any:
    devices = 1
    if device_map is not None:
        import torch

        devices = max(1, torch.cuda.device_count())
    with (
        _alone(),
        quiet(),
        as_model_error(f"vLLM cannot load {directory}", "check that vLLM supports its architecture here"),
    ):
        vllm = _vllm()
        return vllm.LLM(
            model=str(directory.absolute()),
            dtype=precision,
            load_format="safetensors",
            enable_prefix_caching=False,
            trust_remote_code=False,
            tensor_parallel_size=devices,
            seed=0,
        )


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep vLLM, and the processes that it starts, from asking a hub and from reporting anything."""
    before = {name: os.environ.get(name) for name in _ALONE}
    os.environ.update(_ALONE)
    try:
        with without_hub():  # which was imported before, and read its variable then
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _vllm() -> Any:
    try:
        import vllm
    except ImportError:
        raise MissingExtraError("a model that vLLM runs", "vllm", "vllm") from None
    return vllm


def _version() -> str:
    return str(getattr(_vllm(), "__version__", "unknown"))

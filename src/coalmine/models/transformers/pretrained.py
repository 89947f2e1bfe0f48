"""Loading Hugging Face transformers checkpoints: safetensors only, no remote code, nothing from a hub, and every weight in use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.errors import MissingExtraError, ModelError
from coalmine.models.devices import AUTO
from coalmine.models.offline import offline
from coalmine.models.reference.checkpoint import finetuning_of
from coalmine.models.transformers.adapter_base import base_of_adapter
from coalmine.models.transformers.adapter_tensors import every_tensor
from coalmine.models.transformers.building import no_larger_than
from coalmine.models.transformers.gguf_files import (
    load_gguf_model,
    load_gguf_tokenizer,
    read_gguf,
)
from coalmine.models.transformers.libraries import as_model_error, quiet
from coalmine.models.transformers.model_files import (
    CONFIG_FILE,
    GGUF_ENDING,
    TOKENIZER_FILE,
    Held,
    adapter_file,
    check_json,
    checkpoint_files,
    has_tokenizer,
    held_in,
    read_object,
)
from coalmine.models.transformers.placing import Placed, places_of
from coalmine.models.transformers.quantization import (
    as_stored,
    check_precision,
    check_quantized,
    own_precision,
    quantization_in,
)
from coalmine.models.transformers.settings import check_settings
from coalmine.models.transformers.slow_tokenizers import read_tokenizer
from coalmine.models.transformers.token_ids import check_ids, check_vocabulary, check_written_ids
from coalmine.models.transformers.vocabulary_files import tokenizer_of_file
from coalmine.storage.files import sha256_of_file

# Weights that play no part in predicting tokens in any architecture: value heads of reinforcement learning, and what older versions
# of transformers saved next to weights.
_OF_NO_USE = re.compile(r"^v_head\.|(^|\.)(inv_freq|masked_bias|position_ids|version)$")
# Heads for whole texts, which some architectures have.
_OF_WHOLE_TEXTS = re.compile(r"(^|\.)(pooler|seq_relationship|sop_classifier)\.")
# Bytes; memory that torch allocates begins at a multiple of this.
_ALIGNMENT = 64


class Pretrained(NamedTuple):
    """A model and its tokenizer as transformers returns them, with their facts for the record of a run."""

    model: Any
    tokenizer: Any
    name: str
    origin: dict[str, Any]


def load_pretrained(
    directory: Path,
    auto_class: str,
    kind: str,
    *,
    device: str,
    precision: str,
    device_map: str | None = None,
) -> Pretrained:
    """The model in a local directory, loaded by `auto_class` of transformers; a PEFT adapter is put on its base, unmerged.

    Weights go from their files to the device, or to those that `device_map` spreads them over, without a copy in main memory.
    """
    try:
        import transformers

        from coalmine.models.transformers.peft_adapters import held_by_adapter, with_adapter
    except ImportError:
        raise MissingExtraError("a transformers checkpoint", "transformers", "transformers") from None
    placed = places_of(device, precision, device_map)
    with offline(), quiet():
        base = base_of_adapter(directory)
        check_json(directory)
        # An adapter that cannot be used is reported before its base, which may be large, is loaded.
        adapter = None if base is None else held_by_adapter(directory)
        files = checkpoint_files(base or directory)
        model, stored = _checkpoint(
            base or directory, files, getattr(transformers, auto_class), kind, precision, placed
        )
        if adapter is not None:
            model = with_adapter(model, directory, adapter)
            files = [*files, adapter_file(directory)]
        _align(model)
        # An adapter may be trained with a tokenizer of its own, in any of the files that transformers reads.
        home = directory if base is None or has_tokenizer(directory) else base
        tokenizer = load_tokenizer(home)
        backend = read_tokenizer(tokenizer).backend
        check_written_ids(home, backend)
        check_ids(backend, _rows(model), f"the tokenizer of {home}")
    origin = {
        "weights": directory.name,
        "weights_sha256": [sha256_of_file(path) for path in files],
        **stored,
    }
    facts = finetuning_of(directory)
    if facts.data_sha256 is not None:
        origin |= facts.described()
    return Pretrained(model, tokenizer, directory.resolve().name, origin)


def load_gguf(path: Path, kind: str, *, device: str, precision: str) -> Pretrained:
    """The causal model in a GGUF file, dequantized, and the tokenizer in the same file."""
    try:
        from transformers import AutoModelForCausalLM
    except ImportError:
        raise MissingExtraError("a GGUF checkpoint", "transformers", "quantized") from None
    placed = places_of(device, precision, None)
    content = read_gguf(path)
    model = load_gguf_model(content, AutoModelForCausalLM, kind, precision, placed)
    _align(model)
    tokenizer = load_gguf_tokenizer(content, model.config)
    check_ids(tokenizer.backend_tokenizer, _rows(model), f"the tokenizer of {path}")
    origin = {
        "weights": path.name,
        "weights_sha256": [sha256_of_file(path)],
        "quantization": content.described(),
    }
    return Pretrained(model, tokenizer, path.name.removesuffix(GGUF_ENDING), origin)


def _align(model: Any) -> None:
    """Move weights that are used where the file has them, at any address, to where other memory begins.

    Libraries compute in another order on other addresses, so that the last bits of results would be others than those of a worker, which
    has a copy.
    """
    for _, tensor in every_tensor(model):
        if tensor.device.type == "cpu" and tensor.data_ptr() % _ALIGNMENT:
            tensor.data = tensor.data.clone()


def _rows(model: Any) -> int | None:
    """The number of tokens that a model has rows for; None for models of pairs, whose two sides may differ."""
    config = model.config
    return None if getattr(config, "is_encoder_decoder", False) else int(config.get_text_config().vocab_size)


def load_tokenizer(directory: Path) -> Any:
    """The tokenizer of a local directory: as transformers reads it, or from its vocabulary file where that is not proven right."""
    check_json(directory)
    check_vocabulary(directory)
    if not (directory / TOKENIZER_FILE).is_file():
        with offline(), quiet():
            found = tokenizer_of_file(directory, _as_transformers_reads)
        if found is not None:
            return found
    tokenizer = _as_transformers_reads(directory)
    if not (directory / TOKENIZER_FILE).is_file():
        _check_vocabulary(directory, tokenizer)
    return tokenizer


def _as_transformers_reads(directory: Path) -> Any:
    from transformers import AutoTokenizer

    with (
        offline(),
        quiet(),
        as_model_error(
            f"the tokenizer of {directory} cannot be loaded", f"save it again, with its {TOKENIZER_FILE}"
        ),
    ):
        return AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)


def _check_vocabulary(directory: Path, tokenizer: Any) -> None:
    """Refuse a tokenizer without its files: transformers would make one without words, which encodes nothing or single letters."""
    needed = {
        str(name)
        for role, name in tokenizer.vocab_files_names.items()
        if role in {"vocab_file", "merges_file"}
    }
    missing = sorted(name for name in needed or {TOKENIZER_FILE} if not (directory / name).is_file())
    if missing:
        raise ModelError(
            f"{directory} has no {TOKENIZER_FILE}, and no {missing[0]} to make one from; save the tokenizer with the model"
        )


def _checkpoint(
    directory: Path, files: list[Path], auto_class: Any, kind: str, precision: str, placed: Placed
) -> tuple[Any, dict[str, Any]]:
    """The model, and how its weights are stored."""
    import torch

    check_json(directory)
    held = held_in(files)
    settings = directory / CONFIG_FILE
    document = read_object(settings)
    quantization = quantization_in(settings, document)
    own = own_precision(document, held, quantization)
    if quantization is not None:
        held = held.quantized
        check_precision(settings, quantization, own, precision)
    check_settings(settings, document, held)
    dtype = own if precision == AUTO else precision
    options = placed.options(quantized=quantization is not None)
    if quantization is not None:
        options |= quantization.options()
    with (
        as_model_error(f"{directory} cannot be loaded as {kind}", "check the directory"),
        no_larger_than(held, str(settings), outlines_only=True),
    ):
        model, loading = auto_class.from_pretrained(
            directory,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            local_files_only=True,
            trust_remote_code=False,
            **options,
        )
    if quantization is None:
        _check_all_used(directory, kind, model, loading, held)
        return model, {}
    # Whole numbers are weights too.
    _check_all_used(directory, kind, model, loading, held._replace(others=frozenset()))
    check_quantized(directory, model, quantization)
    as_stored(model)
    return model, {"quantization": quantization.described()}


def _check_all_used(directory: Path, kind: str, model: Any, loading: dict[str, Any], held: Held) -> None:
    """Refuse weights that are missing, of another shape, or not used: the measured model would not be that of the file."""
    cannot = f"{directory} cannot be loaded as {kind}"
    missing = set(loading["missing_keys"])
    if missing:  # they would be random numbers, and so would every score
        raise ModelError(f"{cannot} (its weights have no {min(missing)}); save the whole model again")
    for name, *shapes in loading["mismatched_keys"]:
        written, built = (" x ".join(map(str, shape)) for shape in shapes)
        raise ModelError(
            f"{cannot} (its weights have {name} as {written}, and {CONFIG_FILE} describes it as {built}); save the model again"
        )
    # Names may have been converted, so a name that is not in the file counts as a weight.
    unused = {
        name for name in loading["unexpected_keys"] if name not in held.others and not _OF_NO_USE.search(name)
    }
    if any(_OF_WHOLE_TEXTS.search(name) for name in unused):
        with as_model_error(cannot, "check the directory"):
            unused -= _heads_for_whole_texts(model)
    if unused:
        raise ModelError(
            f"{cannot} ({len(unused):,} of its weights would not be used, such as {min(unused)}); check that {CONFIG_FILE} belongs to them"
        )


def _heads_for_whole_texts(model: Any) -> set[str]:
    """The tensors of an architecture's heads for whole texts, which models of tokens are saved with and do not use."""
    import torch
    from transformers import MODEL_FOR_PRETRAINING_MAPPING, MODEL_MAPPING

    found: set[str] = set()
    mappings: list[Any] = [MODEL_MAPPING, MODEL_FOR_PRETRAINING_MAPPING]
    for classes in mappings:
        if type(model.config) in classes:
            with torch.device("meta"):  # names without numbers
                whole = classes[type(model.config)](model.config)
            names = {name for name in whole.state_dict() if _OF_WHOLE_TEXTS.search(name)}
            found |= names | {f"{model.base_model_prefix}.{name}" for name in names}
    return found

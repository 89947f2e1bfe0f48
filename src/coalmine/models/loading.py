"""`load_model`: any model by its location, which is a local directory or file, an endpoint, a function or an installed adapter."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from coalmine.errors import InputError, ModelError
from coalmine.models.contexts import NOTHING, Context, with_text
from coalmine.models.devices import read_device_map, usable_device
from coalmine.models.offline import offline
from coalmine.models.options import LoadOptions
from coalmine.models.plugins import PREFIX, is_plugin, plugin_model
from coalmine.models.protocols import PairModel
from coalmine.models.reference.checkpoint import (
    WEIGHTS_FILE,
    check_readable_name,
    digest_of_weights,
    load_checkpoint,
    require_torch,
)
from coalmine.models.transformers.adapter_base import base_of_adapter, refuse_adapters_below
from coalmine.models.transformers.model_files import (
    CONFIG_FILE,
    GGUF_ENDING,
    Held,
    architectures_of,
    gguf_file_in,
    held_in,
    read_object,
)

if TYPE_CHECKING:
    from coalmine.models.protocols import Model


def load_model(
    where: str | os.PathLike[str],
    options: LoadOptions | None = None,
    *,
    answers: str | os.PathLike[str] | None = None,
    **changes: Any,
) -> Any:
    """Load a model, ready to be audited.

    The fields of `LoadOptions` can be given as keywords, such as `precision="float64"`, instead of a record or on top of one.

    >>> model = load_model("model/")  # doctest: +SKIP
    >>> load_model("http://127.0.0.1:8000/v1", answers="answers.sqlite").describe()["capability"]  # doctest: +SKIP
    'scorer'

    Args:
        where: a local directory (what `coalmine train` wrote, a transformers checkpoint or a PEFT adapter), a .gguf file, the URL of an
            OpenAI-compatible endpoint such as http://127.0.0.1:8000/v1, a TOML file that describes one, `python:module:function`, which
            runs that function to make the model, or `NAME:WHERE`, which runs the adapter that an installed package registers as NAME.
        options: how to use the model, where it runs, in which precision, and what texts are scored after; the default is
            `LoadOptions()`.
        answers: a file that keeps the answers of an endpoint, so that nothing is asked twice.
        changes: fields of `LoadOptions` by name.
    """
    chosen = LoadOptions.of(options, changes)
    chosen.check()
    if is_endpoint(where):
        return _endpoint(where, chosen, answers)
    if is_plugin(where):
        return _plugin(where, chosen)
    directory = Path(where)
    # Not Path.is_dir, which raises on names that are too long.
    is_file = os.path.isfile(directory) and directory.name.lower().endswith(GGUF_ENDING)  # noqa: PTH113
    if not is_file and not os.path.isdir(directory):  # noqa: PTH112
        raise ModelError(
            f"model not found: {directory} is not a directory or a .gguf file; name a directory that `coalmine train` or transformers "
            "wrote, a .gguf file, the URL of an endpoint, or python:module:function"
        )
    check_readable_name(directory)
    require_torch("loading a model")
    chosen = _on_this_machine(chosen)
    with offline():
        model = _load_directory(directory, chosen)
    model.load_again = partial(load_model, str(directory.absolute()), chosen)
    return model


def _on_this_machine(options: LoadOptions) -> LoadOptions:
    """The options with the device that "auto" takes here and the device map of a file, so that workers load the same."""
    if options.device_map is None:
        return msgspec.structs.replace(options, device=usable_device(options.device, options.precision))
    found = read_device_map(options.device_map)
    return (
        options if isinstance(found, str) else msgspec.structs.replace(options, device_map=json.dumps(found))
    )


def is_endpoint(where: str | os.PathLike[str]) -> bool:
    """Whether a model is reached by HTTP, by its URL or a TOML file that has it."""
    text = os.fspath(where)
    return text.lower().startswith(("http://", "https://")) or (
        text.endswith(".toml") and Path(text).is_file()
    )


def _endpoint(
    where: str | os.PathLike[str], options: LoadOptions, answers: str | os.PathLike[str] | None
) -> Model:
    if options.chooses_context:
        raise InputError(
            "what an endpoint scores a text after is the `context` of its TOML file (docs/guides/endpoints.md); leave out context "
            "and context_text"
        )
    if options.kind != "auto":
        raise InputError(
            f"an endpoint is used as what it offers, and {options.kind!r} was asked for; leave out kind"
        )
    from coalmine.models.endpoints.connecting import connect, read_endpoint

    return connect(read_endpoint(where), cache=answers)


def _plugin(where: str | os.PathLike[str], options: LoadOptions) -> Any:
    given = options.changed()
    if given and os.fspath(where).startswith(PREFIX):
        raise InputError(
            f"{os.fspath(where)} itself decides on the kind, device, precision and context of its model; leave out kind, --device, "
            "device_map, --precision, context and context_text"
        )
    return plugin_model(where, **given)


def _load_directory(directory: Path, options: LoadOptions) -> Any:
    gguf = gguf_file_in(directory)
    if gguf is not None:
        return _load_gguf(gguf, options)
    config = _transformers_config(directory)
    if config is None:
        refuse_adapters_below(directory)
        return _trained_here(directory, options)
    kind: str = options.kind
    if kind == "auto":
        masked = any(name.endswith("ForMaskedLM") for name in architectures_of(config))
        kind = "pairs" if config.get("is_encoder_decoder") else "masked" if masked else "causal"
    if kind != "causal":
        _refuse_context(kind, options)
        _refuse_map(f"a {kind} model", options)
    device, precision = options.device, options.precision
    if kind == "pairs":
        from coalmine.models.transformers.pairs import load_pairs

        return load_pairs(directory, device=device, precision=precision)
    if kind == "masked":
        from coalmine.models.transformers.masked import load_masked

        return load_masked(directory, device=device, precision=precision)
    from coalmine.models.transformers.causal import load_transformers

    return load_transformers(
        directory,
        device=device,
        precision=precision,
        device_map=options.device_map,
        context=options.context,
        context_text=options.context_text,
    )


def _load_gguf(path: Path, options: LoadOptions) -> Any:
    _refuse_map("a model in a GGUF file", options)
    if options.kind not in {"auto", "causal"}:
        raise ModelError(
            f"{path} is a GGUF file, which is read as a causal model, and {options.kind!r} was asked for; leave out kind"
        )
    from coalmine.models.transformers.causal import load_transformers

    return load_transformers(
        path,
        device=options.device,
        precision=options.precision,
        context=options.context,
        context_text=options.context_text,
    )


def _trained_here(directory: Path, options: LoadOptions) -> Any:
    """A model of `coalmine train`, with the separator that it was trained with or with another context."""
    _refuse_map("a model of `coalmine train`", options)
    own: Any = _reference_model(directory, device=options.device, precision=options.precision)
    kind = "pairs" if isinstance(own, PairModel) else "causal"
    if options.kind not in {"auto", kind}:
        raise ModelError(
            f"{directory} holds a {kind} model of `coalmine train`, which cannot be used as {options.kind}; leave out kind"
        )
    if not options.chooses_context:
        return own
    if kind != "causal":
        _refuse_context(kind, options)
    if options.context in {"bos", "eot"}:
        raise ModelError(
            f"a model of `coalmine train` has one document separator, which is what auto takes, and no token for {options.context}; "
            "choose auto or none"
        )
    tokens = () if options.context == "none" else own.context
    before = Context(options.context, tokens, "document separator" if tokens else NOTHING)
    return own.in_context(with_text(before, options.context_text, own.tokenizer.encode))


def _reference_model(directory: Path, *, device: str, precision: str) -> Any:
    weights = directory / WEIGHTS_FILE
    if not weights.is_file():
        return load_checkpoint(directory, device=device, precision=precision)  # which says what is missing
    from coalmine.models.transformers.building import no_larger_than

    try:
        held = held_in([weights])
    except ModelError:
        digest_of_weights(directory)  # weights that were changed are called that, whatever is wrong with them
        raise
    _check_shape(directory / CONFIG_FILE, held)
    with no_larger_than(held, str(directory / CONFIG_FILE)):
        return load_checkpoint(directory, device=device, precision=precision)


def _check_shape(path: Path, held: Held) -> None:
    """Refuse a network whose shape is not one, or is far larger than its weights, before it is built."""
    network = read_object(path).get("network") if path.exists() else None
    if not isinstance(network, dict):
        return  # which the reader of the whole config says
    if not isinstance(network.get("architecture"), str):
        raise ModelError(f"{path} is damaged (its network has no architecture); train the model again")
    for name, size in sorted(network.items()):
        if isinstance(size, int) and size > held.numbers:
            raise ModelError(
                f"{path} describes a network with a {name} of {size:,}, and its weights hold {held.numbers:,} numbers; train "
                "the model again"
            )


def _refuse_context(kind: str, options: LoadOptions) -> None:
    if options.chooses_context:
        what = (
            "model of pairs reads the source and the start of its decoder before a text"
            if kind == "pairs"
            else "masked model sees both sides of each token"
        )
        raise ModelError(
            f"a {what}, so there is no other context to choose; leave out context and context_text"
        )


def _refuse_map(what: str, options: LoadOptions) -> None:
    if options.device_map is not None:
        raise ModelError(
            f"{what} runs on one device, and only causal checkpoints of transformers are spread over several; leave out device_map"
        )


def _transformers_config(directory: Path) -> dict[str, Any] | None:
    """The config of a transformers checkpoint, which all say their model type, or of an adapter's base; None for other models."""
    path = (base_of_adapter(directory) or directory) / CONFIG_FILE
    found = read_object(path) if path.exists() else {}
    return found if "model_type" in found else None

"""Any model, by where it is: a directory on this machine, an endpoint that somebody else runs, or a function that makes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from coalmine.errors import InputError, ModelError
from coalmine.models.contexts import NOTHING, Context, check_choice, with_text
from coalmine.models.offline import offline
from coalmine.models.plugins import is_function, model_of_function
from coalmine.models.protocols import PairModel
from coalmine.models.reference.checkpoint import (
    WEIGHTS_FILE,
    check_readable_name,
    digest_of_weights,
    load_checkpoint,
    require_torch,
)
from coalmine.models.transformers.adapter_base import base_of_adapter, refuse_adapters_below
from coalmine.models.transformers.model_files import CONFIG_FILE, Held, architectures_of, held_in, read_object

if TYPE_CHECKING:
    from coalmine.models.protocols import Model

Kind = Literal["auto", "causal", "pairs", "masked"]
PRECISIONS = ("float32", "float64", "bfloat16")
AS_TRAINED: tuple[str, str | None] = ("auto", None)


def load_model(
    where: str | os.PathLike[str],
    *,
    kind: Kind = "auto",
    device: str = "cpu",
    precision: str = "float32",
    context: str = "auto",
    context_text: str | None = None,
    answers: str | os.PathLike[str] | None = None,
) -> Any:
    """A model, ready to be asked.

    `where` is a local directory (what `coalmine train` wrote, a transformers checkpoint or a PEFT adapter), the URL of an
    OpenAI-compatible endpoint such as http://127.0.0.1:8000/v1, a TOML file that says how to reach one (docs/guides/endpoints.md), or
    `python:module:function`, which runs that function to make the model (docs/guides/adapters.md).

    `kind` says what a transformers checkpoint is used as where its config leaves a choice: T5 is a model of pairs, and with
    "masked" one that fills gaps. `precision` is "float32", "float64" (scores agree to about 1e-9 bits whatever the batch, at about
    twice the cost) or "bfloat16" (half the memory; ranks are coarser). `answers` is a file in which the answers of an endpoint
    are kept, so that nothing is asked twice.

    `context` is what a text is scored after, for causal models: "auto" (what came before each document in the usual preparation:
    BOS, or end of text where there is no BOS), "bos", "eot" or "none". `context_text` comes after that. See docs/guides/models.md.
    """
    if kind not in get_args(Kind):
        raise InputError(f"a model is used as one of {', '.join(get_args(Kind))}, got {kind!r}")
    if precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    check_choice(context, context_text)
    chosen = (context, context_text)
    if is_endpoint(where):
        if chosen != AS_TRAINED:
            raise InputError(
                "what an endpoint scores a text after is the `context` of its TOML file (docs/guides/endpoints.md); leave --context and "
                "--context-text out"
            )
        from coalmine.models.endpoints.description import connect_as_told

        if kind != "auto":
            raise InputError(
                f"an endpoint is used as what it offers, and {kind!r} was asked for; leave --kind out"
            )
        return connect_as_told(str(where), answers=None if answers is None else Path(answers))
    if is_function(where):
        if (kind, device, precision, *chosen) != ("auto", "cpu", "float32", *AS_TRAINED):
            raise InputError(
                f"{os.fspath(where)} decides itself on the kind, device, precision and context of its model; leave --kind, --device, "
                "--precision, --context and --context-text out"
            )
        return model_of_function(where)
    directory = Path(where)
    if not os.path.isdir(directory):  # noqa: PTH112 - Path.is_dir raises on names that are too long
        raise ModelError(
            f"model not found: {directory} is not a directory; name one that `coalmine train` or transformers wrote, the URL of "
            "an endpoint, or python:module:function"
        )
    check_readable_name(directory)
    require_torch("loading a model")
    with offline():
        return _load_directory(directory, kind, chosen, device=device, precision=precision)


def is_endpoint(where: str | os.PathLike[str]) -> bool:
    """Whether a model is reached by HTTP, by its URL or a TOML file that has it."""
    text = os.fspath(where)
    return text.lower().startswith(("http://", "https://")) or (
        text.endswith(".toml") and Path(text).is_file()
    )


def _load_directory(
    directory: Path, kind: Kind, context: tuple[str, str | None], *, device: str, precision: str
) -> Model:
    config = _transformers_config(directory)
    if config is None:
        refuse_adapters_below(directory)
        own: Any = _reference_model(directory, device=device, precision=precision)
        is_kind = "pairs" if isinstance(own, PairModel) else "causal"
        if kind not in {"auto", is_kind}:
            raise ModelError(
                f"{directory} holds a {is_kind} model of `coalmine train`, which cannot be used as {kind}; leave --kind out"
            )
        return cast("Model", _reference_model_after(own, is_kind, *context))
    if kind == "auto":
        masked = any(name.endswith("ForMaskedLM") for name in architectures_of(config))
        kind = "pairs" if config.get("is_encoder_decoder") else "masked" if masked else "causal"
    if kind != "causal":
        _refuse_context(kind, context)
    if kind == "pairs":
        from coalmine.models.transformers.pairs import load_pairs

        return load_pairs(directory, device=device, precision=precision)
    if kind == "masked":
        from coalmine.models.transformers.masked import load_masked

        return load_masked(directory, device=device, precision=precision)
    from coalmine.models.transformers.causal import load_transformers

    return load_transformers(
        directory, device=device, precision=precision, context=context[0], context_text=context[1]
    )


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
        model: Any = load_checkpoint(directory, device=device, precision=precision)
    rows = getattr(model, "network" if isinstance(model, PairModel) else "_network").vocabulary
    if model.tokenizer.size != rows:
        raise ModelError(
            f"{directory / CONFIG_FILE} has a tokenizer of {model.tokenizer.size:,} ids for a network of {rows:,} tokens; train the model again"
        )
    return model


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
                f"{path} describes a network with a {name} of {size:,}, and its weights hold {held.numbers:,} numbers; train the model again"
            )


def _reference_model_after(own: Any, kind: str, context: str, text: str | None) -> Any:
    """A model of `coalmine train` with another context than the separator that it was trained with."""
    if (context, text) == AS_TRAINED:
        return own
    if kind != "causal":
        _refuse_context(kind, (context, text))
    if context in {"bos", "eot"}:
        raise ModelError(
            f"a model of `coalmine train` has one document separator, which is what auto takes, and no token for {context}; choose auto "
            "or none"
        )
    tokens = () if context == "none" else own.context
    before = Context(context, tokens, "document separator" if tokens else NOTHING)
    return own.in_context(with_text(before, text, own.tokenizer.encode))


def _refuse_context(kind: str, context: tuple[str, str | None]) -> None:
    if context != AS_TRAINED:
        what = (
            "reads the source and the start of its decoder before a text"
            if kind == "pairs"
            else "sees both sides of each token"
        )
        raise ModelError(
            f"a {'model of pairs' if kind == 'pairs' else 'masked model'} {what}, so there is no other context to choose; leave "
            "--context and --context-text out"
        )


def _transformers_config(directory: Path) -> dict[str, Any] | None:
    """The config of a transformers checkpoint, which all say their model type, or of an adapter's base; None for other models."""
    path = (base_of_adapter(directory) or directory) / CONFIG_FILE
    found = read_object(path) if path.exists() else {}
    return found if "model_type" in found else None

"""Models of Hugging Face transformers at rest: safetensors only, no remote code, nothing from a hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.errors import MissingExtraError, ModelError
from coalmine.files import sha256_of_file

ADAPTER_FILE = "adapter_config.json"


class Pretrained(NamedTuple):
    """A model and its tokenizer as transformers gives them, with what the record of a run says of them."""

    model: Any
    tokenizer: Any
    name: str
    origin: dict[str, Any]


def load_pretrained(
    directory: Path, auto_class: str, kind: str, *, device: str, precision: str
) -> Pretrained:
    """What lies in a local directory, by the class of transformers that reads its kind; a PEFT adapter is put on its base, unmerged."""
    try:
        import torch
        import transformers
        from transformers.utils import logging
    except ImportError:
        raise MissingExtraError("a transformers checkpoint", "transformers", "transformers") from None
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    base = base_of_adapter(directory)
    its_own: Any = logging  # untyped
    bars = its_own.is_progress_bar_enabled()
    its_own.disable_progress_bar()  # progress is ours to show, or not to show
    try:
        model: Any
        model, loading = getattr(transformers, auto_class).from_pretrained(
            base or directory,
            dtype=getattr(torch, precision),
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
        _check_complete(loading["missing_keys"])
        if base is not None:
            model = _with_adapter(model, directory)
        model.to(device)
        own_tokenizer = base is None or (directory / "tokenizer.json").is_file()
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            directory if own_tokenizer else base, **options
        )
    except (OSError, ValueError, RuntimeError, AssertionError, ImportError) as problem:
        first_line = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise ModelError(
            f"{directory} cannot be loaded as {kind} ({first_line}); check the directory"
        ) from None
    finally:
        if bars:
            its_own.enable_progress_bar()
    # What an adapter does depends on the weights that it is put on.
    places = [directory] if base is None else [base, directory]
    weights = [path for place in places for path in sorted(place.glob("*.safetensors"))]
    origin = {"weights": directory.name, "weights_sha256": [sha256_of_file(path) for path in weights]}
    return Pretrained(model, tokenizer, directory.resolve().name, origin)


def _check_complete(missing: set[str]) -> None:
    if missing:  # they would be made of random numbers, and every score with them
        raise ValueError(f"its weights have no {min(missing)}")


def _with_adapter(model: Any, directory: Path) -> Any:
    try:
        from peft import PeftModel
    except ImportError:
        raise MissingExtraError("a PEFT adapter", "peft", "transformers") from None
    return PeftModel.from_pretrained(model, str(directory))


def base_of_adapter(directory: Path) -> Path | None:
    """The local directory of the model that an adapter belongs to, or None where there is no adapter."""
    config = directory / ADAPTER_FILE
    if not config.is_file():
        return None
    try:
        named = str(json.loads(config.read_bytes())["base_model_name_or_path"])
    except (ValueError, KeyError, TypeError):
        raise ModelError(
            f"{config} does not say which model the adapter belongs to; save the adapter again"
        ) from None
    for base in (Path(named), directory / named):
        if base.is_dir():
            return base
    raise ModelError(
        f"the adapter in {directory} belongs to {named!r}, which is no local directory; nothing is fetched from a hub: "
        f"download the model, and put its path into {config}"
    )

"""A rehearsal of a fine-tuning: TRL's own SFTTrainer with the settings and the tokenizer of a training, and a model too small to matter."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coalmine.audits.survival.options import SftSettings
from coalmine.audits.survival.trainer import dataset_of, is_conversation, silent_datasets
from coalmine.errors import CoalmineError, InputError, MissingExtraError, ModelError
from coalmine.models.offline import offline
from coalmine.models.plugins import named_function
from coalmine.models.transformers.libraries import quiet
from coalmine.models.transformers.model_files import has_tokenizer
from coalmine.records.options import described
from coalmine.storage.directories import work_directory
from coalmine.storage.files import check_ordinary, read_bytes

# What else of an SFTConfig has to do with rows. Everything else is about how the model is trained.
_FURTHER = (
    "dataset_kwargs", "eos_token", "pad_token", "pad_to_multiple_of", "per_device_train_batch_size", "seed", "shuffle_dataset", "max_steps",
    "gradient_accumulation_steps", "num_train_epochs", "dataloader_drop_last",
)  # fmt: skip
# Fields of rows that TRL reads by themselves.
_ROWS = ("messages", "conversations", "prompt", "input_ids")


def read_settings(path: Path) -> dict[str, Any]:
    """The arguments of an SFTConfig in a JSON or YAML file, as far as they decide which tokens reach the loss."""
    content = read_bytes(path, "the settings of the training")
    try:
        import yaml  # type: ignore[import-untyped]

        found = yaml.safe_load(content)  # JSON is YAML too
    except ImportError:
        raise MissingExtraError("reading settings", "yaml", "trl") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise InputError(
            f"{path} is neither JSON nor YAML; write one setting per line, such as max_length: 1024"
        ) from None
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise InputError(
            f"{path} does not hold names with values; write one setting per line, such as max_length: 1024"
        )
    known = (*described(SftSettings), *_FURTHER)
    return {name: value for name, value in found.items() if name in known}


def trainer_of(where: str) -> Any:
    """The trainer that the user's function `python:module:function` makes; this runs that code."""
    with _quietly():
        made = named_function(where)()
    if not hasattr(made, "get_train_dataloader"):
        raise ModelError(
            f"{where} returned {type(made).__name__}, which is not a trainer; return the SFTTrainer or Trainer that you would train"
        )
    return made


@contextlib.contextmanager
def rehearsed(directory: Path, data: Any, settings: Mapping[str, Any]) -> Iterator[Any]:
    """An SFTTrainer that has prepared rows for training, with a tiny random model; its output directory is a temporary one.

    Args:
        directory: the directory of the model that is to be fine-tuned; its tokenizer is enough.
        data: the rows; see `check_survival`.
        settings: settings of `SftSettings` and further arguments of an SFTConfig, by name; TRL's defaults for others.
    """
    check_ordinary(settings.get("chat_template_path") or directory)
    if not directory.is_dir() or not has_tokenizer(directory):
        raise ModelError(
            f"{directory} is not the directory of a model with its tokenizer; give that of the model that is to be fine-tuned, or "
            "python:module:function that makes your trainer"
        )
    if find_spec("trl") is None:  # before what needs torch is imported
        raise MissingExtraError("a rehearsal of an SFTTrainer", "trl", "trl")
    from coalmine.models.transformers.pretrained import load_tokenizer

    with _quietly(), work_directory() as out:
        try:
            import trl
        except ImportError:
            raise MissingExtraError("a rehearsal of an SFTTrainer", "trl", "trl") from None
        its_own: Any = trl  # untyped
        tokenizer = load_tokenizer(directory)
        rows = dataset_of(data)
        _check(rows, tokenizer, settings, directory)
        chosen = {**settings, "max_length": settings.get("max_length", SftSettings().max_length) or None}
        with offline(), _in_one_sentence():
            arguments = its_own.SFTConfig(
                str(out), report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False, dataloader_pin_memory=False, **chosen
            )  # fmt: skip
            trainer = its_own.SFTTrainer(
                _stand_in(tokenizer), arguments, train_dataset=rows, processing_class=tokenizer
            )
        yield trainer


def _stand_in(tokenizer: Any) -> Any:
    """A model of the tokenizer's vocabulary, which is never trained."""
    import transformers

    its_own: Any = transformers  # untyped
    return its_own.LlamaForCausalLM(
        its_own.LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1
        )
    )  # fmt: skip


def _check(rows: Any, tokenizer: Any, settings: Mapping[str, Any], directory: Path) -> None:
    """Refuse what TRL would refuse, in one sentence each."""
    if len(rows) == 0:
        raise InputError("the corpus has no rows; give the one that is trained on")
    field = str(settings.get("dataset_text_field", SftSettings().dataset_text_field))
    if not {field, *_ROWS} & set(rows.column_names):
        names = ", ".join(sorted(rows.column_names)[:6])
        raise InputError(
            f"TRL does not read rows with the fields {names}; convert them to messages, or to prompt and completion, name the field of "
            "the text with --dataset-text-field, or give python:module:function that makes your trainer"
        )
    conversation = is_conversation(rows[0])
    has_template = tokenizer.chat_template or settings.get("chat_template_path")
    if conversation and not has_template:
        raise ModelError(
            f"the rows are conversations, and the tokenizer of {directory} has no chat template to write them with; save it with its "
            "template (chat_template.jinja), or give --chat-template-path"
        )


@contextlib.contextmanager
def _in_one_sentence() -> Iterator[None]:
    """Turn what TRL raises into one sentence; words of other code are left out, because they may quote the rows."""
    try:
        yield
    except CoalmineError:
        raise
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1].filename
        own = isinstance(problem, ValueError | RuntimeError | TypeError) and {"trl", "transformers"} & set(
            Path(last).parts
        )
        said = " ".join(str(problem).split()).split(". ")[0].rstrip(".") if own else type(problem).__name__
        raise ModelError(f"TRL refuses these rows or settings ({said}); change them") from problem


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Nothing of what TRL and the libraries below it would print: it may quote rows."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with quiet(), silent_datasets():
            yield
    finally:
        logging.disable(before)

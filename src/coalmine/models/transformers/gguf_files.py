"""GGUF files: a causal model and its tokenizer in one file, read through transformers into plain numbers. No code runs from one."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.errors import MissingExtraError, ModelError
from coalmine.models.devices import AUTO
from coalmine.models.offline import offline
from coalmine.models.transformers.building import no_larger_than
from coalmine.models.transformers.libraries import as_model_error, quiet
from coalmine.models.transformers.model_files import GGUF_PART, Held
from coalmine.models.transformers.placing import Placed
from coalmine.models.transformers.quantization import check_shapes
from coalmine.models.transformers.settings import check_settings

# Types of numbers that are not quantized, as torch names them.
_PLAIN = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
# Rules that cut texts into words as GPT-2's does, which is what transformers takes for a rule that it does not know, and rules that take
# each digit for a word before that: the same, if no token has a digit and something else.
_AS_GPT2 = ("gpt-2", "jais", "mpt", "olmo", "phi-2")
_DIGITS_APART = ("codeshell", "command-r", "exaone", "refact", "smollm", "starcoder")
_DIGIT = re.compile(r"\d")
# How positions are stretched for long texts: by how much each frequency is divided. It is not a weight, and transformers leaves it out.
_FREQUENCIES = "rope_freqs.weight"
_CONVERT = "use the checkpoint that it was converted from"


class GgufContent(NamedTuple):
    """What a GGUF file holds, from its header."""

    path: Path
    architecture: str
    # How many tensors there are of each type, and the numbers and bytes in all of them.
    types: dict[str, int]
    numbers: int
    size: int
    names: frozenset[str]
    # The rule by which a byte-level tokenizer cuts texts into words; None for other tokenizers.
    cut_by: str | None
    # What divides each frequency of the positions; None without such a tensor.
    frequencies: Any

    @property
    def held(self) -> Held:
        """The same as for other weight files."""
        return Held(self.names, frozenset(), self.numbers)

    @property
    def precision(self) -> str:
        """Its own precision; float32 for quantized numbers, which it holds as they are."""
        kinds = {_PLAIN.get(name) for name in self.types}
        most = max(self.types, key=lambda name: self.types[name])
        return "float32" if None in kinds else _PLAIN[most]

    def described(self) -> dict[str, Any]:
        """What the description of a model has under "quantization"."""
        bits = round(8 * self.size / self.numbers, 2)
        return {"method": "gguf", "bits": bits, "types": self.types, "dequantized": True}


def read_gguf(path: Path) -> GgufContent:
    """What a file holds; a ModelError if it is damaged or of an architecture that transformers does not read from GGUF."""
    if find_spec("gguf") is None:
        raise MissingExtraError("a GGUF checkpoint", "gguf", "quantized")
    if GGUF_PART.search(path.name):
        raise ModelError(
            f"{path} is a part of a model that is split into several files, and only whole ones are read; join them (gguf-split --merge)"
        )
    with as_model_error(f"{path} is not a whole GGUF file", "copy it again"):
        from gguf import GGUFReader

        reader = GGUFReader(path)
        tensors = reader.tensors
        byte_level = _text_in(reader, "tokenizer.ggml.model") == "gpt2"
        content = GgufContent(
            path,
            _text_in(reader, "general.architecture"),
            dict(Counter(one.tensor_type.name for one in tensors).most_common()),
            sum(int(one.n_elements) for one in tensors if one.name != _FREQUENCIES),
            sum(int(one.n_bytes) for one in tensors if one.name != _FREQUENCIES),
            frozenset(str(one.name) for one in tensors),
            _text_in(reader, "tokenizer.ggml.pre") if byte_level else None,
            next((one.data.copy() for one in tensors if one.name == _FREQUENCIES), None),
        )
    if not content.numbers:
        raise ModelError(f"{path} holds no tensors; copy it again")
    if not _is_known(content.architecture):
        raise ModelError(
            f"{path} holds a model of the architecture {content.architecture!r}, which transformers does not read from GGUF; {_CONVERT}"
        )
    return content


def _text_in(reader: Any, name: str) -> str:
    field = reader.get_field(name)
    return "" if field is None else str(field.contents())


def _is_known(architecture: str) -> bool:
    with quiet():
        from transformers.integrations.gguf.gguf_config_mapping import GGUF_CONFIG_ARCHS
        from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES as READ

    # The reader finds some under a similar name.
    similar = architecture.replace("-", "_").replace("moe", "_moe")
    return architecture in GGUF_CONFIG_ARCHS or architecture in READ or similar in READ


def load_gguf_model(content: GgufContent, auto_class: Any, kind: str, precision: str, placed: Placed) -> Any:
    """The model in a GGUF file, with all its weights as plain numbers."""
    import torch
    from transformers import AutoConfig, GgufConfig

    cannot = f"{content.path} cannot be loaded as {kind}"
    with offline(), quiet(), _alone(content.path) as place:
        with as_model_error(cannot, _CONVERT):
            config = AutoConfig.from_pretrained(**place)
            described = json.loads(config.to_json_string(use_diff=False))
        check_settings(content.path, described, content.held)
        if described.get("is_encoder_decoder"):
            raise ModelError(f"{cannot}, because it reads a source and writes a target; {_CONVERT}")
        with (
            as_model_error(cannot, _CONVERT),
            no_larger_than(content.held, str(content.path), outlines_only=True),
            contextlib.redirect_stderr(io.StringIO()),  # for a progress bar that has no switch
        ):
            model, loading = auto_class.from_pretrained(
                **place,
                config=config,
                dtype=getattr(torch, content.precision if precision == AUTO else precision),
                quantization_config=GgufConfig(dequantize=True),
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **placed.options(quantized=False),
            )
    _check_all_used(content, cannot, model, loading)
    if content.frequencies is not None:
        _stretch(content, model)
    return model


def load_gguf_tokenizer(content: GgufContent, config: Any = None) -> Any:
    """The tokenizer in a GGUF file, as transformers reads it; with the config of its model, the header need not be read again."""
    from transformers import AutoTokenizer

    path = content.path
    with (
        offline(),
        quiet(),
        _alone(path) as place,
        as_model_error(f"the tokenizer of {path} cannot be loaded", _CONVERT),
    ):
        tokenizer = AutoTokenizer.from_pretrained(**place, config=config)
        from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS as KNOWN

        tokens: set[str] = set(tokenizer.get_vocab()) - set(tokenizer.get_added_vocab())
    by_digits = content.cut_by in _DIGITS_APART and not any(
        len(one) > 1 and _DIGIT.search(one) for one in tokens
    )
    if content.cut_by is not None and content.cut_by not in (*KNOWN, *_AS_GPT2) and not by_digits:
        raise ModelError(
            f"{path} cuts texts into words by the rule {content.cut_by!r}, which transformers does not have, so that tokens would be "
            f"others than in training; {_CONVERT}"
        )
    return tokenizer


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[dict[str, Any]]:
    """What makes transformers read this file and nothing beside it: an empty directory, and the file's full path."""
    with tempfile.TemporaryDirectory() as empty:
        yield {
            "pretrained_model_name_or_path": empty,
            "gguf_file": str(path.absolute()),
            "local_files_only": True,
            "trust_remote_code": False,
        }


def _check_all_used(content: GgufContent, cannot: str, model: Any, loading: dict[str, Any]) -> None:
    """Refuse weights that are missing, of another shape or left out: transformers leaves out those whose names it does not know."""
    missing = set(loading["missing_keys"])
    if missing:
        raise ModelError(f"{cannot} (its weights have no {min(missing)}); {_CONVERT}")
    check_shapes(cannot, model)
    unused = content.numbers - sum(one.numel() for one in model.parameters())
    if unused or loading["unexpected_keys"]:
        raise ModelError(
            f"{cannot} ({abs(unused):,} of its {content.numbers:,} numbers would not be used); {_CONVERT}"
        )


def _stretch(content: GgufContent, model: Any) -> None:
    """Divide the frequencies of positions by what the file says, as the programs do that read GGUF by themselves."""
    import torch

    factors = torch.from_numpy(content.frequencies)
    found = [one for one in model.modules() if isinstance(getattr(one, "inv_freq", None), torch.Tensor)]
    if len(found) != 1 or found[0].inv_freq.shape != factors.shape:
        raise ModelError(
            f"{content.path} holds {_FREQUENCIES}, which says how positions are stretched, and transformers has no place for it in this "
            f"model; {_CONVERT}"
        )
    for name in ("inv_freq", "original_inv_freq"):
        own = getattr(found[0], name, None)
        if isinstance(own, torch.Tensor):
            own.div_(factors.to(own))

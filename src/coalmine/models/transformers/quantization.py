"""Checkpoints whose weights are quantized: how, which library reads them, and what their arithmetic allows."""

from __future__ import annotations

import copy
import logging
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.errors import MissingExtraError, ModelError
from coalmine.models.devices import AUTO
from coalmine.models.offline import offline
from coalmine.models.transformers.libraries import as_model_error, quiet
from coalmine.models.transformers.model_files import Held
from coalmine.models.transformers.name_patterns import LONGEST, is_bounded

SETTING = "quantization_config"
BITSANDBYTES = "bitsandbytes"
# What PEFT puts into the names of weights that it wraps.
_RENAMED = re.compile(r"\.(base_layer|original_module)(?=\.)")
_DEQUANTIZE = "dequantize the model, and save it again"


class _Method(NamedTuple):
    """How transformers reads the weights of one method."""

    # The modules that it imports; none for what transformers reads by itself.
    libraries: tuple[str, ...] = ()
    bits: int | None = None
    # The class of transformers that says to dequantize while loading: the kernels for this method would be fetched from a hub.
    unpacked_by: str | None = None


_METHODS = {
    BITSANDBYTES: _Method(("bitsandbytes",)),
    "gptq": _Method(("optimum", "gptqmodel")),
    "awq": _Method(("gptqmodel",)),
    "compressed-tensors": _Method(("compressed_tensors",)),
    "torchao": _Method(("torchao",)),
    "fp8": _Method(bits=8, unpacked_by="FineGrainedFP8Config"),
    "mxfp4": _Method(bits=4, unpacked_by="Mxfp4Config"),
}
# Of the libraries above, those that an extra installs.
_EXTRAS = {"bitsandbytes": "quantized"}


class StoredWeights(NamedTuple):
    """How the weights of a checkpoint are quantized, for the record of a run."""

    method: str
    # Of a weight; None where a config does not say.
    bits: int | None
    # The kind of numbers, where a method has several.
    type: str | None = None
    # The precision of products with these weights, where a config sets one: a name of torch, or int8.
    computed_in: str | None = None
    # The class of transformers that dequantizes while loading; None where the weights stay as they are.
    unpacked_by: str | None = None

    def described(self) -> dict[str, Any]:
        """What the description of a model has under "quantization"."""
        facts = {"method": self.method, "bits": self.bits, "type": self.type}
        unpacked = {} if self.unpacked_by is None else {"dequantized": True}
        return {name: value for name, value in facts.items() if value is not None} | unpacked

    def options(self) -> dict[str, Any]:
        """What `from_pretrained` is given besides."""
        if self.unpacked_by is None:
            return {}
        import transformers

        return {SETTING: getattr(transformers, self.unpacked_by)(dequantize=True)}


def quantization_in(path: Path, document: dict[str, Any]) -> StoredWeights | None:
    """How the weights that a config.json describes are quantized; a ModelError if nothing here can read them."""
    setting = document.get(SETTING)
    if not setting:
        return None
    if not isinstance(setting, dict):
        raise ModelError(f"{path} must say in an object how the weights are quantized; save the model again")
    found = quantization_of(setting)
    if found.method == BITSANDBYTES and not (setting.get("load_in_4bit") or setting.get("load_in_8bit")):
        raise ModelError(
            f"{path} says that the weights are quantized by {found.method}, and not whether to 4 or 8 bits; save the model again"
        )
    if found.method not in _METHODS:
        raise ModelError(
            f"{path} says that the weights are quantized by {found.method!r}, which cannot be read here; {_DEQUANTIZE}"
        )
    _check_patterns(path, setting)
    for library in _METHODS[found.method].libraries:
        if find_spec(library) is None:
            if library in _EXTRAS:
                raise MissingExtraError(
                    f"a checkpoint quantized by {found.method}", library, _EXTRAS[library]
                )
            raise ModelError(
                f"{path} says that the weights are quantized by {found.method}, which the package {library} reads, and it is not "
                f"installed; install it, or {_DEQUANTIZE}"
            )
    if found.method == BITSANDBYTES:
        _import_bitsandbytes()
    return found


class ImportedFirst:
    """The first attribute of a model that is sent to other processes, which import bitsandbytes there as loading does here.

    PEFT imports it too, wherever it is installed.
    """

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return imported_first, ()


def imported_first() -> ImportedFirst:
    """Import bitsandbytes if it is there, without a connection or a line of its log."""
    if find_spec(BITSANDBYTES) is not None:
        _import_bitsandbytes()
    return ImportedFirst()


def _import_bitsandbytes() -> None:
    """Import the library while no connection can be opened: on some processors it would fetch code from a hub."""
    # It would write a line for each product of 8-bit weights.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    with offline(), quiet(), as_model_error("bitsandbytes cannot be imported", "install it again"):
        import bitsandbytes  # noqa: F401


def check_precision(path: Path, quantization: StoredWeights, own: str, chosen: str) -> None:
    """Refuse a precision that quantized weights do not have."""
    if chosen not in {AUTO, own}:
        raise ModelError(
            f"{path} says that the weights are quantized by {quantization.method}, so they are used as they are, next to others in {own}, "
            f"and not in {chosen}; leave out --precision, or dequantize the model and save it again"
        )


def own_precision(config: dict[str, Any], held: Held, quantization: StoredWeights | None) -> str:
    """The precision of a checkpoint: that of most of its numbers, or, where weights are quantized, what its config says of the others."""
    if quantization is not None:
        said = str(config.get("dtype", config.get("torch_dtype"))).removeprefix("torch.")
        if said in {"float32", "bfloat16", "float16"}:
            return said
    return held.precision or "float32"


def quantization_of(setting: dict[str, Any]) -> StoredWeights:
    """How weights are quantized, from the `quantization_config` of a config.

    >>> quantization_of({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}).described()
    {'method': 'bitsandbytes', 'bits': 4, 'type': 'nf4'}
    """
    four, eight = bool(setting.get("load_in_4bit")), bool(setting.get("load_in_8bit"))
    method = BITSANDBYTES if four or eight else _value(setting.get("quant_method"))
    if method == BITSANDBYTES:
        if eight and not four:
            # Products are of whole numbers of 8 bits, and of float16 where one is large.
            return StoredWeights(method, 8, "int8", "int8")
        return StoredWeights(
            method,
            4,
            _value(setting.get("bnb_4bit_quant_type", "fp4")),
            _value(setting.get("bnb_4bit_compute_dtype", "float32")).removeprefix("torch."),
        )
    known = _METHODS.get(method, _Method())
    kind = setting.get("version", setting.get("quant_type"))
    said = setting.get("bits", setting.get("w_bit", _bits_of_groups(setting)))
    bits = said if isinstance(said, int) and not isinstance(said, bool) else known.bits
    return StoredWeights(method, bits, kind if isinstance(kind, str) else None, unpacked_by=known.unpacked_by)


def check_quantized(directory: Path, model: Any, quantization: StoredWeights) -> None:
    """Refuse dequantized weights, and those of bitsandbytes, that are not what the config says: transformers takes what is there."""
    if quantization.unpacked_by is not None:
        check_shapes(f"{directory} cannot be loaded", model)
    if quantization.method != BITSANDBYTES:
        return
    layers = [
        (name, one)
        for name, one in model.named_modules()
        if type(one).__module__.startswith(f"{BITSANDBYTES}.")
    ]
    if not layers:
        raise ModelError(
            f"{directory} holds no weights that are quantized by {quantization.method}, and its config says that there are; save the model "
            "again"
        )
    for name, layer in layers:
        weight = layer.weight
        state = getattr(weight, "quant_state", None)
        shape = tuple(weight.shape) if quantization.bits == 8 else tuple(getattr(state, "shape", ()))
        scaled = state is not None or getattr(weight, "SCB", None) is not None
        if weight.is_meta or (scaled and shape == (layer.out_features, layer.in_features)):
            continue
        raise ModelError(
            f"{directory} holds {name}.weight in another form or shape than its config describes, which is {quantization.bits} bits of "
            f"{quantization.method}; save the model again"
        )


def as_stored(model: Any) -> None:
    """Compute with 4-bit weights as they are stored, in the precision of their config.

    On some processors bitsandbytes rearranges them in place when a model is first read in evaluation mode, computes in bfloat16 from then
    on, and gives no gradients if the model is then trained on.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def quantized_part(network: Any) -> Any | None:
    """The model of transformers in a network that says that its weights are quantized."""
    said = [one for one in network.modules() if getattr(getattr(one, "config", None), SETTING, None)]
    if not said:
        return None
    from transformers import PreTrainedModel

    return next((one for one in said if isinstance(one, PreTrainedModel)), None)


def quantization_of_live(model: Any) -> StoredWeights:
    """How the weights of a quantized model in memory are stored."""
    setting = getattr(model.config, SETTING)
    return quantization_of(setting if isinstance(setting, dict) else setting.to_dict())


def parameters_in(network: Any) -> int:
    """The number of parameters of a network: packed weights count as what they stand for."""
    model = quantized_part(network)
    if model is None:
        return sum(one.numel() for one in network.parameters())
    outline = _outline_of(model)
    # Adapters are put into the model, and rename what they are put on.
    names = {name for name, _ in outline.named_parameters(remove_duplicate=False)}
    own = {id(one) for name, one in model.named_parameters() if _RENAMED.sub("", name) in names}
    added = [one for one in network.parameters() if id(one) not in own]
    return sum(int(one.numel()) for one in (*added, *outline.parameters()))


def check_shapes(cannot: str, model: Any) -> None:
    """Refuse dequantized weights of other shapes than their config describes: transformers takes whatever shape they have."""
    shapes = {name: tuple(one.shape) for name, one in _outline_of(model).named_parameters()}
    for name, weight in model.named_parameters():
        if tuple(weight.shape) != shapes.get(name):
            raise ModelError(
                f"{cannot} (its weights have {name} in another shape than its settings describe); save the model again"
            )


def _outline_of(model: Any) -> Any:
    """The network that a model's config describes, without numbers and without its quantization."""
    import torch

    config = copy.deepcopy(model.config)
    if hasattr(config, SETTING):
        delattr(config, SETTING)
    with torch.device("meta"):
        outline = type(model)(config)
    outline.tie_weights()
    return outline


def _value(said: Any) -> str:
    """A setting that may be an enumeration of transformers or a data type of torch."""
    return str(getattr(said, "value", said))


def _bits_of_groups(setting: dict[str, Any]) -> int | None:
    """The bits of compressed-tensors, if all groups of layers have the same."""
    groups = setting.get("config_groups")
    weights = (
        [one.get("weights") for one in groups.values() if isinstance(one, dict)]
        if isinstance(groups, dict)
        else []
    )
    found = {one.get("num_bits") for one in weights if isinstance(one, dict)}
    return found.pop() if len(found) == 1 else None


def _check_patterns(path: Path, setting: dict[str, Any]) -> None:
    """Refuse names of layers that libraries match as regular expressions, and might never finish to match."""
    waiting: list[Any] = list(setting.values())
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, str) and _may_take_forever(one.removeprefix("re:")):
            raise ModelError(
                f"{path} has a name of layers of {len(one):,} characters in {SETTING} that may take forever to match; save the model again"
            )


def _may_take_forever(pattern: str) -> bool:
    if len(pattern) > LONGEST:
        return True
    try:
        flags = re.compile(pattern).flags
    except (re.error, OverflowError, RecursionError, ValueError):
        return False  # nothing can match it, and libraries say so
    return bool(flags & re.VERBOSE) or not is_bounded(pattern)

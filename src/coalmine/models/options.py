"""What can be chosen about loading a model: `LoadOptions`, which `load_model` takes and commands fill."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec

from coalmine.errors import InputError
from coalmine.models.devices import AUTO, read_device_map
from coalmine.records.options import Option, Options

Kind = Literal["auto", "causal", "pairs", "masked"]
PRECISIONS = ("auto", "float32", "float64", "bfloat16", "float16")


class LoadOptions(Options, frozen=True, kw_only=True):
    """How a model is loaded.

    Attributes:
        kind: how to use a transformers checkpoint whose config leaves a choice: "auto", "causal", "pairs" or "masked". T5 is a model
            of pairs, and with "masked" one that fills gaps.
        device: where it runs: "auto" (the first of cuda, mps, xpu and cpu that this machine has), or a name such as "cpu" or "cuda:1".
        device_map: how a causal transformers checkpoint is spread over several devices: "auto", or a JSON object (or a file that holds
            one) of module names and devices. None for one device.
        precision: "auto" (that of the checkpoint's own weights), "float32", "float64" (scores agree to about 1e-9 bits whatever the
            batch, at about twice the cost), "bfloat16" or "float16" (half the memory; ranks are coarser).
        context: what a text is scored after, for causal models: "auto" (what came before each document in the usual preparation: BOS,
            or end of text where there is no BOS), "bos", "eot" or "none".
        context_text: a text that comes after that context.

    >>> LoadOptions(precision="float64").device
    'auto'
    """

    kind: Annotated[
        Kind,
        Option("What a transformers checkpoint is used as: auto, causal, pairs or masked (T5 can be both)."),
    ] = "auto"
    device: Annotated[
        str, Option("Where the model runs, such as cpu or cuda:1; auto takes cuda, mps, xpu or cpu.")
    ] = "auto"
    device_map: Annotated[
        str | None,
        Option(
            "Spread a causal checkpoint over several devices: auto, or JSON of module names and devices, also in a file."
        ),
    ] = None
    precision: Annotated[
        str,
        Option(
            "auto (the checkpoint's own), float32, float64 for ranks that no rounding can move, bfloat16 or float16."
        ),
    ] = "auto"
    context: Annotated[
        str,
        Option(
            "What a text is scored after, for causal models: auto (BOS, or end of text), bos, eot or none; docs/guides/models.md."
        ),
    ] = "auto"
    context_text: Annotated[str | None, Option("A text that comes after context, before each text.")] = None

    def check(self) -> None:
        """Reject values that no model takes."""
        from coalmine.models.contexts import check_choice

        if self.kind not in get_args(Kind):
            raise InputError(f"a model is used as one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        if self.precision not in PRECISIONS:
            raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        if self.device_map is not None:
            read_device_map(self.device_map)
            if self.device != AUTO:
                raise InputError(
                    f"a device map says where each layer runs, and the device {self.device!r} was given too; give one of the two"
                )
        check_choice(self.context, self.context_text)

    def changed(self) -> dict[str, Any]:
        """The options that are not the defaults, by name."""
        usual = LoadOptions()
        return {
            name: value
            for name, value in msgspec.structs.asdict(self).items()
            if value != getattr(usual, name)
        }

    @property
    def chooses_context(self) -> bool:
        """Whether another context than that of the training was chosen."""
        return (self.context, self.context_text) != ("auto", None)

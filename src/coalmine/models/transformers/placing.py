"""Where the weights of a transformers checkpoint go while they are read, and where its inputs and outputs are then."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from coalmine.models.devices import check_places, read_device_map, usable_device


class Placed(NamedTuple):
    """A device, or a map of modules to several."""

    device: str
    map: str | dict[str, int | str] | None = None

    def options(self, *, quantized: bool) -> dict[str, Any]:
        """What `from_pretrained` is given."""
        if self.map is not None:
            return {"device_map": self.map}
        # In main memory, weights are used where their file is mapped; libraries of quantized ones choose a device unless one is named.
        return {} if self.device == "cpu" and not quantized else {"device_map": {"": self.device}}


def places_of(device: str, precision: str, device_map: str | None) -> Placed:
    """Where to load a model to; a ModelError if this machine does not have the device."""
    if device_map is None:
        return Placed(usable_device(device, precision))
    spread = read_device_map(device_map)
    if isinstance(spread, dict):
        check_places(spread)
    return Placed("cpu", spread)


def spread_over(model: Any) -> dict[str, Any]:
    """What the record of a run has of a model on several devices: all of them, and which modules are on which."""
    places = {name: _name(place) for name, place in (getattr(model, "hf_device_map", None) or {}).items()}
    if not hasattr(model, "_hf_hook") or not places:
        return {}
    return {"device": ", ".join(dict.fromkeys(places.values())), "device_map": places}


def _name(place: Any) -> str:
    return f"cuda:{place}" if isinstance(place, int) else str(place)


def device_of(module: Any) -> torch.device:
    """Where a module computes: where its weights are, or where accelerate brings them and its inputs to."""
    hook = getattr(module, "_hf_hook", None)
    for one in getattr(hook, "hooks", (hook,)):
        if (place := getattr(one, "execution_device", None)) is not None:
            return torch.device(_name(place))
    weights = next(module.parameters(), None)
    return torch.device("cpu") if weights is None else weights.device

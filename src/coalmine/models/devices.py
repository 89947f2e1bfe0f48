"""Where a model runs: the device that "auto" takes, checks of a named one, and maps of layers to several devices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coalmine.errors import CoalmineError, InputError, ModelError
from coalmine.storage.decoding import UndecodableError, decode_python_json
from coalmine.storage.files import read_text

AUTO = "auto"
# Ways of accelerate to spread the layers of a model over the devices of this machine.
SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")
# Where a map may put a layer besides an accelerator.
_OTHER_PLACES = ("cpu", "disk")


def usable_device(device: str, precision: str = AUTO) -> str:
    """The device to load a model onto: the named one if this machine has it, and for "auto" the first of cuda, mps, xpu and cpu.

    A device that cannot hold numbers of the precision is not taken for "auto".

    >>> usable_device("cpu")
    'cpu'
    """
    import torch

    if device == AUTO:
        return _first_there(precision)
    try:
        place = torch.device(device)
        torch.zeros(1, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        # A build without the device raises an AssertionError.
        first_line = str(problem).splitlines()[0].rstrip(".")
        raise ModelError(
            f"the model cannot be put on {device!r} ({first_line}); use another device, such as cpu, or auto for one that is there"
        ) from None
    if place.type == "meta":
        raise ModelError(
            "the model cannot be put on 'meta', which holds no numbers; use another device, such as cpu"
        )
    return device


def _first_there(precision: str) -> str:
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available() and precision != "float64":  # which mps does not have
        return "mps"
    if torch.xpu.is_available():
        return "xpu"
    return "cpu"


def read_device_map(given: str | Mapping[str, int | str]) -> str | dict[str, int | str]:
    """A way to spread layers, or a map of modules to devices: as it is, as JSON, or the name of a file that holds it.

    >>> read_device_map('{"model.layers.0": 0, "": "cpu"}')
    {'model.layers.0': 0, '': 'cpu'}
    """
    if isinstance(given, Mapping):
        given = json.dumps(dict(given), default=str)  # a torch.device is its name
    if given in SPREADS:
        return given
    text, where = given, "the device map"
    if not given.lstrip().startswith("{"):
        path = Path(given)
        try:
            text, where = read_text(path, "the device map"), str(path)
        except CoalmineError:
            raise InputError(
                f"a device map is one of {', '.join(SPREADS)}, a JSON object or the name of a file that holds one, got {given!r}"
            ) from None
    try:
        found = decode_python_json(text.encode())
    except UndecodableError as problem:
        raise InputError(
            f"{where} is not valid JSON ({problem}); write an object of module names and devices"
        ) from None
    if not isinstance(found, dict) or not found or not all(_is_place(place) for place in found.values()):
        raise InputError(
            f"{where} must be a JSON object that maps names of modules to devices, such as "
            f"{json.dumps({'model.embed_tokens': 0, 'model.layers': 1, '': 'cpu'})}"
        )
    return found


def check_places(devices: dict[str, int | str]) -> None:
    """Refuse a map to a device that this machine does not have, before anything is loaded."""
    for place in dict.fromkeys(devices.values()):
        if place not in _OTHER_PLACES:
            usable_device(f"cuda:{place}" if isinstance(place, int) else place)


def _is_place(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)

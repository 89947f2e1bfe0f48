"""Numbers as an earlier version gave them, kept in a file beside the tests that make them again.

Two reports are compared across versions, so the same scores must give the same numbers; the tests beside these say whether the
numbers are right. Where one changes for a reason, run the tests with COALMINE_RECORD=1, which writes what they find, and read
what changed before it is committed.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np


def plain(value: Any) -> Any:
    """What JSON can hold of a result: structs and named tuples by their names, arrays as lists."""
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return {name: plain(one) for name, one in fields.items() if one is not msgspec.UNSET}
    if hasattr(value, "_asdict"):
        return {name: plain(one) for name, one in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.10g}") if math.isfinite(value) else str(value)
    return value


def assert_as_recorded(file: Path, name: str, value: Any, *, within: float = 1e-7) -> None:
    """Compare a result with the one in `file`: texts and whole numbers exactly, other numbers up to `within`."""
    found = plain(value)
    kept = json.loads(file.read_text("utf-8")) if file.exists() else {}
    if os.environ.get("COALMINE_RECORD"):
        kept[name] = found
        lines = ",\n".join(
            f"{json.dumps(key)}: {json.dumps(kept[key], ensure_ascii=False)}" for key in sorted(kept)
        )
        file.write_text("{\n" + lines + "\n}\n", "utf-8")
    differences = list(_differences(kept[name], found, within, ""))
    assert not differences, "\n".join(differences)


def _differences(kept: Any, found: Any, within: float, place: str):
    if isinstance(kept, dict) and isinstance(found, dict) and kept.keys() == found.keys():
        for name in kept:
            yield from _differences(kept[name], found[name], within, f"{place}.{name}")
    elif isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        for number, (one, other) in enumerate(zip(kept, found, strict=True)):
            yield from _differences(one, other, within, f"{place}[{number}]")
    elif isinstance(kept, float) and isinstance(found, int | float):
        if not math.isclose(kept, found, rel_tol=within, abs_tol=within * 1e-3):
            yield f"{place}: {kept} was recorded, got {found}"
    elif kept != found or type(kept) is not type(found):
        yield f"{place}: {kept!r} was recorded, got {found!r}"

"""What is meant where an option is left out is the same wherever it can be left out."""

import functools
import importlib
import inspect
import pkgutil

import msgspec
import pytest

import coalmine
from coalmine.records.options import Options

# In audits as on the command line; bounds on epsilon by themselves are for pure differential privacy.
DEFAULTS = {
    "confidence": {0.95},
    "seed": {0},
    "copies": {1},
    "inclusion": {0.5},
    "delta": {0.0, 1e-5, 1e-9},  # 1e-9 in private training, as in the paper
    "bootstraps": {200},
    "replace": {True},
    "given": {""},
    "memory": {1_024_000_000},
    "memory_bytes": {1 << 30},
    "batch": {2048},
    "minutes": {2.0, 30.0},  # of expose and of an audit of everything
    "budget": {50_000, 1_000_000},  # of expose and of extract
    "top": {10},
    "every": {100},
    "suffix": {50},
    "per_bucket": {1_000},
    "temperature": {1.0},
    "hidden_share": {0.15},
    "equal_within": {0.02},
    "choosing_share": {0.2},
    "comparisons": {True},
    "greedy_only": {False},
    "anywhere": {False},
    "trained_apart": {False},
    "reveal": {False},
}
ROOMS = ("audits", "formats", "models", "reports", "search", "statistics")


@functools.cache
def defaults():
    """What each parameter of a function, and each field of a record of options, means where it is left out, by its name and place."""
    found = {}
    for module in pkgutil.walk_packages(coalmine.__path__, "coalmine."):
        if module.name.split(".")[1] not in ROOMS:
            continue
        for one in vars(importlib.import_module(module.name)).values():
            if getattr(one, "__module__", None) != module.name:
                continue
            if inspect.isclass(one) and issubclass(one, Options):
                for field in msgspec.structs.fields(one):
                    found.setdefault(field.name, {})[f"{module.name}.{one.__qualname__}"] = field.default
            for function in (one, *(vars(one).values() if inspect.isclass(one) else ())):
                if inspect.isfunction(function):
                    for name, parameter in inspect.signature(function).parameters.items():
                        found.setdefault(name, {})[f"{module.name}.{function.__qualname__}"] = (
                            parameter.default
                        )
    return found


@pytest.mark.parametrize("name", DEFAULTS)
def test_an_option_that_is_left_out_means_the_same_everywhere(name):
    none = (None, inspect.Parameter.empty, msgspec.NODEFAULT)
    found = {place: value for place, value in defaults()[name].items() if value not in none}
    assert found
    assert {place: value for place, value in found.items() if value not in DEFAULTS[name]} == {}

"""What is meant where an option is left out is the same wherever it can be left out."""

import functools
import importlib
import inspect
import pkgutil

import pytest

import coalmine

# In audits as on the command line; bounds on epsilon by themselves are for pure differential privacy.
DEFAULTS = {
    "confidence": {0.95},
    "seed": {0},
    "copies": {1},
    "inclusion": {0.5},
    "delta": {0.0, 1e-5},
    "bootstraps": {200},
    "replace": {True},
    "given": {""},
    "memory": {1 << 30},
    "memory_bytes": {1 << 30},
    "batch": {2048},
    "minutes": {2.0},
    "budget": {50_000, 1_000_000},  # of expose and of extract
    "top": {10},
    "every": {100},
    "suffix": {50},
    "each": {1_000},
    "temperature": {1.0},
    "hidden_share": {0.15},
    "equal_within": {0.02},
    "choosing_share": {0.2},
    "gaussian": {False},
    "comparisons": {True},
    "greedy_only": {False},
    "anywhere": {False},
    "higher_is_better": {False},
    "trained_apart": {False},
    "accept_unproven": {False},
    "reveal": {False},
}
ROOMS = ("audits", "formats", "models", "reports", "search", "statistics")


@functools.cache
def functions():
    """Every function and method of the rooms that measure."""
    found = []
    for module in pkgutil.walk_packages(coalmine.__path__, "coalmine."):
        if module.name.split(".")[1] in ROOMS:
            for one in vars(importlib.import_module(module.name)).values():
                if getattr(one, "__module__", None) == module.name:
                    found += [one, *(vars(one).values() if inspect.isclass(one) else ())]
    return [one for one in found if inspect.isfunction(one)]


@pytest.mark.parametrize("name", DEFAULTS)
def test_an_option_that_is_left_out_means_the_same_everywhere(name):
    found = {}
    for function in functions():
        parameter = inspect.signature(function).parameters.get(name)
        if (
            parameter is not None
            and parameter.default is not parameter.empty
            and parameter.default is not None
        ):
            found[f"{function.__module__}.{function.__qualname__}"] = parameter.default
    assert found
    assert {where: value for where, value in found.items() if value not in DEFAULTS[name]} == {}

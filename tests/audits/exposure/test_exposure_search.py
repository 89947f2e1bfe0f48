"""Bounded, guided and auto: proven where they say so, honest where the budget ends, and never starting over."""

import math
import os
import signal

import numpy as np
import pytest
import torch

from coalmine import CanarySet, Format, ScriptedModel, expose
from coalmine.audits.exposure.results import RESULTS_FILE
from models.random_networks import random_model
from oracles import brute_force_ranks
from waiting import wait_until

DIGITS = "0123456789"


def canaries_of(form, number=6, seed=1):
    return CanarySet.of(form, form.sample(number, seed, replace=False), references=20, seed=seed)


@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_bounded_ranks_equal_brute_force(architecture):
    model = random_model(architecture, dtype=torch.float64)
    form = Format("pin {digits:3}")
    canaries = canaries_of(form)
    results = expose(model, canaries, method="bounded")
    assert [result.rank for result in results] == brute_force_ranks(model, form, [c.text for c in canaries])
    assert {result.estimate.confidence for result in results} == {None}


@pytest.mark.parametrize("budget", [1, 50, 10_000])
def test_guided_estimates_contain_the_truth(budget):
    model = random_model("lstm", dtype=torch.float64)
    form = Format("pin {digits:4}")
    canaries = canaries_of(form, number=12)
    truth = expose(model, canaries, method="exact")
    results = expose(model, canaries, method="guided", samples=3000, budget=budget)
    for guided, exact in zip(results, truth, strict=True):
        assert guided.interval[0] - 1e-9 <= exact.exposure <= guided.interval[1] + 1e-9
        assert guided.canary_id == exact.canary_id
    if budget == 10_000:
        assert [result.rank for result in results] == [result.rank for result in truth]


def test_draws_of_a_canary_itself_do_not_count_it_twice():
    # One canary that nearly every draw hits, and that is known to be a member without any draw.
    form = Format("{digits:4}")
    canaries = canaries_of(form, number=1)
    model = ScriptedModel(DIGITS, memory={canaries[0].text: 0.9}, frequencies={"1": 2})
    (result,) = expose(model, canaries, method="guided", samples=200, budget=1)
    assert result.exposure == pytest.approx(math.log2(10_000))


def test_auto_proves_what_it_can_and_estimates_the_rest():
    form = Format("{digits:5}")
    canaries = canaries_of(form)
    model = ScriptedModel(DIGITS, memory={canaries[0].text: 0.25}, frequencies={"3": 2, "5": 3})
    results = expose(model, canaries, budget=300, minutes=1e-6)
    assert results[0].method == "bounded"
    assert results[0].rank == 1
    assert {result.method for result in results[1:]} == {"guided"}
    assert all(result.estimate.effective_n is not None for result in results[1:])
    assert "would take more than" in results.formats[0].why or "too many" in results.formats[0].why


@pytest.mark.parametrize(
    ("method", "number", "done"),
    [
        ("bounded", signal.SIGINT, 1_000),
        ("exact", signal.SIGKILL, 40),
    ],
)
def test_a_stopped_search_goes_on_where_it_was_and_ends_with_the_same_bytes(
    method, number, done, fork_server, tmp_path
):
    """Stopped when so many nodes were expanded (bounded), or so many units finished (all)."""

    def start(place):
        return fork_server.start([place, method], call="audits.exposure.stopped_search:main")

    def finish(place):
        ended = fork_server.wait(start(place))
        assert ended.code == 0, ended.err

    finish(tmp_path / "whole")
    parts = tmp_path / "parts"

    def proven():
        if method == "exact":
            units = parts / "unfinished.units"
            return (
                units.read_bytes().count(b"PK\x05\x06") if units.exists() else 0
            )  # each result is an archive
        try:
            with np.load(next(parts.glob("unfinished-*.npz"))) as kept:
                return int(kept["counters"][0])
        except (StopIteration, FileNotFoundError):
            return 0

    child = start(parts)
    wait_until(lambda: proven() >= done)
    os.kill(child.pid, number)
    fork_server.wait(child)
    assert proven() >= done, "the search ended before it could be stopped"
    finish(parts)
    # The number of expansions is in the file: no node is expanded twice.
    assert (parts / RESULTS_FILE).read_bytes() == (tmp_path / "whole" / RESULTS_FILE).read_bytes()
    assert not list(parts.glob("unfinished*"))

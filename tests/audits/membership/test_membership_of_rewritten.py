"""Membership where the planted corpus was deduplicated before training: the coin and the planned copies still decide."""

import msgspec

from audits.membership.test_membership import model_with_memory, planted_set
from coalmine import CanarySet, expose, membership
from coalmine.audits.membership.sources import load_source, populations


def rewritten(canaries, left):
    """The same set, with as many copies of each planted canary as `left` says."""
    return CanarySet(
        [msgspec.structs.replace(c, counted=left(c) if c.planted else 0) for c in canaries],
        canaries.formats,
        references=canaries.references,
        withhold=canaries.withhold,
    )


def test_groups_are_those_of_the_coins_whatever_is_left_of_the_copies():
    canaries = planted_set(repetitions=(1, 8), each=30)
    after = rewritten(canaries, lambda canary: 0 if canary.canary_id == "c8-0" else 1)
    model = model_with_memory(canaries)
    results = expose(model, after, method="references")
    by_id = {result.canary_id: result for result in results}
    assert (by_id["c8-0"].repetitions, by_id["c8-0"].planted, by_id["c8-0"].planned_repetitions) == (
        0,
        True,
        8,
    )
    assert by_id["c8-2"].repetitions == 1
    plain, _ = populations(load_source(expose(model, canaries, method="references")))
    found, warnings = populations(load_source(results))
    # The very same populations as without rewriting: leaving out what lost its copies would be a choice made after the coins.
    assert [one.name for one in found] == [one.name for one in plain] == ["once", "8 times", "pooled"]
    for one, other in zip(found, plain, strict=True):
        assert [side.tolist() for side in one.scores] == [side.tolist() for side in other.scores]
        assert [side.tolist() for side in one.coins] == [side.tolist() for side in other.coins]
    assert any(
        "15 canaries of format" in warning and "(1 are not in it at all)" in warning for warning in warnings
    )
    assert membership(results).populations[1].copies == 8

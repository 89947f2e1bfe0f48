"""The p-values of findings and of the gate: whether canaries are more exposed than guessing explains.

Without memorization a canary's rank is uniform, so its exposure reaches x bits with probability 2^-x, and it is among the first k
guesses with probability k / |R|. That gives each canary a p-value: from its lower limit if the exposure was measured in the whole
space, from its rank if it was measured among references or samples, and from its place if a search found it. The limits of an
extrapolated curve are not used: they do not hold deep in the tail.

Probabilities say more than a rank among few others. Those of all members sum to at most 1, so at most 2^x members have a log-perplexity
of x bits or less, and a canary drawn from |R| of them is among these with probability 2^x / |R|, whatever the model (Markov's
inequality). Nothing is gained by that where the rank in the whole space is known. It counts only for a canary that beats all
references or samples, so that scores that are no probabilities accuse nobody. A secret that nobody drew has no such space and has a
context of its own; there, what is most probable of it and of its own references counts by how far it leads, see `lead_test`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from coalmine.audits.exposure.estimators import estimator_of
from coalmine.audits.exposure.results import EXPOSURES, ExposureResult, Exposures
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED, Verified
from coalmine.evidence.run import Located, Run
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.statistics.exposure.order_tests import OrderTest, lead_test, order_test, shared_order_test

# Fewer canaries than this show little: if none of 4 is memorized, half of all such canaries may still be.
FEWEST = 5
WRONG_SIDE = (
    "they are more surprising than guessing explains, which memorization does not do: either the scores have the wrong sign, or "
    "something pushed the canaries away, as unlearning does"
)


class Judged(NamedTuple):
    """A canary with its p-value, and with the limits of its exposure in bits; `known` is whether it has a number to rely on."""

    result: ExposureResult
    # 1 where nothing was measured.
    p_value: float
    low: float
    # The maximum of the exposure: its upper limit, or log2 of the size of the space.
    high: float
    space_bits: float
    known: bool = True
    # How many of the n references or samples are no more surprising; None if it was not compared with any.
    better: int | None = None
    # The exposure that its probability alone proves; 0 for one that does not beat all references or samples, None where that is not known.
    proven: float | None = None

    @property
    def measured_in_space(self) -> bool:
        """Whether its exposure is one in the whole space."""
        return self.known and self.better is None

    @property
    def fully_exposed(self) -> bool:
        """Whether it is one of the first two guesses in its whole space, even at the lower limit."""
        low = self.low if self.measured_in_space else self.proven or 0.0
        return low >= self.space_bits - 1.0

    @property
    def first(self) -> bool:
        """Whether it is the first guess among all that it was ranked among."""
        return self.better == 0 or (self.measured_in_space and self.low >= self.space_bits)

    @property
    def natural(self) -> bool:
        """Whether it is a secret that was in the data all along, which has others of its own."""
        return self.result.kind is not UNSET

    @property
    def group(self) -> tuple[str, int]:
        """The canaries that it can be compared with: of the same format, and trained on as often."""
        return (self.result.format_id, self.result.repetitions)


def judged(document: Exposures) -> list[Judged]:
    """All canaries of a document, in its order."""
    distributions = {facts.format_id for facts in document.formats if facts.is_distribution}
    return [judge(result, is_distribution=result.format_id in distributions) for result in document.results]


def judge(result: ExposureResult, *, is_distribution: bool = False) -> Judged:
    """One canary; of a format whose members' probabilities sum to at most 1, its own proves some bits."""
    estimate, space_bits = result.estimate, result.most_possible_bits
    if estimate.status == "not_measured" or not estimator_of(estimate.method).is_evidence:
        return Judged(result, 1.0, 0.0, space_bits, space_bits, known=False)
    low = estimate.low if estimate.low is not None else estimate.value or 0.0
    high = space_bits if estimate.high is None else min(estimate.high, space_bits)
    better = counted_better(estimate)
    if better is None:
        return Judged(result, float(min(1.0, 2.0**-low)), low, high, space_bits)
    p_value, proven = (better + 1) / (estimate.n + 1), None
    if is_distribution:
        # The rank and the probability share the error.
        proven = max(0.0, space_bits - result.log_perplexity_bits) if better == 0 else 0.0
        p_value = min(1.0, 2.0 * min(p_value, 2.0**-proven))
        low = max(low, proven)
    return Judged(result, p_value, low, max(low, high), space_bits, better=better, proven=proven)


def counted_better(estimate: Estimate) -> int | None:
    """How many references or samples are no more surprising than the canary; None if it was measured in another way.

    >>> from coalmine.statistics.exposure.ranks import reference_exposure
    >>> counted_better(reference_exposure(20.0, [30.0, 19.0, 41.0, 22.0]))
    1
    """
    among = estimator_of(estimate.method).among
    if among == "space" or estimate.status == "not_measured":
        return None
    if estimate.value is None:
        return 0
    # References count the canary itself already, and rank n counts as n + 1 does; samples do not count it.
    counted: float = estimate.n * 2.0**-estimate.value
    if among == "samples":
        return min(estimate.n, round(counted))
    return estimate.n if estimate.value <= 0.0 else max(0, round(counted) - 1)


def group_test(group: Sequence[Judged]) -> OrderTest:
    """How likely canaries as exposed as the best of these are without memorization, and how many of them show it best.

    The best 1, 2, 4, 8, ... are compared with chance, so a few that are recited show among many that are not; findings and gate use the
    same test. Exposures in the whole space are independent, and so are those of secrets, which have references of their own. Those among
    the same references are not, but every order of canaries and references is equally likely; see `shared_order_test`. The ways in
    which canaries were measured share the error, and so do ranks and probabilities.
    """
    known = [one for one in group if one.known]
    outside = [one for one in known if one.better is not None and not one.natural]
    tests = _among_others(outside)
    by_probability = [2.0**-one.proven for one in outside if one.proven is not None]
    if by_probability:
        tests.append(order_test(by_probability))
    apart = [one for one in known if one.measured_in_space or one.natural]
    return _joined([*tests, *_apart([one.p_value for one in apart], apart)])


def secrets_test(p_values: Sequence[float], secrets: Sequence[Judged]) -> OrderTest:
    """The same for secrets, with p-values that may also be those of places in a search; how far secrets lead shares the error."""
    return _joined(_apart(p_values, secrets))


def _apart(p_values: Sequence[float], canaries: Sequence[Judged]) -> list[OrderTest]:
    tests = [order_test(p_values)] if p_values else []
    leads = [
        (one.result.lead_bits, one.first, _others(one))
        for one in canaries
        if one.known and one.result.lead_bits is not UNSET
    ]
    return [*tests, lead_test(*zip(*leads, strict=True))] if leads else tests


def _others(one: Judged) -> int:
    return round(2.0**one.space_bits) - 1 if one.better is None else one.result.estimate.n


def pushed_away(canaries: Sequence[Judged], level: float) -> bool:
    """Whether canaries are more surprising than guessing explains; groups that can be compared, and kinds of secrets, share the level.

    Canaries that share a score are left out: other members share it too, and ranks count those before the canary.
    """
    scores = Counter(one.result.known_log_perplexity_bits for one in canaries)
    alone = (one for one in canaries if one.known and scores[one.result.known_log_perplexity_bits] == 1)
    groups = grouped((one.result.kind if one.natural else one.group, _mirrored(one)) for one in alone)
    return any(group_test(group).p_value <= level / len(groups) for group in groups.values())


def _mirrored(one: Judged) -> Judged:
    """The same canary, as if the most surprising member were the first guess."""
    one = one._replace(result=msgspec.structs.replace(one.result, lead_bits=UNSET), proven=None)
    if one.better is not None:
        n = one.result.estimate.n
        return one._replace(better=n - one.better, p_value=(n - one.better + 1) / (n + 1))
    return one._replace(p_value=min(1.0, 1.0 - 2.0**-one.high + 2.0**-one.space_bits))


def _among_others(outside: Sequence[Judged]) -> list[OrderTest]:
    """One test for each set of references or samples."""
    sets = grouped(
        ((one.result.format_id, one.result.estimate.method, one.result.estimate.n), one.better or 0)
        for one in outside
        if one.result.estimate.n >= 1
    )
    return [shared_order_test(better, key[2]) for key, better in sorted(sets.items())]


def _joined(tests: Sequence[OrderTest]) -> OrderTest:
    if not tests:
        return OrderTest(1.0, 1)
    best = min(tests, key=lambda one: one.p_value)
    return best._replace(p_value=min(1.0, len(tests) * best.p_value))


def at_most_share(n: int, confidence: float = 0.95) -> float:
    """The upper limit of the share, one-sided, if none of n canaries showed anything.

    >>> round(at_most_share(5), 2)
    0.45
    """
    return float(1.0 - (1.0 - confidence) ** (1.0 / n))


def chance_explains(p_value: float) -> str:
    """How often chance gives as much, as the end of a sentence about what came out.

    >>> chance_explains(0.044), chance_explains(1.0)
    ('which chance explains in 4.4% of models', 'which chance explains in most models')
    """
    share = "most" if p_value > 0.95 else f"{100 * p_value:.2g}% of"
    return f"which chance explains in {share} models"


class FoundPlace(NamedTuple):
    """Where a search found a canary, and the probability of such a place without memorization."""

    canary_id: str
    repetitions: int
    place: int | None
    p_value: float


def measured_canaries(run: Run) -> list[Judged]:
    """Every canary by the best of its exposures that can be relied on, of those of the manifest that comes first."""
    found: dict[str, Judged] = {}
    documents = [one for _, one in run.all(EXPOSURES)]
    for document in documents:
        if document.manifest_sha256 == documents[0].manifest_sha256:
            for one in judged(document):
                if one.result.canary_id not in found or (one.known and not found[one.result.canary_id].known):
                    found[one.result.canary_id] = one
    return list(found.values())


def canary_p_values(run: Run) -> dict[str, float]:
    """The p-value of each canary that was trained on; its exposure and its extraction are one question."""
    p_values: dict[str, float] = {}
    exposures = {one.result.canary_id: one for one in measured_canaries(run)}
    placed = (one for located in run.all(VERIFIED) for one in places_of(run, located))
    places = grouped((one.canary_id, one.p_value) for one in placed if one.repetitions > 0)
    trained = [name for name, one in exposures.items() if one.result.repetitions > 0]
    for name in dict.fromkeys((*trained, *places)):
        found = places.get(name, [])
        by_place = min(1.0, len(found) * min(found)) if found else 1.0
        exposure = exposures.get(name)
        if exposure is None or not exposure.known:
            p_value = by_place
        elif exposure.measured_in_space or not found:
            # A rank in the whole space and the place in a search of it are the same number.
            p_value = min(exposure.p_value, by_place)
        else:
            p_value = min(1.0, 2.0 * min(exposure.p_value, by_place))
        if found or (exposure is not None and exposure.known):
            p_values[name] = p_value
    return p_values


def extracted_canaries(run: Run) -> set[str]:
    """The canaries that any search or prompt of the run has found."""
    return {one.canary_id for _, document in run.all(VERIFIED) for one in document.canaries if one.extracted}


def places_of(run: Run, located: Located[Verified]) -> list[FoundPlace]:
    """The canaries of one verified.json; without memorization one is among the first k of |R| with probability k / |R|."""
    manifest, document = run.canaries, run.first(EXPOSURES)
    formats = {} if document is None else {one.canary_id: one.format_id for one in document.results}
    formats |= {canary.canary_id: canary.format_id for canary in manifest or ()}
    # The searches beside it know the sizes of their formats; else the exposures, or the manifest.
    sizes = {
        one.path.stem.removeprefix("extraction-"): int(one.document.size)
        for one in run.all(EXTRACTIONS)
        if one.path.parent == located.path.parent
    }
    if not sizes and document is not None:
        sizes = {facts.format_id: int(facts.size) for facts in document.formats}
    elif not sizes and manifest is not None:
        sizes = {name: form.size for name, form in manifest.formats.items()}
    found = []
    for one in located.document.canaries:
        # One that came out counts in full where nothing says that its space is small.
        fewest = min(sizes.values(), default=math.inf)
        size = sizes.get(one.format_id or formats.get(one.canary_id, ""), fewest)
        p_value = min(1.0, (one.place or 1) / size) if one.extracted else 1.0
        found.append(FoundPlace(one.canary_id, one.repetitions, one.place, p_value))
    return found

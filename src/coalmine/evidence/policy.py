"""What an audit declares about policies: the section that holds its rules, and how a run is judged by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from coalmine.evidence.outcomes import RuleOutcome, not_shown
from coalmine.evidence.run import Located, Run

Rules = TypeVar("Rules", bound=msgspec.Struct)


class PolicyTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy says for all of its rules.

    >>> PolicyTerms(min_canaries=10).confidence
    0.95
    """

    # The level that a limit must have to count; half of the rest is how often a model without memorization may be called broken.
    confidence: float = 0.95
    # With fewer canaries than this, a rule about them is not shown to hold.
    min_canaries: int = 1


class Broken(NamedTuple):
    """A key of a section that cannot be as it is, and why; what `PolicySection.check` yields.

    >>> Broken("broken_at_most", "is below the number of toys that were broken before").key
    'broken_at_most'
    """

    key: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class PolicySection(Generic[Rules]):
    """The section of a policy with the rules about one audit.

    Attributes:
        rules: the type of the section; its fields are the keys, and every field has a default.
        limits: the keys that are limits, one of which must be given.
        judge: the outcome of every rule that is given. The last argument says why the results of the run do not count, or is None.
        template: what `coalmine policy init` writes for it.
        shares: keys whose values are between 0 and 1.
        counts: keys whose values are at least 1.
        check: further mistakes in a section.
        about_canaries: whether its rules are about canaries, which say nothing where training never saw them.

    >>> class ToyRules(msgspec.Struct, frozen=True, kw_only=True):
    ...     broken_at_most: float | None = None
    >>> section = PolicySection(rules=ToyRules, limits=("broken_at_most",), judge=lambda *_: (), template="#[toys]")
    >>> section.limits
    ('broken_at_most',)
    """

    rules: type[Rules]
    limits: tuple[str, ...]
    judge: Callable[[Run, Rules, PolicyTerms, str | None], Iterable[RuleOutcome]]
    template: str
    shares: frozenset[str] = frozenset()
    counts: frozenset[str] = frozenset()
    check: Callable[[Rules], Iterable[Broken]] = lambda _: ()
    about_canaries: bool = False


def absent(
    rule: str,
    asks: str,
    command: str,
    results: Sequence[object],
    stale: str | None,
    chance: float | None = 1.0,
) -> RuleOutcome:
    """The outcome of a rule about an audit without results, or whose results do not count; `command` measures it.

    `results` are those of the run, and `stale` is why they do not count, or None.

    >>> absent("toys.broken_at_most", "broken toys at most 0.1", "toys play", results=[], stale=None).settle
    'run `toys play`'
    """
    if stale is not None and results:
        return not_shown(rule, asks, stale, "measure this model again", chance)
    return not_shown(rule, asks, "there is no result of this audit", f"run `{command}`", chance)


def rule_name(rule: str, run: Run, one: Located[Any], all_of_them: Sequence[Located[Any]]) -> str:
    """The name of a rule, with the file that it is judged by where there are several."""
    return rule if len(all_of_them) == 1 else f"{rule} ({run.shown(one.path)})"

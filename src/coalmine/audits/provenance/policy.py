"""The rules of a policy about provenance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from coalmine.audits.provenance.deciding import not_interpretable, person_words, power_of
from coalmine.audits.provenance.findings import some_of_them
from coalmine.audits.provenance.records import PROVENANCES, Provenance, Question
from coalmine.audits.provenance.users import counted, listed
from coalmine.evidence.outcomes import RuleOutcome, error_level, not_shown
from coalmine.evidence.policy import Broken, PolicySection, PolicyTerms, absent, rule_name
from coalmine.evidence.run import Run

RULE = "provenance.no_user_found"
NOBODY = "no user found"
_NON_MEMBERS = "give non-members that are from the same source as the suspects (--non-members)"
_SAME = "give suspects and non-members (--non-members) from one source, and enough of both that a difference would be noticed"
_READABLE = "give texts of them that the model can read, or leave them out"
_AGAIN = "audit other texts of the same users (--others), against more non-members: what was used shows in them too, and chance does not"


class ProvenanceRules(msgspec.Struct, frozen=True, kw_only=True):
    """Whether users may be found in the training data, and what an audit must be able to show for that to count."""

    # A user who is found breaks the rule, and so do scores that show together that texts of some were used; nobody found is called "no
    # user found", and proves nothing about them.
    no_user_found: bool | None = None
    # The false-discovery rate at which users are judged; without it, that of the audit.
    fdr: float | None = None
    # With fewer non-members than this, the rule is not shown to hold.
    min_non_members: int | None = None


class _UserRule(NamedTuple):
    """A rule with its name and what it asks for, about one question of a result, at a false-discovery rate."""

    name: str
    asks: str
    fdr: float
    rules: ProvenanceRules
    # The p-value that breaks it.
    level: float


def _judge(run: Run, rules: ProvenanceRules, terms: PolicyTerms, stale: str | None) -> Iterator[RuleOutcome]:
    """Whether nobody is found, for each question of each provenance.json that is there."""
    if not rules.no_user_found:
        return
    results = run.all(PROVENANCES)
    if stale is not None or not results:
        yield absent(RULE, _asks(rules.fdr), "coalmine provenance", results, stale)
        return
    for one in results:
        document = one.document
        name = rule_name(RULE, run, one, results)
        fdr = document.settings.fdr if rules.fdr is None else rules.fdr
        for question in document.questions:
            about = name if len(document.questions) == 1 else f"{name} ({question.asks})"
            asked = _UserRule(about, _asks(fdr), fdr, rules, error_level(terms.confidence))
            yield _outcome(document, question, asked)


def _asks(fdr: float | None) -> str:
    return NOBODY if fdr is None else f"{NOBODY} at a false-discovery rate of {100 * fdr:g}%"


def _outcome(document: Provenance, question: Question, asked: _UserRule) -> RuleOutcome:
    deciding, by = question.deciding, document.settings.by
    if deciding is None:
        settle = "give shadow models, a reference model or non-members, as `coalmine provenance` says"
        return not_shown(asked.name, asked.asks, "no statistic could be computed", settle, 1.0)
    if all(row.score is None for row in question.rows):
        why = f"none of {counted(len(question.rows), by)} could be measured"
        return not_shown(asked.name, asked.asks, why, _READABLE, 1.0)
    if deciding.calibrated != "non-members":
        why = "there are no non-members to compare with, so there is no p-value"
        return not_shown(asked.name, asked.asks, why, _NON_MEMBERS, 1.0)
    reasons = not_interpretable(document, question.asks)
    if reasons:
        why = f"the scores cannot be interpreted: {'; '.join(reasons)}"
        return not_shown(asked.name, asked.asks, why, _SAME, 1.0)
    tested = [row for row in question.rows if row.adjusted_p_value is not None]
    found = [row for row in tested if (row.adjusted_p_value or 0.0) <= asked.fdr * (1 + 1e-9)]
    against = f"by {deciding.name}, against {counted(len(deciding.non_member_scores), 'non-member')}"
    if by == "person":
        shown = (deciding.p_value or 0.0) <= asked.level * (1 + 1e-9)
        against = " ".join(person_words(document, question, shown=shown)).rstrip(".")
        together = False  # which is the same p-value
    else:
        together = deciding.p_value is not None and deciding.p_value <= asked.level * (1 + 1e-9)
    if found or together:
        names = document.names()
        said = f"{len(found):,} of {counted(len(tested), by)} found {against}: {listed([names[row.user] for row in found])}"
        if not found:
            said = (
                f"none of {counted(len(tested), by)} found {against}, but scores this high, all taken together, occur with probability "
                f"{deciding.p_value:.2g} otherwise, so {some_of_them(document, question)}"
            )
        return RuleOutcome(
            rule=asked.name,
            asks=asked.asks,
            outcome="broken",
            evidence=against if by == "person" else said,
            judged=len(tested),
            settle="ask about further texts of the same person" if by == "person" else _AGAIN,
            chance=deciding.p_value,
            details=tuple(
                f"{names[row.user]}: adjusted p-value {row.adjusted_p_value or 0.0:.2g}" for row in found
            ),
        )
    unable = _unable(document, question, asked)
    if unable is not None:
        return not_shown(asked.name, asked.asks, *unable, 1.0)
    power = power_of(question, asked.fdr)
    smallest = min((row.adjusted_p_value or 0.0 for row in tested), default=1.0)
    return RuleOutcome(
        rule=asked.name,
        asks=asked.asks,
        outcome="holds",
        words=NOBODY,
        evidence=against
        if by == "person"
        else (
            f"none of {counted(len(tested), by)} found {against}; smallest adjusted p-value {smallest:.2g}. "
            f"{'' if power is None else power.words(by)} That nobody is found does not prove that no text was used"
        ),
        judged=len(tested),
        chance=deciding.p_value,
    )


def _unable(document: Provenance, question: Question, asked: _UserRule) -> tuple[str, str] | None:
    """Why it means nothing that nobody is found, and what would settle it; None where somebody could have been."""
    power, by, deciding = power_of(question, asked.fdr), document.settings.by, question.deciding
    if deciding is None or (power is None and by != "person"):
        return "nobody has a p-value", "give texts that the model can read"
    fewest, others = asked.rules.min_non_members, len(deciding.non_member_scores)
    if fewest is not None and others < fewest:
        why = (
            f"{counted(others, 'non-member')} were compared with, and the policy asks for at least {fewest:,}"
        )
        return why, f"give at least {fewest:,} non-members"
    if power is not None and power.fewest is None:
        return power.words(by).rstrip("."), f"give at least {power.needed_for_any:,} non-members"
    needed = 0 if power is None else power.needed_for_all_together(asked.level)
    if others < needed:
        why = f"the gate breaks a rule at p-values of up to {asked.level:.2g}, which {counted(others, 'non-member')} cannot give"
        return why, f"give at least {needed:,} non-members"
    missing = sum(row.p_value is None for row in question.rows)
    if missing:
        why = f"{missing:,} of {counted(len(question.rows), by)} could not be measured"
        return why, _READABLE
    own = deciding.own_scores or tuple(row.score or 0.0 for row in question.rows)
    if len({*own, *deciding.non_member_scores}) == 1:
        return "all users have the same score, so that nobody could be found", "choose another statistic"
    return None


def incomplete(run: Run) -> str | None:
    """Whom the results say nothing about; None where they say something about everybody."""
    for _, document in run.all(PROVENANCES):
        for question in document.questions:
            missing = sum(row.score is None for row in question.rows)
            if missing:
                return f"{missing:,} of {counted(len(question.rows), document.settings.by)} could not be measured"
    return None


def settle_incomplete(run: Run) -> str:
    """What to do about those whom the results say nothing about."""
    del run
    return "give texts of them that the model can read, or leave them out of the suspects"


def _check(rules: ProvenanceRules) -> Iterator[Broken]:
    if rules.no_user_found is False:
        yield Broken(
            "no_user_found",
            "provenance.no_user_found can only be true; leave it out where users may be found",
        )
    if rules.fdr is not None and not 0 < rules.fdr < 1:
        yield Broken("fdr", f"provenance.fdr must be above 0 and below 1, such as 0.05, got {rules.fdr}")


SECTION = PolicySection(
    rules=ProvenanceRules,
    limits=("no_user_found",),
    judge=_judge,
    shares=frozenset({"fdr"}),
    counts=frozenset({"min_non_members"}),
    check=_check,
    template="""\
#[provenance]
# Broken if the text of a suspect is found to have been used (`coalmine provenance` with --non-members), or if all scores together show
# that texts of some were used. If nobody is found, no user was found, and no more than that.
#no_user_found = true
# The false-discovery rate that users are judged at, and how many non-members it takes for the rule to count.
#fdr = 0.05
#min_non_members = 100
""",
)

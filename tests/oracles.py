"""The slow, obviously right versions of what coalmine does fast."""

from fractions import Fraction

from coalmine import Format, ScriptedModel
from coalmine.models.protocols import text_sequence


def exact_ranks(model: ScriptedModel, form: Format, canaries: list[str]) -> list[int]:
    """Definition 2 of the Secret Sharer, in exact arithmetic: how many members are at least as likely."""
    likelihoods: list[Fraction] = [model.probability(member) for member in form]
    return [sum(other >= model.probability(canary) for other in likelihoods) for canary in canaries]


def brute_force_ranks(model, form: Format, canaries: list[str]) -> list[int]:
    """Score every member's full string by itself, each from the start, and count."""
    costs = {member: brute_force_bits(model, member) for member in form}
    tied = model.resolution_bits
    return [sum(cost <= costs[canary] + tied for cost in costs.values()) for canary in canaries]


def brute_force_bits(model, text: str) -> float:
    """The log-perplexity of one text, read alone."""
    return model.score([text_sequence(model, text)])[0].log_perplexity_bits

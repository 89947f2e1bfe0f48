"""The slow, obviously right versions of what coalmine does fast."""

import math
from fractions import Fraction

from coalmine import Format, ScriptedModel
from coalmine.models import text_sequence


def exact_ranks(model: ScriptedModel, form: Format, canaries: list[str]) -> list[int]:
    """Definition 2 of the Secret Sharer, in exact arithmetic: how many members are at least as likely."""
    likelihoods: list[Fraction] = [model.probability(member) for member in form]
    return [sum(other >= model.probability(canary) for other in likelihoods) for canary in canaries]


def brute_force_ranks(model, form: Format, canaries: list[str]) -> list[int]:
    """Score every member's full string by itself, each from the start, and count."""
    return ranks_by_cost(model, {member: brute_force_bits(model, member) for member in form}, canaries)


def ranks_by_cost(model, costs: dict[str, float], canaries: list[str]) -> list[int]:
    """Ranks by counting, where the log-perplexity of every member is known."""
    tied = model.resolution_bits
    return [sum(cost <= costs[canary] + tied for cost in costs.values()) for canary in canaries]


def brute_force_bits(model, text: str) -> float:
    """The log-perplexity of one text, read alone."""
    return model.score([text_sequence(model, text)])[0].log_perplexity_bits


def peft_bits(model, text: str, adapter, base) -> float:
    """The same by PEFT itself: its own loader on a base that transformers loaded."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    return forward_bits(theirs, model, text)


def forward_bits(network, model, text: str) -> float:
    """The same by one call of a causal network of transformers or PEFT, over the tokens that `model` would score."""
    import torch

    sequence = text_sequence(model, text)
    tokens = torch.tensor([[*sequence.context, *sequence.target]])
    with torch.inference_mode():
        # What a prompt puts before the tokens has logits too.
        logits = network.eval()(input_ids=tokens).logits[0, -tokens.shape[1] :]
    chosen = torch.log_softmax(logits.double(), dim=-1)[:-1].gather(1, tokens[0, 1:, None])
    return -float(chosen[len(sequence.context) - 1 :].sum()) / math.log(2)

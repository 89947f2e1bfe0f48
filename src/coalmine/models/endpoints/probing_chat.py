"""Whether a server of conversations continues a turn that it is given, proven by giving it the beginning of what it wrote itself.

Servers differ in how they are asked: llama.cpp and Ollama continue a last turn of the assistant, vLLM does so if two fields of the request
ask for it, and others close the turn, or ignore the fields, and begin a new one. So each way is tried, and none is believed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from coalmine.models.endpoints.answers import Conversation, EndpointAnswer, EndpointQuestion
from coalmine.models.endpoints.client import Client
from coalmine.models.endpoints.echo import has_no_text
from coalmine.models.endpoints.http import EndpointRefusedError, NoAnswerError
from coalmine.models.endpoints.probing import Capability, raise_unless_lacking
from coalmine.models.endpoints.probing_scores import TOLERANCE_BITS, TOP, LackingError, anything
from coalmine.records.chat import Turn

STYLES: tuple[Literal["trailing", "fields"], ...] = ("trailing", "fields")
# The tokens that the server writes first, and how many of its own beginnings it must then continue.
WRITTEN, PLACES = 8, 3


def probe_prefill(client: Client, capability: Capability) -> Capability:
    """The same capability, with how the server is made to continue a turn of the assistant, or with why it is not."""
    before = (Turn("user", capability.text),)
    reasons = []
    for style in STYLES:
        place = Conversation(before=before, role="assistant", style=style)
        try:
            prove_continues(client, place, "", listed=capability.level == "ranker")
        except LackingError as problem:
            reasons.append(str(problem))
        else:
            return msgspec.structs.replace(
                capability,
                prefill=style,
                why="it continues a given beginning of the assistant's turn as it continues its own"
                + (
                    ", with the same log-probabilities"
                    if capability.level == "ranker"
                    else f", and {capability.why}"
                ),
            )
    why = f"it does not continue a given turn of the assistant ({reasons[-1]})"
    return msgspec.structs.replace(
        capability, why=why if capability.level == "ranker" else f"{capability.why}; {why}"
    )


def prove_continues(client: Client, place: Conversation, beginning: str, *, listed: bool) -> None:
    """Raise a LackingError unless the server, given more and more of a turn that it wrote, goes on as it did."""
    try:
        if listed:
            _prove_by_numbers(client, place, beginning)
        else:
            _prove_by_text(client, place, beginning)
    except (EndpointRefusedError, NoAnswerError) as problem:
        raise_unless_lacking(problem)
        raise LackingError(f"it gives no usable answer: {problem.reason}") from None


def _prove_by_numbers(client: Client, place: Conversation, beginning: str) -> None:
    """By the likeliest tokens after each beginning: those that the server listed when it wrote on by itself."""
    first = client.ask(_asking(place, beginning, WRITTEN, TOP), anything)
    tokens, tops = first.tokens or (), first.top or ()
    compared, tells = 0, False
    for number in range(1, len(tokens)):
        written = "".join(tokens[:number])
        if not first.text.startswith(written) or any(map(has_no_text, tokens[: number + 1])):
            break
        top = tops[number]
        if written[-1:].isspace() or not top or compared == PLACES:
            continue
        after = client.ask(_asking(place, beginning + written, 1, TOP), anything)
        listed = _first_list(after)
        if not listed:
            raise LackingError("it lists no tokens after a turn that it is given")
        if distance_bits(listed, top) > TOLERANCE_BITS:
            raise LackingError("given its own words, it goes on otherwise than it did")
        if after.text.strip() not in {"", (after.tokens or ("",))[0].strip()}:
            raise LackingError("given its own words, it repeats them before it goes on")
        compared += 1
        tells = tells or distance_bits(tops[0] or {}, top) > TOLERANCE_BITS
    if compared < 2 or not tells:
        raise LackingError(
            "what it writes is too short, or too much alike, to see whether it continues a turn"
        )


def _prove_by_text(client: Client, place: Conversation, beginning: str) -> None:
    """By what it writes after each beginning: the rest of what it wrote."""
    whole = client.ask(_asking(place, beginning, WRITTEN, None), anything).text
    compared = 0
    for number in range(1, PLACES + 1):
        written = client.ask(_asking(place, beginning, number, None), anything).text
        rest = whole[len(written) :]
        if not whole.startswith(written) or not rest or not written.strip() or written[-1:].isspace():
            continue
        after = client.ask(_asking(place, beginning + written, WRITTEN - number, None), anything).text
        shared = min(len(rest), len(after))
        if not shared or rest[:shared] != after[:shared]:
            raise LackingError("given its own words, it goes on otherwise than it did")
        # What begins again as the whole did may as well be a new turn.
        compared += not whole.startswith(after[:shared])
    if compared < 2:
        raise LackingError(
            "what it writes is too short, or too much alike, to see whether it continues a turn"
        )


def _asking(place: Conversation, prompt: str, most_tokens: int, top: int | None) -> EndpointQuestion:
    return EndpointQuestion(prompt=prompt, most_tokens=most_tokens, top=top, chat=place)


def _first_list(answer: EndpointAnswer) -> dict[str, float]:
    return (answer.top[0] if answer.top else None) or {}


def distance_bits(one: dict[str, float], other: dict[str, float]) -> float:
    """The largest difference between the log-probabilities of tokens in two lists in bits; infinite if they share fewer than two.

    >>> distance_bits({"a": -1.0, "b": -2.0}, {"a": -1.0, "b": -2.0}), distance_bits({"a": -1.0}, {"b": -1.0})
    (0.0, inf)
    """
    shared: Sequence[str] = [token for token in one if token in other]
    if len(shared) < 2:
        return math.inf
    return max(abs(one[token] - other[token]) for token in shared) / math.log(2)

"""How many of the likeliest next tokens a server lists, found out by asking for many and then for fewer."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from coalmine.models.endpoints.answers import EndpointAnswer, EndpointQuestion
from coalmine.models.endpoints.client import Client
from coalmine.models.endpoints.http import EndpointRefusedError, NoAnswerError
from coalmine.models.endpoints.probing import raise_unless_lacking

# Servers refuse more than 5, 20 or 100, or list as many as they like.
NUMBERS = (1000, 100, 50, 20, 10, 5, 2)
# Apart from the questions that a server was first tested with, which ask for a few.
AGAIN = 2


def longest_list(
    client: Client,
    ask_for: Callable[[int], EndpointQuestion],
    listed: Callable[[EndpointQuestion, EndpointAnswer], list[str]],
    check: Callable[[EndpointQuestion, EndpointAnswer], object],
) -> int:
    """The length of the longest list that the server gives; 1 if it gives none of these.

    `ask_for(k)` is a question for the k likeliest tokens after a text that the server continues, and `listed` reads the list from its
    answer. A run that is resumed finds the answer in its cache, and asks for no longer list that was refused before.
    """
    questions = [msgspec.structs.replace(ask_for(number), again=AGAIN) for number in NUMBERS]
    known = next((question for question in questions if client.cached(question) is not None), None)
    for question in questions if known is None else [known]:
        try:
            found = listed(question, client.ask(question, check))
        except (EndpointRefusedError, NoAnswerError) as problem:
            raise_unless_lacking(problem)
            continue
        if found:
            return min(len(found), question.top or 1)
    return 1

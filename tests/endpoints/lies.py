"""What servers say that do less than they seem to, or that say it wrongly: for every request, without an error."""

import json

from endpoints.broken_shapes import without_logprobs

# Servers that can do less than they seem to: for every request, without an error.
LIARS = (
    "no_logprobs",  # accepts logprobs, gives none
    "no_echo",  # accepts echo, answers without the prompt
    "text_only",  # neither
    "shifted",  # each number belongs to the token after it, and the first token has none
    "generated_only",  # echoes, with numbers for what it wrote itself and null for the prompt
    "no_tops",  # token_logprobs and no top_logprobs
    "few_tops",  # never more than two of the likeliest, however many were asked for
    "rounded",  # to two decimals
    "bits",  # logarithms to base 2
    "halved",  # all divided by two, as by a temperature of 2 that is not evened out
    "offset",  # all lower by the same amount
    "writes_at_least_one",  # max_tokens=0 is taken for 1
)
# Servers that say that they cannot.
REFUSERS = (
    "refuses_zero_tokens",  # 400 for max_tokens=0
    "refuses_token_ids",  # 500 for prompts as ids
    "refuses_lists",  # 400 for more than one prompt
    "refuses_logprobs",  # 400 for any logprobs
)


def lie(liar, request, forward):
    """The status and bytes by which such a server answers; `forward` asks the honest one."""
    refusal = REFUSALS[liar](request) if liar in REFUSALS else None
    if refusal is not None:
        return refusal, b'{"error":{"message":"not supported","type":"invalid_request_error"}}'
    asked = {**request, **({"echo": False} if liar in {"no_echo", "text_only"} else {})}
    if liar == "writes_at_least_one":
        asked["max_tokens"] = max(1, request.get("max_tokens", 16))
    status, content = forward(asked)
    if status != 200 or liar not in TWISTS:
        return status, content
    document = json.loads(content)
    if liar == "generated_only":
        status, written = forward({**request, "echo": False})
        return status, json.dumps(_only_generated(document, json.loads(written))).encode()
    return status, json.dumps(TWISTS[liar](document)).encode()


def _only_generated(document, written):
    for choice, own in zip(document["choices"], written["choices"], strict=True):
        told = choice["logprobs"]
        if told:
            prompt = len(told["tokens"]) - len(own["logprobs"]["tokens"])
            for field in ("token_logprobs", "top_logprobs"):
                if told[field] is not None:
                    told[field] = [None] * prompt + told[field][prompt:]
    return document


def _each_logprobs(change):
    def changed(document):
        for choice in document["choices"]:
            if choice["logprobs"]:
                change(choice["logprobs"])
        return document

    return changed


def _shift(told):
    told["token_logprobs"] = ([None] + told["token_logprobs"])[: len(told["tokens"])]
    if told["top_logprobs"] is not None:
        told["top_logprobs"] = ([None] + told["top_logprobs"])[: len(told["tokens"])]


def _map_numbers(change):
    def changed(told):
        told["token_logprobs"] = [change(one) for one in told["token_logprobs"]]
        if told["top_logprobs"] is not None:
            told["top_logprobs"] = [
                {text: change(one) for text, one in top.items()} for top in told["top_logprobs"]
            ]

    return _each_logprobs(changed)


def _cut_tops(told):
    if told["top_logprobs"] is not None:
        told["top_logprobs"] = [dict(list(top.items())[:2]) for top in told["top_logprobs"]]


TWISTS = {
    "no_logprobs": without_logprobs,
    "no_echo": lambda document: document,
    "text_only": without_logprobs,
    "shifted": _each_logprobs(_shift),
    "generated_only": None,
    "no_tops": _each_logprobs(lambda told: told.update(top_logprobs=None)),
    "few_tops": _each_logprobs(_cut_tops),
    "rounded": _map_numbers(lambda one: round(one, 2)),
    "bits": _map_numbers(lambda one: one * 1.4426950408889634),
    "halved": _map_numbers(lambda one: one / 2),
    "offset": _map_numbers(lambda one: one - 0.3),
}
REFUSALS = {
    "refuses_zero_tokens": lambda request: 400 if request.get("max_tokens") == 0 else None,
    "refuses_token_ids": lambda request: 500 if _has_ids(request["prompt"]) else None,
    "refuses_lists": lambda request: 400 if _is_list(request["prompt"]) else None,
    "refuses_logprobs": lambda request: 400 if request.get("logprobs") is not None else None,
}


def _has_ids(prompt):
    return isinstance(prompt, list) and not isinstance(prompt[0], str)


def _is_list(prompt):
    return isinstance(prompt, list) and not isinstance(prompt[0], int)

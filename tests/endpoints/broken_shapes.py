"""Answers that look valid but do not answer their question: valid JSON of a wrong shape, and broken JSON."""

import json


def _numbers(change):
    """A change of the list of log-probabilities of each choice that has one."""

    def changed(document):
        for choice in document["choices"]:
            told = choice.get("logprobs")
            if told and "content" in told:
                told["content"] = told["content"][: len(_put(told["content"], change))]
                for place in told["content"]:
                    _put(place["top_logprobs"], change)
            elif told:
                told["token_logprobs"] = change(told["token_logprobs"])
        return document

    return changed


def _put(rows, change):
    """The changed log-probabilities of rows as chats have them, which are put there."""
    numbers = change([row["logprob"] for row in rows])
    for row, number in zip(rows, numbers, strict=False):
        row["logprob"] = number
    return numbers


def _middle(value):
    return _numbers(lambda numbers: [*numbers[: len(numbers) // 2], value, *numbers[len(numbers) // 2 + 1 :]])


def without_logprobs(document):
    for choice in document["choices"]:
        choice["logprobs"] = None
    return document


SHAPES = {
    "no_choices": lambda document: {name: value for name, value in document.items() if name != "choices"},
    "fewer_choices": lambda document: {**document, "choices": document["choices"][:-1]},
    "choices_not_a_list": lambda document: {**document, "choices": "none"},
    "not_an_object": lambda document: [document],
    "logprobs_null": without_logprobs,
    "short_logprobs": _numbers(lambda numbers: numbers[:-1]),
    "null_in_the_middle": _middle(None),
    "nan": _middle(float("nan")),
    "infinite": _middle(float("-inf")),
    "positive": _numbers(lambda numbers: [None if one is None else abs(one) + 0.5 for one in numbers]),
    "numbers_as_text": _numbers(lambda numbers: [str(one) for one in numbers]),
    "reordered_choices": lambda document: {**document, "choices": document["choices"][::-1]},
    "unknown_fields": lambda document: {**document, "system_fingerprint": "x", "timings": {"total": 1}},
}


def _with_number(written):
    """One log-probability replaced by what JSON can hold and a number cannot be."""

    def changed(content):
        return json.dumps(_middle("HERE")(json.loads(content))).replace('"HERE"', written).encode()

    return changed


def _nested(field, opening, closing, depth=200_000):
    deep = (opening * depth + "0" + closing * depth).encode()
    return lambda content: b'{"%b":%b,%b' % (field, deep, content[1:])


def _deep_logprobs(content):
    document = json.loads(content)
    for choice in document["choices"]:
        choice["logprobs"] = "HERE"
    return json.dumps(document).encode().replace(b'"HERE"', b'{"tokens":' * 200_000 + b"0" + b"}" * 200_000)


# Changes of the bytes of an answer.
BROKEN_BYTES = {
    "trailing_garbage": lambda content: content + b"\x00}{",
    "byte_order_mark": lambda content: b"\xef\xbb\xbf" + content,
    "deep_lists": _nested(b"x", "[", "]"),
    "deep_objects": _nested(b"x", '{"a":', "}"),
    "deep_logprobs": _deep_logprobs,
    "huge_exponent": _with_number("-1e999"),
    "huge_integer": _with_number("-" + "9" * 5000),
    "huge_count": lambda content: json.dumps(
        {**json.loads(content), "usage": {"total_tokens": 10**300}}
    ).encode(),
    "lone_surrogate": lambda content: content.replace(b'"text":"', b'"text":"\\ud800'),
    "nul_byte": lambda content: content.replace(b'"text":"', b'"text":"\x00'),
    "not_utf8": lambda content: content.replace(b'"text":"', b'"text":"\xff\xfe'),
}

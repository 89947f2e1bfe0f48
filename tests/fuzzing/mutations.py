"""Damage to files, decided by numbers that are drawn one after the other, so that Hypothesis and a fuzzer can draw them alike.

`pick(n)` gives a number from 0 to n - 1.
"""

import copy
import functools
import json

# What stands for a value that JSON cannot hold, until the text of the document is there.
MARK = "coalmine-fuzzing-mark"
# As they are written: some are values like any other, some no JSON at all, some too much of it.
WRITTEN = (
    "null", "true", "false", "0", "-1", "1", "0.5", "-0.0", "2", "7", "1e-320", "1e308", "-1e308", "1e999", "NaN", "-Infinity",
    "9007199254740993", "99999999999999999999999", "-99999999999999999999999", "9" * 400, "9" * 5_000, '""', '"a"', '"0"', '"-1"',
    '"1e9"', '"\\u0000"', '"\\ud800"', '"\\u202e\\u001b[2J"', '"' + "x" * 70_000 + '"', "[]", "{}", "[null]", '{"": null}', "[[[[]]]]",
    "[" * 99 + "]" * 99, "[" * 5_000 + "]" * 5_000, '{"a":' * 3_000 + "1" + "}" * 3_000, '{"a": 1, "a": 2}', "", "}", '"{re:(a|b){9}}"',
    '"{digits:999999999}"', '"{re:.{4000}}"', '"../x"', '"/dev/zero"', '"nan"', '"inf"',
)  # fmt: skip
TOKENS = (
    b"\0", b"\xff", b"\n", b"\r\n", b'"', b"'", b",", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"[", b"{", b"}", b"]", b"=", b"-1", b"1e999", b"nan",
    b"9" * 400, b"\x1b[2J", b"\xe2\x80\xae", b'"""', b"[[", b"#", b"\\", b"\\u0000", b"1979-05-27T07:32:00Z",
)  # fmt: skip


def damaged(content, pick):
    """The content with one to four things done to its bytes."""
    content = bytearray(content)
    for _ in range(1 + pick(4)):
        place = pick(len(content) + 1)
        size = 1 + pick(1 << pick(10))
        match pick(9):
            case 0 if place < len(content):
                content[place] ^= 1 << pick(8)
            case 1 if place < len(content):
                content[place] = pick(256)
            case 2:
                del content[place : place + size]
            case 3:
                content[place:place] = content[place : place + size]
            case 4:
                content[place : place + size] = bytes(len(content[place : place + size]))
            case 5:
                del content[place:]
            case 6:
                content[place:place] = TOKENS[pick(len(TOKENS))]
            case 7:
                other = pick(len(content) + 1)
                content[place : place + size] = content[other : other + size]
            case 8:
                content[place:place] = bytes(pick(256) for _ in range(1 + pick(8)))
    return bytes(content)


def restructured(document, pick):
    """The text of a JSON document in which one to three values were replaced, left out, copied, exchanged or renamed."""
    document = copy.deepcopy(document)
    written = []
    for _ in range(1 + pick(3)):
        found = list(_places(document))
        if not found:
            break
        *way, last = found[pick(len(found))]
        node = functools.reduce(lambda inner, key: inner[key], way, document)
        match pick(7):
            case 0 | 1 | 2:
                node[last] = f"{MARK}-{len(written)}"
                written.append(WRITTEN[pick(len(WRITTEN))])
            case 3:
                del node[last]
            case 4:
                *other, key = found[pick(len(found))]
                node[last] = copy.deepcopy(
                    functools.reduce(lambda inner, one: inner[one], [*other, key], document)
                )
            case 5 if isinstance(node, list):
                node.insert(last, copy.deepcopy(node[last]))
            case 5:
                node[f"{MARK}-key"] = node.pop(last)
            case 6:
                value = node[last]
                node[last] = str(value) if isinstance(value, int | float) else [value]
    text = json.dumps(document, indent=2, ensure_ascii=False)
    for number, one in enumerate(written):
        text = text.replace(f'"{MARK}-{number}"', one, 1)
    return text.encode("utf-8", "surrogatepass")


def _places(node):
    """Where each value of a document is, as the keys that lead to it."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in entries:
        yield (key,)
        yield from ((key, *rest) for rest in _places(inner))

"""Checks of what `plant` is asked for: formats, numbers, probabilities, and room in the corpus."""

from __future__ import annotations

from collections.abc import Sequence

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import CorpusError, InputError
from coalmine.formats.format import Format
from coalmine.records import Canary

# What every reader of JSON keeps of an integer.
_LARGEST_SEED = 2**53
# The defaults of `plant`. If all are remembered, 32 coins for each number of copies prove an epsilon of 1.25 on average, by how the
# coins fall of 0.36 to 1.96 (24 coins may prove nothing); 1,000 references are the fewest that can show a true-positive rate at a
# false-positive rate of 0.1%.
REPEAT, CANARIES, REFERENCES, WITHHOLD = (1, 4, 16), 32, 1000, 0.5
# A larger share of canaries in the text of a corpus is warned of.
LARGEST_SHARE = 0.1


def as_formats(given: Format | str | Sequence[Format | str]) -> list[Format]:
    """One format or several, as formats; at least one."""
    several = [given] if isinstance(given, Format | str) else list(given)
    if not several:
        raise InputError(
            "planting needs at least one format, but none was given; give one such as 'my pin is {digits:4}'"
        )
    return [Format(each) if isinstance(each, str) else each for each in several]


def check_distinct(formats: Sequence[Format], sources: Sequence[Format] | None) -> None:
    """Raise an InputError for two formats that make the same strings, however they are written.

    >>> check_distinct([Format("pin {digits:2}"), Format("pin {re:[0-9]{2}}")], None)
    Traceback (most recent call last):
    coalmine.errors.InputError: 'pin {digits:2}' and 'pin {re:[0-9]{2}}' make the same strings; give one of them, with more canaries
    """
    for second, other in enumerate(formats):
        for first, one in enumerate(formats[:second]):
            if sources is not None and not sources[first].same_members(sources[second]):
                continue
            if one.same_members(other):
                what = (
                    f"the format {one.template!r} was given twice"
                    if one.template == other.template
                    else f"{one.template!r} and {other.template!r} make the same strings"
                )
                raise InputError(f"{what}; give one of them, with more canaries")


def check_room(planted: Sequence[Canary], text_bytes: int, canaries: int, repeat: Sequence[int]) -> list[str]:
    """Raise a CorpusError for canaries with more text than the corpus itself has, and give a warning where they have much of it."""
    copies = sum(canary.repetitions for canary in planted)
    ours = sum(canary.repetitions * len(canary.text.encode("utf-8")) for canary in planted)
    what = f"{copies:,} copies of canaries with {ours:,} bytes of text"
    advice = "use a larger corpus"
    if max(repeat) > 1:
        advice = f"plant fewer copies than {','.join(map(str, repeat))}, or {advice}"
    if canaries > 1:
        advice = f"ask for fewer canaries than {canaries} for each number of copies, {advice}"
    if ours > text_bytes:
        raise CorpusError(f"a corpus with {text_bytes:,} bytes of text cannot hold {what}; {advice}")
    share = ours / (text_bytes + ours)
    if share <= LARGEST_SHARE:
        return []
    return [
        f"{what} are {100 * share:.0f}% of the planted corpus, and a model spends that much on them; {advice}"
    ]


def nested_warnings(drawn: CanarySet) -> list[str]:
    """A warning where a text that is not to be planted, or to be planted so often, is part of a planted one."""
    planted = "\0\0".join(canary.text for canary in drawn if canary.planted)
    others = [canary.text for canary in drawn if not canary.planted]
    others += [text for texts in drawn.references.values() for text in texts]
    trained = sum(text in planted for text in others)
    counted = sum(planted.count(canary.text) > 1 for canary in drawn if canary.planted)
    if not trained and not counted:
        return []
    parts = [f"{trained:,} withheld canaries and references are"] if trained else []
    parts += [f"{counted:,} planted canaries are also"] if counted else []
    sentence = (
        f"{' and '.join(parts)} part of a planted text, so the model is trained on them too and they blur every comparison; use formats none "
        "of whose members can be part of another, such as holes of one length"
    )
    return [sentence]


def as_source_formats(
    given: Format | str | Sequence[Format | str] | None, fields: Fields
) -> list[Format] | None:
    """The formats of the source side, which pairs have and other corpora do not."""
    if (given is None) != (fields.source is None):
        missing, there = (
            ("source format", "source field") if given is None else ("source field", "source format")
        )
        raise CorpusError(
            f"pairs need a source field and source formats, but there is a {there} and no {missing}; give both"
        )
    return None if given is None else as_formats(given)


def checked_repeat(repeat: int | Sequence[int]) -> list[int]:
    """Different numbers of copies."""
    counts: list[int] = (
        [repeat] if isinstance(repeat, int) else [*repeat] if isinstance(repeat, Sequence) else []
    )
    if (
        not counts
        or any(not isinstance(count, int) for count in counts)
        or min(counts) < 1
        or len(set(counts)) < len(counts)
    ):
        raise InputError(
            f"repeat should be different whole numbers of at least 1, but is {repeat!r}; give some such as [1, 4, 16]"
        )
    return counts


def checked_count(name: str, count: int, *, least: int) -> int:
    """A number that is not too small."""
    if count < least:
        raise InputError(f"{name} should be at least {least}, but is {count}; give a larger number")
    return count


def checked_probability(withhold: float) -> float:
    """The probability with which a coin withholds a canary; some must be left to plant."""
    if not 0.0 <= withhold <= 1.0:
        raise InputError(f"withhold is a probability, but is {withhold}; give a number from 0 to 1")
    if withhold == 1.0:
        raise InputError(
            "withhold is 1, which leaves every canary out, so that nothing would be planted; give 0.5, which compares as many planted "
            "canaries as withheld ones"
        )
    return withhold


def checked_seed(seed: int) -> int:
    """A seed that a manifest can hold."""
    if not 0 <= seed <= _LARGEST_SEED:
        raise InputError(f"the seed should be an integer from 0 to 2**53, but is {seed}; give another")
    return seed

"""The draw of canaries: which members of each format are planted, withheld or kept as references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.options import PlantOptions
from coalmine.errors import CorpusError, InputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.randomness import child_seed, integers
from coalmine.records import Canary
from coalmine.records.chat import Frame

# A larger share of canaries in the text of a corpus gets a warning.
_LARGEST_SHARE = 0.1


# One format or several, or their templates.
Templates = Format | str | Sequence[Format | str]


def listed(given: Templates) -> list[Format | str]:
    """One format or several, as a list."""
    return [given] if isinstance(given, Format | str) else list(given)


def as_formats(given: Templates) -> list[Format]:
    """One format or several, as formats; at least one."""
    several = listed(given)
    if not several:
        raise InputError(
            "planting needs at least one format, but none was given; give one such as 'my pin is {digits:4}'"
        )
    return [Format(each) if isinstance(each, str) else each for each in several]


def as_source_formats(given: Templates | None, fields: Fields) -> list[Format] | None:
    """The formats of the source side, which pairs have and other corpora do not."""
    if (given is None) != (fields.source is None):
        missing, there = (
            ("source format", "source field") if given is None else ("source field", "source format")
        )
        raise CorpusError(
            f"pairs need a source field and source formats, but there is a {there} and no {missing}; give both"
        )
    return None if given is None else as_formats(given)


def draw_canaries(
    formats: Sequence[Format],
    source_formats: Sequence[Format] | None,
    options: PlantOptions,
    frame: Frame | None = None,
) -> CanarySet:
    """Draw canaries and references of each format, and toss the coins that withhold some."""
    if source_formats is not None and len(source_formats) != len(formats):
        raise CorpusError(
            f"pairs need a source format for each format, but there are {len(source_formats)} for {len(formats)}"
        )
    _check_distinct(formats, source_formats)
    wanted, canaries = options.canaries * len(options.repeat), list[str]()
    drawn: list[Canary] = []
    references: dict[str, Sequence[str]] = {}
    named = {f"f{number}": secret for number, secret in enumerate(formats)}
    sources = {f"f{number}": secret for number, secret in enumerate(source_formats or ())}
    for format_id, secret in named.items():
        source = sources.get(format_id)
        if source is not None and source.words != secret.words:
            raise CorpusError(
                f"both sides of a pair need the same words, but those of {secret.template!r} differ"
            )
        # Before the coins are tossed, which decide by themselves what is planted.
        chosen = _apart(_candidates(format_id, secret, options), wanted, canaries, either_way=True)
        for place, text in enumerate(chosen):
            drawn.append(_canary(format_id, place, text, options, secret, source))
        canaries += chosen
    taken = set(canaries)
    for format_id, secret in named.items():
        others = (text for text in _candidates(format_id, secret, options) if text not in taken)
        references[format_id] = _apart(others, options.references, canaries)
    return CanarySet(
        drawn,
        named,
        references=references,
        source_formats=sources,
        seed=options.seed,
        withhold=options.withhold,
        frame=frame,
    )


def _apart(
    candidates: Iterable[str], number: int, others: Sequence[str], *, either_way: bool = False
) -> list[str]:
    """The first candidates that are no part of another canary, or as `either_way` says one of them; nested ones where there are no more.

    The model would be trained on what is part of a planted text, also where a coin withheld it.
    """
    kept, nested, whole = list[str](), list[str](), "\0\0".join(others)
    for text in candidates:
        if len(kept) == number:
            break
        if text in whole or (either_way and any(other in text for other in [*others, *kept])):
            nested.append(text)
            continue
        kept.append(text)
        whole += f"\0\0{text}" if either_way else ""
    return [*kept, *nested][:number]


def _candidates(format_id: str, secret: Format, options: PlantOptions) -> Iterator[str]:
    """Members in a random order: as many as canaries and references need, and others in case some of these are part of another."""
    texts = _sampled(format_id, secret, options)
    yield from texts
    chance = child_seed(options.seed, "plant", format_id, "more")
    more = secret.sample(min(secret.size, 2 * len(texts)), chance, replace=False)
    known = set(texts)
    yield from (text for text in more if text not in known and text)


def _sampled(format_id: str, secret: Format, options: PlantOptions) -> list[str]:
    """The texts of the canaries of a format, and after them those of its references."""
    wanted = options.canaries * len(options.repeat)
    if wanted + options.references > secret.size:
        raise NotMeasurableError(
            f"format {secret.template!r} has {secret.size:,} members, too few for {wanted:,} canaries and "
            f"{options.references:,} references; ask for fewer, or use a larger format"
        )
    chance = child_seed(options.seed, "plant", format_id)
    texts = secret.sample(wanted + options.references, chance, replace=False)
    if "" in texts:
        raise CorpusError(
            f"the empty text is a member of {secret.template!r} and occurs in every document; "
            "use a format whose members all have some text"
        )
    return texts


def _canary(
    format_id: str, place: int, text: str, options: PlantOptions, secret: Format, source: Format | None
) -> Canary:
    count = options.repeat[place // options.canaries]
    canary_id = f"{format_id}-x{count}-{place % options.canaries}"
    coin = integers(options.seed, "plant", "withhold", canary_id).random()
    return Canary(
        canary_id=canary_id,
        format_id=format_id,
        text=text,
        repetitions=count,
        planted=coin >= options.withhold,
        source=None if source is None else source.fill(secret.fillings(text)),
    )


def _check_distinct(formats: Sequence[Format], sources: Sequence[Format] | None) -> None:
    """Raise an InputError for two formats that make the same strings, even if they are written differently.

    >>> _check_distinct([Format("pin {digits:2}"), Format("pin {re:[0-9]{2}}")], None)
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


def check_room(drawn: CanarySet, text_bytes: int, options: PlantOptions) -> list[str]:
    """Raise a CorpusError if the planted canaries have more text than the corpus itself, and return a warning if they have much of it."""
    planted = [canary for canary in drawn if canary.planted]
    copies = sum(canary.repetitions for canary in planted)
    ours = sum(canary.repetitions * len(canary.text.encode("utf-8")) for canary in planted)
    what = f"{copies:,} copies of canaries with {ours:,} bytes of text"
    advice = "use a larger corpus"
    if max(options.repeat) > 1:
        advice = f"plant fewer copies than {','.join(map(str, options.repeat))}, or {advice}"
    if options.canaries > 1:
        advice = f"ask for fewer canaries than {options.canaries} per number of copies, {advice}"
    if ours > text_bytes:
        raise CorpusError(f"a corpus with {text_bytes:,} bytes of text cannot hold {what}; {advice}")
    share = ours / (text_bytes + ours)
    if share <= _LARGEST_SHARE:
        return []
    return [
        f"{what} are {100 * share:.0f}% of the planted corpus, and the model spends as much of its training on them; {advice}"
    ]


def nested_warnings(drawn: CanarySet) -> list[str]:
    """A warning if some texts are part of a planted one, so that the model sees them more often than planned."""
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
        f"{' and '.join(parts)} part of a planted text, so the model is trained on them too and they blur every comparison; use formats "
        "whose members cannot be part of each other, such as holes of one length"
    )
    return [sentence]

"""The registry of kinds of secrets: one line per kind, and kinds made of a user's own formats."""

from __future__ import annotations

from collections.abc import Sequence

from coalmine.corpus.secrets.contacts import EMAIL, PHONE
from coalmine.corpus.secrets.credentials import CREDENTIALS
from coalmine.corpus.secrets.folding import folded_text
from coalmine.corpus.secrets.identifiers import CARD, IBAN, SSN
from coalmine.corpus.secrets.kind import SecretKind
from coalmine.errors import InputError
from coalmine.formats.format import Format
from coalmine.formats.naming import format_name

# Where two kinds match at the same place, the first one that passes its check is taken.
KINDS: dict[str, SecretKind] = {
    kind.name: kind
    for kind in (
        CARD,
        SSN,
        PHONE,
        IBAN,
        *CREDENTIALS,
        EMAIL,
    )
}
# This many characters of a format are looked for; the others are checked where these are found.
_LOOKED_FOR = 24
_LONGEST_MEMBER = 2000


def chosen_kinds(
    names: Sequence[str] | None = None, formats: Sequence[Format | str] = ()
) -> tuple[SecretKind, ...]:
    """The kinds of these names, all by default, after those of a user's formats.

    >>> [kind.name for kind in chosen_kinds(["email", "ssn"], ["employee {digits:6}"])]
    ['employee {digits:6}', 'ssn', 'email']
    """
    own = tuple(kind_of_format(form) for form in formats)
    for name in names or ():
        if name not in KINDS:
            from difflib import get_close_matches

            near = get_close_matches(name, KINDS, n=1)
            advice = f"did you mean {near[0]!r}? Known" if near else "known"
            raise InputError(f"{name!r} is not a kind of secret; {advice} are {', '.join(KINDS)}")
    kinds = own + tuple(kind for name, kind in KINDS.items() if names is None or name in names)
    if not kinds:
        raise InputError(
            "there is nothing to look for: neither a kind nor a format was given; name a kind, such as ssn"
        )
    if len({kind.name for kind in kinds}) < len(kinds):
        raise InputError("the same format was given twice; give each once")
    return kinds


def kind_of_format(form: Format | str) -> SecretKind:
    """The kind of secrets that are members of a format; none continues with a letter or a digit before or after it.

    >>> kind = kind_of_format("employee {digits:6}")
    >>> kind.part("employee 004711 and more"), kind.part("employee 0047112")
    ('employee 004711', None)
    """
    given = form if isinstance(form, Format) else Format(form)
    words = None if given.words is None else [folded_text(word) for word in given.words]
    made = Format(folded_text(given.template), words=words)
    if made.max_length > _LONGEST_MEMBER:
        raise InputError(
            f"members of a format that is scanned for can have {_LONGEST_MEMBER:,} characters at most, but those of "
            f"{given!r} have up to {made.max_length:,}; scan for a part of it"
        )
    layers = made.automaton.layers(min(max(made.min_length, 1), _LOOKED_FOR))
    bounded = r"\b" if all(map(_is_word, layers[0])) else ""
    return SecretKind(
        name=format_name(given.template),
        title="members of your format",
        pattern=bounded + "".join(map(_any_of, layers)),
        begins=f"[{_class(layers[0])}]" if layers[0].isascii() else r"[\x00-\xff]",
        after=r"[\x00-\xfe]*",
        part=lambda text: _longest_member(made, text),
        check=lambda text: text,
        sensitivity=4,
        written_as=given.template,
    )


def _longest_member(form: Format, text: str) -> str | None:
    end = form.automaton.longest_match(text, 0)
    if not end or (end < len(text) and _is_word(text[end - 1]) and _is_word(text[end])):
        return None
    return text[:end]


def _is_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _any_of(characters: str) -> str:
    """A pattern for one of these characters, in UTF-8."""
    ascii_only = "".join(filter(str.isascii, characters))
    others = [one for one in characters if not one.isascii()]
    ways = [f"[{_class(ascii_only)}]"] if ascii_only else []
    if len(others) > _LOOKED_FOR:
        ways.append(r"[\xc2-\xf4][\x80-\xbf]{1,3}")
    else:
        ways += ["".join(f"\\x{byte:02x}" for byte in one.encode()) for one in others]
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _class(characters: str) -> str:
    return "".join(f"\\x{ord(one):02x}" for one in characters if one.isascii())

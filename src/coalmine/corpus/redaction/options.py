"""What can be chosen about redaction: `RedactOptions`, filled by `redact` and by `coalmine data redact`, and the action for each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self, get_args

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.secrets.kind import SecretKind
from coalmine.corpus.secrets.kinds import KINDS, chosen_kinds
from coalmine.errors import InputError
from coalmine.records.options import Option, Options

Action = Literal["mask", "replace", "drop", "drop-line", "keep"]
# What all formats of the user's are called where actions are chosen, and in the record.
OWN = "format"


class RedactOptions(Options, frozen=True, kw_only=True):
    """What becomes of the secrets of each kind; the same options and key give the same files.

    Attributes:
        mask, replace, drop, drop_line, keep: names of kinds with commas between, such as "email,phone"; "format" names your own formats.
            A secret that is masked becomes the name of its kind in brackets; one that is replaced becomes a surrogate, the same for equal
            secrets and keys; "drop" leaves the whole document out, and "drop_line" the line of its text; "keep" leaves it as it is.
        others: what becomes of the kinds that none of these name.
        specimens: whether well-known examples, such as 078-05-1120, are treated as secrets too.
        formats: templates of your own formats.
        fields: which fields of a row hold what; .txt has none. Of pairs, both sides are redacted.

    >>> RedactOptions(mask="email,phone", drop="private-key").action_of(KINDS["email"])
    'mask'
    """

    mask: Annotated[str, Option("Kinds to write as their names in brackets, such as email,phone.")] = ""
    replace: Annotated[str, Option("Kinds to replace with surrogates: equal ones for equal secrets.")] = ""
    drop: Annotated[str, Option("Kinds whose documents are left out.")] = ""
    drop_line: Annotated[str, Option("Kinds whose lines are left out of documents.")] = ""
    keep: Annotated[str, Option("Kinds that stay as they are.")] = ""
    others: Annotated[
        Action, Option("What becomes of all other kinds: mask, replace, drop, drop-line or keep.")
    ] = "mask"
    specimens: Annotated[bool, Option("Treat well-known examples as secrets too.")] = False
    formats: tuple[str, ...] = ()
    fields: Fields = Fields()

    def __post_init__(self) -> None:
        if self.others not in get_args(Action):
            raise InputError(f"others should be one of {', '.join(get_args(Action))}, got {self.others!r}")
        named: dict[str, Action] = {}
        for action in get_args(Action):
            for name in self._named(action):
                before = named.setdefault(name, action)
                if before != action:
                    raise InputError(f"{name} is named for {before} and for {action}; name each kind once")
        chosen_kinds([name for name in named if name != OWN] or None)  # which knows the names

    def checked(self) -> Self:
        """The same, once it is whole: what is done to formats needs some, and something is to be done.

        The command knows formats and fields later than the other options, so this is no part of making them.
        """
        if not self.formats and any(OWN in self._named(action) for action in get_args(Action)):
            raise InputError(
                f"{OWN} names your own formats, and none was given; give one, or leave {OWN} out"
            )
        if any(name_of(kind) == OWN and self.action_of(kind) == "replace" for kind in self.kinds):
            raise InputError(
                "a format of your own has no members that are reserved for surrogates, so a scan would find them again; mask or drop them"
            )
        if all(self.action_of(kind) == "keep" for kind in self.kinds):
            raise InputError(
                "there is nothing to redact, because all kinds are kept; name one to mask, replace or drop"
            )
        return self

    @property
    def kinds(self) -> tuple[SecretKind, ...]:
        """All kinds that are looked for."""
        return chosen_kinds(None, self.formats)

    @property
    def replaces(self) -> bool:
        """Whether a kind is replaced with surrogates, so that a key is needed."""
        return any(self.action_of(kind) == "replace" for kind in self.kinds)

    def action_of(self, kind: SecretKind) -> Action:
        """What becomes of the secrets of a kind."""
        name = name_of(kind)
        actions: Sequence[Action] = get_args(Action)
        return next((action for action in actions if name in self._named(action)), self.others)

    def _named(self, action: Action) -> list[str]:
        given: str = getattr(self, action.replace("-", "_"))
        return [name.strip() for name in given.split(",") if name.strip()]


def name_of(kind: SecretKind) -> str:
    """What a kind is called where actions are chosen."""
    return kind.name if KINDS.get(kind.name) is kind else OWN

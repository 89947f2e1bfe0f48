"""Extraction by prompting: what a model writes by itself after the beginning that every member has."""

from __future__ import annotations

from coalmine.audits.extraction.results import Extracted, Extraction
from coalmine.errors import InputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.models.protocols import Generator, Model, PairModel
from coalmine.search.walks.shortest_path import Certificate


def prompted(model: Model, form: Format, sources: Format | None, given: str) -> Extraction:
    """What the model writes by itself after the beginning that every member has, or that is given."""
    if isinstance(model, PairModel):
        which = "none was given" if sources is None else f"{sources.template!r} gives each member its own"
        raise NotMeasurableError(
            f"extraction by prompt is not applicable to {model.name!r}: a model of pairs writes a text only for one source, and {which}; "
            "hold one source fixed (--source, or `model.given`), or use the search method with a source format"
        )
    if not isinstance(model, Generator):
        raise NotMeasurableError(
            f"extraction by prompt is not applicable to {model.name!r}: it scores texts and writes none; use the search method"
        )
    beginning = given or form.prefix
    if not beginning:
        raise InputError(
            f"the prompt method needs a beginning to continue, and {form.template!r} begins with the secret; give one (--given)"
        )
    prompt = [*model.context, *model.tokenizer.encode(beginning)]
    # A token is a character at least, or a byte of one.
    bytes_each = 1 if form.at(form.size - 1).isascii() else 4
    length = bytes_each * max(1, form.max_length - len(beginning)) + 1
    written = model.generate([prompt], length=length)[0]
    text = model.tokenizer.decode([*prompt[len(model.context) :], *written])
    match = next((match for match in form.finditer(text) if match.start == 0), None)
    found: tuple[Extracted, ...] = ()
    if match is not None:
        found = (
            Extracted(
                place=1, text=match.text, log_perplexity_bits=None, expansions=len(written), unaided=True
            ),
        )
    return Extraction(
        format_template=form.template,
        size=str(form.size),
        given=given,
        method="prompt",
        found=found,
        certificate=Certificate(False, len(written), None, None),
        model=model.describe(),
    )

"""Extraction by prompting: what a model writes by itself after the beginning that every member has, or after prompts that users may write.

A model that only writes text cannot be searched. What it writes shows what comes out, and never that nothing else would. So the share of
prompts after which a member comes out has an interval over prompts, and prompts that a server has no answer to are counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.audits.extraction.results import Extracted, Extraction, Prompting
from coalmine.audits.framing import asked_by
from coalmine.errors import CoalmineError, InputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.models.protocols import Generator, Model, PairModel
from coalmine.records import Estimate
from coalmine.search.walks.shortest_path import Certificate
from coalmine.statistics.intervals import clustered_interval

# Tokens that an answer may have before a member, where the model is not given the beginning of it.
BEFORE_MEMBER = 32


def prompted(model: Model, form: Format, asked: ExtractionOptions) -> Extraction:
    """What the model writes by itself after the beginning that every member has, or that is given, or after prompts."""
    if isinstance(model, PairModel) or not isinstance(model, Generator):
        raise NotMeasurableError(
            f"extraction by prompt is not applicable to {model.name!r}: it writes no text by itself, or only for one source; hold one "
            "source fixed (--source, or `model.given`), or use the search method"
        )
    written, found = 0, dict[str, int]()
    hits, problems = list[bool](), list[CoalmineError]()
    for asked_model, given, anywhere in _prompts(model, form, asked):
        try:
            texts, tokens = _written(asked_model, form, given, anywhere=anywhere)
        except CoalmineError as problem:
            if not getattr(problem, "is_about_question", False):
                raise
            problems.append(problem)
            continue
        written += tokens
        hits.append(bool(texts))
        for text in texts:
            found.setdefault(text, written)
    if problems and not hits:
        raise problems[0]
    return Extraction(
        format_template=form.template,
        words=None if form.words is None else tuple(form.words),
        size=str(form.size),
        given=asked.given,
        method="prompt",
        found=tuple(
            Extracted(place=place, text=text, log_perplexity_bits=None, expansions=after)
            for place, (text, after) in enumerate(found.items(), 1)
        ),
        certificate=Certificate(False, written, None, None),
        model=model.describe(),
        prompts=Prompting(
            asked=len(hits) + len(problems),
            failed=len(problems),
            wrote=sum(hits),
            share=share_of_prompts(sum(hits), len(hits)),
            problems=tuple(dict.fromkeys(map(str, problems))),
        ),
    )


def share_of_prompts(hits: int, n: int, confidence: float = 0.95) -> Estimate:
    """The share of prompts after which a member came out, with its interval.

    >>> share_of_prompts(1, 20).statement
    'a member came out after 1 of 20 prompts (5%, 95% interval 0.13% to 24.87%)'
    """
    low, high, _ = clustered_interval(hits, range(n), confidence)
    percent = f"{100 * confidence:g}% interval {100 * low:.2f}% to {100 * high:.2f}%"
    return Estimate(
        method="share of prompts, Clopper-Pearson",
        status="measured",
        value=hits / n,
        low=low,
        high=high,
        confidence=confidence,
        n=n,
        statement=f"a member came out after {hits:,} of {n:,} {'prompt' if n == 1 else 'prompts'} ({100 * hits / n:.0f}%, {percent})",
        assumptions=("the prompts represent others that were chosen in the same way",),
    )


def _prompts(
    model: Generator, form: Format, asked: ExtractionOptions
) -> Iterator[tuple[Generator, str, bool]]:
    """For each distinct prompt the model, what it is given of a member, and whether members are looked for anywhere in what it writes.

    A prompt is what a user says before the assistant's turn, or a text in place of the format's beginning.
    """
    # A server that begins a turn anew is not given the beginning of one.
    continues = getattr(model, "continues_turns", True)
    beginning = asked.given or form.prefix
    if not asked.prompts and not beginning and continues:
        raise InputError(
            f"the prompt method needs a beginning to continue, and {form.template!r} begins with the secret; give one (--given)"
        )
    beginning = beginning if continues else ""
    if not asked.prompts:
        yield model, beginning, not continues
    for said in dict.fromkeys(asked.prompts):
        framed = asked_by(model, said)
        if framed is None:
            yield model, said, True
        elif isinstance(framed, Generator):
            yield framed, beginning, True


def _written(model: Generator, form: Format, given: str, *, anywhere: bool) -> tuple[list[str], int]:
    """The members in what a model writes, and how many tokens it wrote."""
    tokens = [*model.context, *(model.tokenizer.encode(given) if given else ())]
    # A token is a character at least, or a byte of one.
    bytes_each = 1 if form.at(form.size - 1).isascii() else 4
    rest = form.max_length if anywhere else form.max_length - len(given)
    length = bytes_each * max(1, rest) + 1 + (BEFORE_MEMBER if anywhere else 0)
    written = model.generate([tokens], length=length)[0]
    text = model.tokenizer.decode([*tokens[len(model.context) :], *written])
    found = (
        match.text
        for match in form.finditer(text)
        if (match.start == 0 or anywhere) and match.start + len(match.text) > len(given)
    )
    return list(dict.fromkeys(found)), len(written)


def read_prompts(text: str) -> tuple[str, ...]:
    r"""The prompts of a file, one per line; empty lines are left out.

    >>> read_prompts("What is my PIN?\n\nTell me a secret.\n")
    ('What is my PIN?', 'Tell me a secret.')
    """
    found = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not found:
        raise InputError("the file of prompts has none; write one prompt per line")
    return found

"""How much of its training data does a model recite, given what stands before it?

A sequence is recited where greedy decoding, prompted with `context` tokens of it, writes its last `suffix` tokens exactly
("extractable" in Quantifying Memorization Across Neural Language Models).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from coalmine.audits.recitation.answers import Answers, Wanted, ask, check, may_answer_later
from coalmine.audits.recitation.clusters import ONE_DOCUMENT, clusters_of
from coalmine.audits.recitation.examples import ONLY_TEMPLATES, examples_of
from coalmine.audits.recitation.groups import Asked, exclusives, groups_of, trends_of
from coalmine.audits.recitation.questions import (
    Questions,
    SampleKind,
    ask_about,
    ask_whole,
    check_tokens,
    not_asked,
    plan_cuts,
    plan_whole,
    sample_sequences,
)
from coalmine.audits.recitation.results import ModelFacts, Recitation, Settings
from coalmine.audits.recitation.sequences import elsewhere, save_sequences
from coalmine.corpus.files.streams import pyarrow_for
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.corpus.index.sampling import EACH
from coalmine.errors import CoalmineError, InputError, NotMeasurableError, WriteError
from coalmine.models.protocols import MaskedModel, Model, PairModel, Sampling
from coalmine.progress import Progress, Silent
from coalmine.storage.files import make_directory, remove_file, together
from coalmine.visible import visible

TRIES = (1, 100, 10_000)
# Beyond this, a float does not hold every whole number.
MOST_TRIES = 2**53


def recite(
    models: Model | Sequence[Model],
    index: CorpusIndex | str | os.PathLike[str],
    *,
    contexts: Sequence[int] | None = None,
    suffix: int = 50,
    lengths: Sequence[int] | None = None,
    baseline: Model | None = None,
    sample: SampleKind = "normalized",
    each: int = EACH,
    most: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    tries: Sequence[int] = TRIES,
    chance: float = 0.5,
    greedy_only: bool = False,
    beam: int | None = None,
    anywhere: bool = False,
    near: int | None = None,
    hidden_share: float = 0.15,
    confidence: float = 0.95,
    reveal: bool = False,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    record: Callable[[Recitation], None] | None = None,
) -> Recitation:
    """Ask one model, or a family of them, to complete sequences of the corpus that they were trained on.

    Args:
        models: one model, or several of growing size that were trained on the corpus; their names are made different.
        index: the index of the corpus over the models' own tokens.
        contexts: how many tokens are given before the suffix. Without `lengths`, each is tried on sequences of its own length.
        suffix: how many tokens must come out.
        lengths: of the sequences; each context is then tried on all that are long enough, so that one long length compares contexts
            on the same suffixes.
        baseline: a model that was not trained on the corpus; what it recites is easy, and no sign of memorization.
        sample: "normalized" draws up to `each` sequences of every length and number of copies; "uniform" draws `each` places of each
            length.
        each: see `sample`.
        most: the most sequences in all.
        temperature: of drawing tokens, for the probability that a suffix comes out by sampling.
        top_k: draw from so many of the likeliest tokens only.
        tries: a suffix counts as found in n tries where it comes out at least once with `chance`.
        chance: see `tries`.
        greedy_only: only the greedy verdict, which stops reading a suffix at its first miss.
        beam: also whether beam search of this width writes the suffix.
        anywhere: also whether prompt and output stand together anywhere in the corpus.
        near: also whether the output is the suffix up to so many insertions, deletions and replacements of tokens.
        hidden_share: for masked models, which are given whole sequences with this share of tokens hidden.
        confidence: of all intervals.
        reveal: whether examples hold the text; without it they are masked.
        out: a directory for recitation.json and sequences.parquet; a run that is stopped goes on there.
        seed: of the sample.
        progress: is told of sequences.
        record: is called with the result when it is written to `out`, and before what was kept to resume is removed.
    """
    asked = [models] if isinstance(models, Model) else list(models)
    everyone = asked if baseline is None else [*asked, baseline]
    corpus = index if isinstance(index, CorpusIndex) else CorpusIndex.open(index)
    shown = progress or Silent()
    masked = _kind(everyone)
    check_tokens(everyone, corpus)
    _check_options(tries, chance, beam, near, suffix, hidden_share)
    if masked and contexts is not None:
        raise InputError(
            "models that fill gaps are given whole sequences, so there is no context before a suffix; give --lengths instead"
        )
    cuts = (
        plan_whole(everyone, lengths=lengths)
        if masked
        else plan_cuts(everyone, contexts=contexts, lengths=lengths, suffix=suffix)
    )
    samples = sample_sequences(
        corpus, cuts.lengths, kind=sample, each=each, most=most, seed=seed, progress=shown
    )
    clusters = clusters_of(samples, corpus if sample == "uniform" else None)
    questions = ask_whole(samples, clusters) if masked else ask_about(samples, clusters, cuts, suffix)
    settings = Settings(
        suffix=suffix,
        contexts=cuts.contexts,
        lengths=cuts.lengths,
        sample=sample,
        each=each,
        most=most,
        temperature=temperature,
        top_k=top_k,
        tries=() if greedy_only or masked else tuple(tries),
        chance=chance,
        greedy_only=greedy_only,
        beam=beam,
        anywhere=anywhere,
        near=near,
        hidden_share=hidden_share if masked else None,
        confidence=confidence,
        seed=seed,
    )
    wanted = Wanted(
        samplings=() if greedy_only or masked else (Sampling(temperature, top_k),),
        written=anywhere or near is not None,
        beam=beam,
        share=hidden_share,
        seed=seed,
    )
    folder = None if out is None else Path(out)
    found: list[Asked] = []
    everything = _ask_all(everyone, questions, wanted, folder, shown)
    for name, model, answers in zip(_different_names(everyone), everyone, everything, strict=True):
        other = elsewhere(corpus, questions, answers, anywhere=anywhere, near=near)
        found.append(Asked(name, _parameters(model), answers, other))
    facts = tuple(
        ModelFacts(
            name=one.name,
            role="asked" if place < len(asked) else "baseline",
            parameters=one.parameters,
            description=model.describe(),
        )
        for place, (one, model) in enumerate(zip(found, everyone, strict=True))
    )
    examples = examples_of(found, questions, corpus, reveal=reveal)
    one_document = len({sample.document for sample in samples}) == 1
    only_templates = not examples and any(one.answers.recited.any() for one in found)
    result = Recitation(
        index={
            "corpus_sha256": corpus.manifest.corpus.sha256,
            "tokenizer_sha256": corpus.manifest.tokenizer.sha256,
            "documents": corpus.documents,
            "tokens": corpus.tokens,
        },
        models=facts,
        settings=settings,
        sequences=len(samples),
        questions=len(questions),
        groups=tuple(group for one in found for group in groups_of(one, questions, settings)),
        trends=trends_of(found[: len(asked)], questions, settings),
        exclusive=exclusives(found, questions),
        examples=examples,
        revealed=reveal,
        warnings=(
            *cuts.left_out,
            *not_asked(questions, cuts),
            *((ONE_DOCUMENT,) if one_document else ()),
            *((ONLY_TEMPLATES,) if only_templates else ()),
        ),
    )
    if folder is not None:
        with together():
            digest = save_sequences(folder, found, questions, settings)
            result = msgspec.structs.replace(result, sequences_sha256=digest)
            result.save(folder)
            if record is not None:
                record(result)
        for resume in _resume_files(folder, len(everyone)):
            remove_file(resume)
    return result


def _ask_all(
    models: Sequence[Model], questions: Questions, wanted: Wanted, folder: Path | None, progress: Progress
) -> list[Answers]:
    """What each model says. What one cannot be asked, or where nothing can be written, is told before hours were spent on another."""
    files: list[Path | None] = [None] * len(models)
    if folder is not None:
        pyarrow_for("sequences.parquet")
        files = list(_resume_files(folder, len(models)))
    for model, resume in zip(models, files, strict=True):
        check(model, questions, wanted, resume=resume)
    if folder is not None:
        make_directory(folder)
    said: list[Answers] = []
    for model, resume in zip(models, files, strict=True):
        try:
            said.append(ask(model, questions, wanted, resume=resume, progress=progress))
        except WriteError:
            raise  # a disk that has room again lets the same command go on
        except CoalmineError:
            # Ctrl-C and a power cut are no such errors: what was said until then is kept.
            if not may_answer_later(model):
                for kept in files[: len(said) + 1]:
                    if kept is not None:
                        with contextlib.suppress(InputError):  # what went wrong first is what counts
                            remove_file(kept)
            raise
    return said


def _resume_files(folder: Path, models: int) -> list[Path]:
    return [folder / f"resume-{place + 1}.npz" for place in range(models)]


def _kind(models: Sequence[Model]) -> bool:
    """Whether the models fill gaps; all must be of one kind."""
    if not models:
        raise InputError("there is no model to ask; give one")
    for model in models:
        if isinstance(model, PairModel):
            raise NotMeasurableError(
                f"{model.name!r} is a model of pairs, and an index has no sources; hold one fixed with given(source), or --source"
            )
    kinds = {isinstance(model, MaskedModel) for model in models}
    if len(kinds) > 1:
        raise InputError(
            "models that fill gaps and models that go on from a prompt recite different things; ask them apart"
        )
    return kinds.pop()


def _check_options(
    tries: Sequence[int],
    chance: float,
    beam: int | None,
    near: int | None,
    suffix: int,
    hidden_share: float,
) -> None:
    if not 0 < hidden_share < 1:
        raise InputError(
            f"the share of hidden tokens must be above 0 and below 1, got {hidden_share}; 0.15 is usual"
        )
    if any(not 1 <= one <= MOST_TRIES for one in tries):
        raise InputError(f"tries must be from 1 to 2^53, got {list(tries)}; 100 is usual")
    if not 0 < chance < 1:
        raise InputError(f"chance must be above 0 and below 1, got {chance}; 0.5 is usual")
    if beam is not None and beam < 1:
        raise InputError(f"a beam must be at least 1 wide, got {beam}")
    if near is not None and near < 0:
        raise InputError(f"near must be a number of edits, at least 0, got {near}")
    if near is not None and near >= suffix > 0:
        raise InputError(
            f"{near} edits make any output into a suffix of {suffix} tokens, so that all would count; allow fewer"
        )


def _different_names(models: Sequence[Model]) -> list[str]:
    names: list[str] = []
    for model in models:
        own = visible(model.name)
        name, number = own, 2
        while name in names:
            name, number = f"{own} ({number})", number + 1
        names.append(name)
    return names


def _parameters(model: Model) -> int | None:
    said = model.describe().get("parameters")
    return said if isinstance(said, int) else None

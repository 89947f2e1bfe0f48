"""Defend: models are trained with and without defenses on one planted corpus, and what each defense does to exposure and loss is measured.

After section 9 of "The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks" (Carlini, Liu, Erlingsson, Kos and
Song, 2019, arXiv:1802.08232), which finds that weight decay, dropout and quantization do not help, and that private training does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coalmine.audits.defenses.corpora import CorporaMaker
from coalmine.audits.defenses.defense import Defense, chosen_defenses, own_defense, parse_defense
from coalmine.audits.defenses.options import DefenseOptions
from coalmine.audits.defenses.recipes import BenchRecipe
from coalmine.audits.defenses.results import RESULT_FILE, TRAININGS_FOLDER, Bench
from coalmine.audits.defenses.running import BenchRun
from coalmine.audits.provenance.own_training import OwnTraining, Train
from coalmine.corpus.files.reading import open_corpus
from coalmine.corpus.planting.options import PlantOptions
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import UNITS_FILE
from coalmine.errors import InputError
from coalmine.formats.format import Format
from coalmine.models.reference.checkpoint import require_torch
from coalmine.progress import Progress, Silent
from coalmine.storage.files import check_places, no_empty_directory
from coalmine.storage.unfinished import sole_use

DEFAULT_FORMAT = "the random number is {digits:6}"
Defenses = Sequence[str] | Mapping[str, "Train | str | None"]


def defend(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    defenses: Defenses,
    options: DefenseOptions | None = None,
    *,
    format: Format | str = DEFAULT_FORMAT,
    planting: PlantOptions | None = None,
    preset: str = "char-lstm",
    base: str | os.PathLike[str] | None = None,
    training: Mapping[str, Any] | None = None,
    engine: Engine | str | None = None,
    progress: Progress | None = None,
    record: Callable[[Bench], None] | None = None,
    **changes: Any,
) -> Bench:
    """Train models with each of several defenses and without any, audit all alike, and compare loss, exposure, epsilon and time.

    Some documents are held out, and canaries are planted in the others, half of them withheld by coins. The models of all defenses are
    trained from the same seeds, read texts with the same tokenizer, and are asked about the same canaries, references and held-out
    documents. Exposures are in bits and losses in bits per character. All models, with their audits beside them, are in `trainings`
    below `out`.

    A run that was stopped resumes when the same call is made again. A call with further defenses or seeds trains only what is missing. A
    model that cannot be trained or audited does not stop the others: its row says why.

    Args:
        corpus: a corpus file of any kind that `read_documents` reads, with single texts.
        out: the directory for everything.
        defenses: names such as "dropout=0.2" or "dedup"; or a mapping, in which these have the value None, and a name of yours has a
            function `train(corpus, out)` or `train(corpus, out, seed)`. It trains on the file `corpus`, may write to the directory
            `out`, and returns a model or the place of one. Under the name `none` it is what the others are compared with.
        options: how many seeds, what is held out, and how models are asked.
        format: the format of the canaries, such as "my code is {unseen:4}", which gives bounds on epsilon more power than digits do.
        planting: how many canaries, and how often; seed and fields are those of `options`.
        preset: a name of `PRESETS`, by which models are trained.
        base: the directory of a causal transformers checkpoint, which is fine-tuned with `FinetuningOptions` instead of training from
            the start; `lora=8` is a defense of such a bench.
        training: options of all trainings that differ from the preset's, such as `{"epochs": 5}`; a defense changes some of them.
            Those of private training, such as `dp_clip`, are for private trainings only.
        engine: where models are trained and asked, such as "processes:4"; the results are the same, except for the time.
        progress: gets each part of the work.
        record: called with the finished result.
        changes: fields of `DefenseOptions` by name, such as `seeds=5`.

    >>> bench = defend("mail.jsonl", "bench/", ["dropout=0.2", "dedup"], training={"epochs": 5})  # doctest: +SKIP
    >>> bench.row("dedup").difference.estimate.statement  # doctest: +SKIP
    '6.10 bits less (95% interval 4.80 to 7.40), p = 0.0001, 48 pairs'
    """
    given = DefenseOptions.of(options, changes)
    with open_corpus(corpus, given.fields):
        pass  # a missing file is reported before anything else
    given.check()
    if given.fields.source is not None:
        raise InputError(
            "defenses are compared on single texts, and the fields name pairs; name the target as the text field"
        )
    chosen, functions = _named(defenses)
    recipe = BenchRecipe.of(
        training or {}, preset=preset, base=None if base is None else Path(base), seed=given.seed
    )
    for one in chosen:
        recipe.options(one.changes(), one.name, given.seed, given.delta)  # which says what is wrong with it
        recipe.check_altering(one)
    recipe.check_private(chosen)
    if len(functions) < len(chosen):
        require_torch("training")
    run = BenchRun(
        CorporaMaker(
            Path(corpus),
            Path(out),
            Path(out) / TRAININGS_FOLDER,
            format,
            planting or PlantOptions(),
            given,
            recipe,
        ),
        chosen,
        functions,
    )
    folder = Path(out)
    check_places(folder, RESULT_FILE, UNITS_FILE)
    with no_empty_directory(folder), sole_use(folder), open_engine(engine) as opened:
        bench = run.result(opened, progress or Silent())
        if record is not None:
            record(bench)
    return bench


def _named(defenses: Defenses) -> tuple[tuple[Defense, ...], dict[str, OwnTraining]]:
    """The defenses in their order, and the functions of those that are the user's, by their names."""
    if isinstance(defenses, str):
        raise InputError(f"defenses are a list of names, got {defenses!r}; put it in a list")
    functions: dict[str, OwnTraining] = {}
    found = []
    for name in defenses:
        function = defenses[name] if isinstance(defenses, Mapping) else None
        if function is None:
            one = parse_defense(name)
        else:
            one = own_defense(name, OwnTraining.of(function).name)
        found.append(one)
        if one.function is not None:
            functions[one.name] = OwnTraining.of(one.function if function is None else function)
    return chosen_defenses(found), functions

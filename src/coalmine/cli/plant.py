"""`coalmine plant`: put canaries into a corpus, or verify that they are there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from coalmine.cli.options import (
    CorpusFields,
    OptionalCorpus,
    Overwrite,
    Printing,
    Words,
    formats_from,
    out_option,
    words_from,
)
from coalmine.cli.output import Output
from coalmine.cli.taking import Arguments, takes
from coalmine.corpus.planting.options import PlantOptions
from coalmine.errors import InputError
from coalmine.records.options import Option
from coalmine.storage.files import check_places

if TYPE_CHECKING:
    from coalmine.corpus.planting.planting import Planted
    from coalmine.formats.format import Format


class Plant(Arguments, frozen=True, kw_only=True):
    """What `coalmine plant` takes."""

    corpus: OptionalCorpus = None
    format: Annotated[
        list[str] | None,
        typer.Option(
            "--format", "-f", help='A secret format, such as "my pin is {digits:4}"; may be given many times.'
        ),
    ] = None
    source_format: Annotated[
        list[str] | None, Option("For pairs: the source side of each --format, in order.")
    ] = None
    words: Words = None
    options: PlantOptions
    out: Annotated[Path | None, out_option("Directory for the planted corpus and canaries.json.")] = None
    verify: Annotated[
        Path | None, Option("Prove that a planted directory matches its canaries.json; plants nothing.")
    ] = None
    overwrite: Overwrite = False
    columns: CorpusFields
    printing: Printing


@takes
def command(given: Plant) -> int:
    """Plant canaries: random secrets in a known format, whose fate in the trained model can be measured.

    Writes DIR/corpus.* and DIR/canaries.json. Both hold secrets and are readable by you only. Train on the first, and keep the
    second for `coalmine expose`. The defaults plant about 336 copies of 48 canaries and withhold 48 more, decided by coins. The
    most that an audit of them can show is reported before you train.
    """
    with given.printing.output() as output:
        if given.verify is not None:
            return _verify(given.verify, output)
        corpus, templates, out = given.corpus, given.format, given.out
        if corpus is None or not templates or out is None:
            missing = "a corpus" if corpus is None else "--format" if not templates else "--out"
            raise InputError(f"planting needs {missing}: coalmine plant CORPUS --format F --out DIR")
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.corpus.planting.planting import plant

        clock = RunClock()
        check_places(out, RUN_FILE)
        listed, sources = words_from(given.words), given.source_format
        made = plant(
            corpus,
            _formats(templates, listed),
            out=out,
            source_format=None if sources is None else _formats(sources, listed),
            options=msgspec.structs.replace(given.options, fields=given.columns.fields()),
            overwrite=given.overwrite,
            progress=output.progress(),
            record=lambda made: clock.save(
                out,
                seed=given.options.seed,
                manifest_sha256=made.canaries.sha256,
                earlier_manifest_sha256=None if made.earlier is None else made.earlier.manifest_sha256,
            ),
        )
        _show(made, output)
    return 0


def _formats(templates: list[str], words: list[str] | None) -> list[Format | str]:
    """Formats, and templates as they are where the corpus decides what fills them."""
    from coalmine.corpus.planting.unseen import has_unseen

    return [one if has_unseen(one) else formats_from([one], words)[0] for one in templates]


def _show(made: Planted, output: Output) -> None:
    from coalmine.reports.terminal import planted_summary

    power = made.canaries.power()
    output.say(planted_summary(made, power))
    output.document(
        {
            "corpus": str(made.corpus),
            "manifest": str(made.manifest),
            "planted": sum(canary.planted for canary in made.canaries),
            "withheld": sum(not canary.planted for canary in made.canaries),
            "references": {name: len(texts) for name, texts in made.canaries.references.items()},
            "manifest_sha256": made.canaries.sha256,
            "power": power,
            "earlier": made.earlier,
            "warnings": [*made.warnings, *power.warnings],
        }
    )


def _verify(directory: Path, output: Output) -> int:
    from coalmine.corpus.planting.verifying import verify_planted
    from coalmine.reports.terminal import verification_summary

    found = verify_planted(directory, progress=output.progress())
    output.say(verification_summary(found))
    output.document(found)
    return 0 if found.ok else 2

"""`coalmine plant`: put canaries into a corpus, or verify that they are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from coalmine.cli.options import (
    Json,
    OptionalCorpus,
    Overwrite,
    Quiet,
    SourceField,
    TargetField,
    TextField,
    UserField,
    Words,
    fields_from,
    formats_from,
    takes,
    words_from,
)
from coalmine.cli.output import Output
from coalmine.corpus.planting.options import PlantOptions
from coalmine.errors import InputError
from coalmine.storage.files import check_places


@takes(options=PlantOptions)
def command(
    *,
    corpus: OptionalCorpus = None,
    secret_format: Annotated[
        list[str] | None,
        typer.Option(
            "--format", "-f", help='A secret format, such as "my pin is {digits:4}"; may be given many times.'
        ),
    ] = None,
    source_format: Annotated[
        list[str] | None,
        typer.Option("--source-format", help="For pairs: the source side of each --format, in order."),
    ] = None,
    words: Words = None,
    options: PlantOptions,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Directory for the planted corpus and canaries.json.")
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(
            "--verify", help="Prove that a planted directory matches its canaries.json; plants nothing."
        ),
    ] = None,
    overwrite: Overwrite = False,
    text_field: TextField = "text",
    user_field: UserField = None,
    source_field: SourceField = None,
    target_field: TargetField = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Plant canaries: random secrets in a known format, whose fate in the trained model can be measured.

    Writes DIR/corpus.* and DIR/canaries.json. Both hold secrets and are readable by you only. Train on the first, and keep the
    second for `coalmine expose`. The defaults plant about 336 copies of 48 canaries and withhold 48 more, decided by coins. The
    most that an audit of them can show is reported before you train.
    """
    with Output(json=json, quiet=quiet) as output:
        if verify is not None:
            return _verify(verify, output)
        if corpus is None or not secret_format or out is None:
            missing = "a corpus" if corpus is None else "--format" if not secret_format else "--out"
            raise InputError(f"planting needs {missing}: coalmine plant CORPUS --format F --out DIR")
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.corpus.planting.planting import plant
        from coalmine.reports.terminal import planted_summary

        clock = RunClock()
        check_places(out, RUN_FILE)
        fields = fields_from(text_field, user_field, source_field, target_field)
        listed = words_from(words)
        made = plant(
            corpus,
            formats_from(secret_format, listed),
            out=out,
            source_formats=None if source_format is None else formats_from(source_format, listed),
            options=msgspec.structs.replace(options, fields=fields),
            overwrite=overwrite,
            progress=output.progress(),
            record=lambda made: clock.save(
                out,
                seed=options.seed,
                manifest_sha256=made.canaries.sha256,
                earlier_manifest_sha256=None if made.earlier is None else made.earlier.manifest_sha256,
            ),
        )
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
    return 0


def _verify(directory: Path, output: Output) -> int:
    from coalmine.corpus.planting.verifying import verify_planted
    from coalmine.reports.terminal import verification_summary

    found = verify_planted(directory, progress=output.progress())
    output.say(verification_summary(found))
    output.document(found)
    return 0 if found.ok else 2

"""`coalmine plant`: put canaries into a corpus, or verify that they are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.options import (
    Json,
    Quiet,
    Seed,
    SourceField,
    TargetField,
    TextField,
    UserField,
    fields_from,
    whole_numbers,
    words_from,
)
from coalmine.cli.output import Output
from coalmine.errors import InputError
from coalmine.storage.files import check_places


def command(
    corpus: Annotated[
        Path | None,
        typer.Argument(
            help="Training data: .txt (one document per line), .jsonl, .csv or .parquet; also .gz, .zst."
        ),
    ] = None,
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
    words: Annotated[
        Path | None,
        typer.Option(
            "--words", help="For {word:n}: a file with one word per line, or a word model's directory."
        ),
    ] = None,
    repeat: Annotated[
        str, typer.Option("--repeat", help="How often canaries are planted: one number or several.")
    ] = "1,4,16",
    canaries: Annotated[
        int, typer.Option("--canaries", help="Canaries for each format and each --repeat.")
    ] = 32,
    references: Annotated[
        int, typer.Option("--references", help="Members of each format to draw and never plant.")
    ] = 1000,
    withhold: Annotated[
        float,
        typer.Option(
            "--withhold", help="Probability with which a canary is not planted, by a coin of its own."
        ),
    ] = 0.5,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Directory for the planted corpus and canaries.json.")
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(
            "--verify", help="Prove that a planted directory matches its canaries.json; plants nothing."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what an earlier run wrote to --out.")
    ] = False,
    text_field: TextField = "text",
    user_field: UserField = None,
    source_field: SourceField = None,
    target_field: TargetField = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Plant canaries: random secrets in a known format, whose fate in the trained model can be measured.

    Writes DIR/corpus.* and DIR/canaries.json. Both hold secrets and are readable by you only. Train on the one, and keep
    the other for `coalmine expose`. The defaults plant about 336 copies of 48 canaries and withhold 48 more, by coins. What an audit
    of them can show at most is reported before you train.
    """
    with Output(json=json, quiet=quiet) as output:
        if verify is not None:
            return _verify(verify, output)
        if corpus is None or not secret_format or out is None:
            missing = "a corpus" if corpus is None else "--format" if not secret_format else "--out"
            raise InputError(f"planting needs {missing}: coalmine plant CORPUS --format F --out DIR")
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.corpus.planting.planting import plant
        from coalmine.formats.format import Format
        from coalmine.reports.terminal import planted_summary

        clock = RunClock()
        check_places(out, RUN_FILE)
        listed = words_from(words)
        made = plant(
            corpus,
            [Format(template, words=listed if "{word:" in template else None) for template in secret_format],
            repeat=whole_numbers(repeat, "--repeat"),
            canaries=canaries,
            references=references,
            withhold=withhold,
            seed=seed,
            out=out,
            fields=fields_from(text_field, user_field, source_field, target_field),
            source_formats=(
                None
                if source_format is None
                else [
                    Format(template, words=listed if "{word:" in template else None)
                    for template in source_format
                ]
            ),
            overwrite=overwrite,
            progress=output.progress(),
            record=lambda made: clock.save(
                out,
                seed=seed,
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
    from coalmine.corpus.planting.verifying import verify
    from coalmine.reports.terminal import verification_summary

    found = verify(directory, progress=output.progress())
    output.say(verification_summary(found))
    output.document(found)
    return 0 if found.ok else 2

"""`coalmine import`: make a canaries.json from canaries that another tool planted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coalmine.cli.options import Json, Quiet, Words, formats_from, takes, words_from
from coalmine.cli.output import Output
from coalmine.corpus.planting.options import ImportOptions
from coalmine.errors import InputError
from coalmine.storage.files import no_empty_directory


@takes(options=ImportOptions)
def command(
    *,
    file: Annotated[
        Path,
        typer.Argument(
            help="memaudit-manifest.json, a SecretsSet of TensorFlow Privacy as JSON, or a table with text, in_out and copies."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for canaries.json.")],
    secret_format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="The format that all texts are members of, if there is one."),
    ] = None,
    words: Words = None,
    options: ImportOptions,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the canaries.json that is there.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Make a canaries.json from another tool's canaries, for `coalmine expose` and `coalmine membership`.

    Canaries that were left out keep the number of copies that they were meant to have. A table is a CSV, JSON Lines or a JSON list
    of objects. Writes DIR/canaries.json, readable by you only.
    """
    with Output(json=json, quiet=quiet) as output, no_empty_directory(out):
        from coalmine.corpus.planting.importing import import_canaries
        from coalmine.corpus.planting.manifest import MANIFEST_NAME
        from coalmine.reports.terminal import imported_summary
        from coalmine.storage.files import check_places, make_directory, read_bytes

        check_places(out, MANIFEST_NAME)
        secret = None
        if secret_format is not None:
            [secret] = formats_from([secret_format], words_from(words))
        imported = import_canaries(file, options=options, format=secret)
        path = make_directory(out) / MANIFEST_NAME
        # A run that was killed after it had written the very same file is not in the way.
        if (
            path.exists()
            and not overwrite
            and read_bytes(path, "the manifest") != imported.canaries.to_bytes()
        ):
            raise InputError(f"{path} exists already; write to another directory, or allow --overwrite")
        imported.canaries.save(path)
        power = imported.canaries.power()
        output.say(imported_summary(imported, path, power))
        output.document(
            {
                "manifest": str(path),
                "tool": imported.tool,
                "planted": sum(canary.planted for canary in imported.canaries),
                "withheld": sum(not canary.planted for canary in imported.canaries),
                "references": {name: len(texts) for name, texts in imported.canaries.references.items()},
                "manifest_sha256": imported.canaries.sha256,
                "power": power,
                "notes": imported.notes,
            }
        )
    return 0

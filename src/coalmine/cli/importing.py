"""`coalmine import`: make a canaries.json from canaries that another tool planted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coalmine.cli.options import Printing, Words, formats_from, out_option, words_from
from coalmine.cli.output import Output
from coalmine.cli.taking import Arguments, takes
from coalmine.corpus.planting.options import ImportOptions
from coalmine.errors import InputError
from coalmine.records.options import Option
from coalmine.storage.files import no_empty_directory

if TYPE_CHECKING:
    from coalmine.corpus.planting.importing import Imported


class Import(Arguments, frozen=True, kw_only=True):
    """What `coalmine import` takes."""

    file: Annotated[
        Path,
        typer.Argument(
            help="memaudit-manifest.json, a SecretsSet of TensorFlow Privacy as JSON, or a table with text, in_out and copies."
        ),
    ]
    out: Annotated[Path, out_option("Directory for canaries.json.")]
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="The format that all texts are members of, if there is one."),
    ] = None
    words: Words = None
    options: ImportOptions
    overwrite: Annotated[bool, Option("Replace the canaries.json that is there.")] = False
    printing: Printing


@takes
def command(given: Import) -> int:
    """Make a canaries.json from another tool's canaries, for `coalmine expose` and `coalmine membership`.

    Canaries that were left out keep the number of copies that they were meant to have. A table is a CSV, JSON Lines or a JSON list
    of objects. Writes DIR/canaries.json, readable by you only.
    """
    with given.printing.output() as output, no_empty_directory(given.out):
        from coalmine.corpus.planting.importing import import_canaries
        from coalmine.corpus.planting.manifest import MANIFEST_NAME
        from coalmine.storage.files import check_places, make_directory, read_bytes

        check_places(given.out, MANIFEST_NAME)
        secret = None
        if given.format is not None:
            [secret] = formats_from([given.format], words_from(given.words))
        imported = import_canaries(given.file, options=given.options, format=secret)
        path = make_directory(given.out) / MANIFEST_NAME
        # A run that was killed after it had written the very same file is not in the way.
        if (
            path.exists()
            and not given.overwrite
            and read_bytes(path, "the manifest") != imported.canaries.to_bytes()
        ):
            raise InputError(f"{path} exists already; write to another directory, or allow --overwrite")
        imported.canaries.save(path)
        _show(imported, path, output)
    return 0


def _show(imported: Imported, path: Path, output: Output) -> None:
    from coalmine.reports.terminal import imported_summary

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

"""`coalmine plant` and `coalmine import`: canaries that are put into a corpus, verified in it, or taken from another tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coalmine.cli.options import (
    CorpusFields,
    OptionalCorpus,
    Overwrite,
    Words,
    format_option,
    formats_from,
    out_option,
    words_from,
)
from coalmine.cli.runner import Session, command
from coalmine.cli.taking import Arguments
from coalmine.corpus.planting.options import ImportOptions, PlantOptions
from coalmine.errors import InputError
from coalmine.records.options import Option

if TYPE_CHECKING:
    from coalmine.corpus.planting.manifest import CanarySet
    from coalmine.corpus.planting.power import Power
    from coalmine.formats.format import Format


class Plant(Arguments, frozen=True, kw_only=True):
    """What `coalmine plant` takes."""

    corpus: OptionalCorpus = None
    format: Annotated[
        list[str] | None,
        format_option('A secret format, such as "my pin is {digits:4}"; may be given many times.'),
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


@command("plant")
def plant(given: Plant, session: Session) -> int | None:
    """Plant canaries: random secrets in a known format, whose fate in the trained model can be measured.

    Writes DIR/corpus.* and DIR/canaries.json. Both hold secrets and are readable by you only. Train on the first, and keep the
    second for `coalmine expose`. The defaults plant about 336 copies of 48 canaries and withhold 48 more, decided by coins. The
    most that an audit of them can show is reported before you train.
    """
    from coalmine.corpus.planting.planting import plant
    from coalmine.reports.terminal import planted_summary

    if given.verify is not None:
        return _verify(given.verify, session)
    corpus, templates, out = given.corpus, given.format, given.out
    if corpus is None or not templates or out is None:
        missing = "a corpus" if corpus is None else "--format" if not templates else "--out"
        raise InputError(f"planting needs {missing}: coalmine plant CORPUS --format F --out DIR")
    session.into(out)
    listed, sources = words_from(given.words), given.source_format
    made = plant(
        corpus,
        _formats(templates, listed),
        out=out,
        source_format=None if sources is None else _formats(sources, listed),
        options=given.columns.into(given.options),
        overwrite=given.overwrite,
        progress=session.progress(),
        record=lambda made: session.record(
            seed=given.options.seed,
            manifest_sha256=made.canaries.sha256,
            earlier_manifest_sha256=None if made.earlier is None else made.earlier.manifest_sha256,
        ),
    )
    power = made.canaries.power()
    session.say(planted_summary(made, power))
    session.document(
        {
            "corpus": str(made.corpus),
            "manifest": str(made.manifest),
            **_told(made.canaries, power),
            "earlier": made.earlier,
            "warnings": [*made.warnings, *power.warnings],
        }
    )
    return None


def _formats(templates: list[str], words: list[str] | None) -> list[Format | str]:
    """Formats, and templates as they are where the corpus decides what fills them."""
    from coalmine.corpus.planting.unseen import has_unseen

    return [one if has_unseen(one) else formats_from([one], words)[0] for one in templates]


def _told(canaries: CanarySet, power: Power) -> dict[str, Any]:
    """What the JSON document says of canaries."""
    return {
        "planted": sum(canary.planted for canary in canaries),
        "withheld": sum(not canary.planted for canary in canaries),
        "references": {name: len(texts) for name, texts in canaries.references.items()},
        "manifest_sha256": canaries.sha256,
        "power": power,
    }


def _verify(directory: Path, session: Session) -> int:
    from coalmine.corpus.planting.verifying import verify_planted
    from coalmine.reports.terminal import verification_summary

    found = verify_planted(directory, progress=session.progress())
    session.say(verification_summary(found))
    session.document(found)
    return 0 if found.ok else 2


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
        str | None, format_option("The format that all texts are members of, if there is one.")
    ] = None
    words: Words = None
    options: ImportOptions
    overwrite: Annotated[bool, Option("Replace the canaries.json that is there.")] = False


@command("import")
def import_(given: Import, session: Session) -> None:
    """Make a canaries.json from another tool's canaries, for `coalmine expose` and `coalmine membership`.

    Canaries that were left out keep the number of copies that they were meant to have. A table is a CSV, JSON Lines or a JSON list
    of objects. Writes DIR/canaries.json, readable by you only.
    """
    from coalmine.corpus.planting.importing import import_canaries
    from coalmine.corpus.planting.manifest import MANIFEST_NAME
    from coalmine.reports.terminal import imported_summary
    from coalmine.storage.files import make_directory, read_bytes

    session.into(given.out, MANIFEST_NAME, recorded=False)
    secret = None
    if given.format is not None:
        [secret] = formats_from([given.format], words_from(given.words))
    imported = import_canaries(given.file, options=given.options, format=secret)
    canaries, path = imported.canaries, make_directory(given.out) / MANIFEST_NAME
    # A run that was killed after it had written the very same file is not in the way.
    if path.exists() and not given.overwrite and read_bytes(path, "the manifest") != canaries.to_bytes():
        raise InputError(f"{path} exists already; write to another directory, or allow --overwrite")
    canaries.save(path)
    power = canaries.power()
    session.say(imported_summary(imported, path, power))
    session.document(
        {
            "manifest": str(path),
            "tool": imported.tool,
            **_told(canaries, power),
            "notes": imported.notes,
        }
    )

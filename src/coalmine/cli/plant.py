"""`coalmine plant`: canaries that are put into a corpus, or taken from another tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from coalmine.cli.options import CorpusFields, OptionalCorpus, Overwrite, Words, formats_from, words_from
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments, Part
from coalmine.corpus.planting.options import PlantOptions
from coalmine.errors import InputError

if TYPE_CHECKING:
    from coalmine.corpus.planting.manifest import CanarySet
    from coalmine.corpus.planting.power import Power
    from coalmine.formats.format import Format


class Plant(Arguments, frozen=True, kw_only=True):
    """What `coalmine plant` takes.

    Attributes:
        format: A secret format, such as "my pin is {digits:4}"; may be given many times.
        source_format: For pairs: the source side of each --format, in order.
        out: Directory for the planted corpus and canaries.json.
        from_: Instead of CORPUS: canaries of another tool, as memaudit-manifest.json, a SecretsSet of TensorFlow Privacy as JSON, or a
            table with text, in_out and copies.
        withhold: Probability that a canary is not planted, decided by its own coin; default: 0.5, and with --from what the file says.
    """

    corpus: OptionalCorpus = None
    format: list[str] | None = None
    source_format: list[str] | None = None
    words: Words = None
    from_: Path | None = None
    out: Path
    overwrite: Overwrite = False
    options: Annotated[
        PlantOptions,
        Part(
            ("repeat", "canaries", "references", "role", "turn", "beside", "seed"),
            title="What is planted",
            without=("withhold",),
        ),
    ]
    withhold: Annotated[float | None, Part(title="What is planted")] = None
    columns: CorpusFields


def plant(given: Plant, session: Session) -> None:
    """Plant canaries: random secrets in a known format, whose fate in the trained model can be measured.

    Writes DIR/corpus.* and DIR/canaries.json. Both hold secrets and are readable by you only. Train on the first, and keep the
    second for `coalmine expose`. The defaults plant about 336 copies of 48 canaries and withhold 48 more, decided by coins. The
    most that an audit of them can show is reported before you train.

    With --from, nothing is planted: canaries.json is made from another tool's canaries. Those that were left out keep the number of
    copies that they were meant to have.
    """
    if given.from_ is not None:
        if given.corpus is not None or given.source_format is not None:
            raise InputError(
                "--from reads canaries that were planted already; leave out CORPUS and --source-format"
            )
        _import(given, given.from_, session)
    elif given.corpus is None or not given.format:
        missing = "a corpus" if given.corpus is None else "--format"
        raise InputError(f"planting needs {missing}: coalmine plant CORPUS --format F --out DIR")
    else:
        _plant(given, given.corpus, given.format, session)


def _plant(given: Plant, corpus: Path, templates: list[str], session: Session) -> None:
    from coalmine.corpus.planting.planting import plant
    from coalmine.reports.terminal import planted_summary

    session.into(given.out)
    listed, sources = words_from(given.words), given.source_format
    made = plant(
        corpus,
        _formats(templates, listed),
        out=given.out,
        source_format=None if sources is None else _formats(sources, listed),
        options=given.columns.into(given.options),
        withhold=PlantOptions().withhold if given.withhold is None else given.withhold,
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


def _import(given: Plant, file: Path, session: Session) -> None:
    """Make a canaries.json from another tool's canaries."""
    from coalmine.corpus.planting.importing import import_canaries
    from coalmine.corpus.planting.manifest import MANIFEST_NAME
    from coalmine.reports.terminal import imported_summary
    from coalmine.storage.files import make_directory, read_bytes

    session.into(given.out, MANIFEST_NAME, recorded=False)
    templates = given.format or []
    if len(templates) > 1:
        raise InputError("--from takes one --format, of which all texts are members")
    secret = next(iter(formats_from(templates, words_from(given.words))), None)
    imported = import_canaries(file, format=secret, withhold=given.withhold)
    canaries, path = imported.canaries, make_directory(given.out) / MANIFEST_NAME
    # A run that was killed after it had written the very same file is not in the way.
    if path.exists() and not given.overwrite and read_bytes(path, "the manifest") != canaries.to_bytes():
        raise InputError(f"{path} exists already; write to another directory, or allow --overwrite")
    canaries.save(path)
    power = canaries.power()
    session.say(imported_summary(imported, path, power))
    session.document(
        {"manifest": str(path), "tool": imported.tool, **_told(canaries, power), "notes": imported.notes}
    )

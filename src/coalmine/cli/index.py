"""`coalmine index`: make a corpus searchable by its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from coalmine.cli.options import (
    Corpus,
    Json,
    Quiet,
    Seed,
    SourceField,
    TargetField,
    TextField,
    fields_from,
    takes,
)
from coalmine.cli.output import Output
from coalmine.corpus.index.options import IndexOptions
from coalmine.storage.files import check_places


@takes(options=IndexOptions)
def command(
    *,
    corpus: Corpus,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the index.")],
    options: IndexOptions,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace another index that is in --out.")
    ] = False,
    text_field: TextField = "text",
    source_field: SourceField = None,
    target_field: TargetField = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Index a corpus, so that `coalmine count` and audits of recitation can look up any sequence of tokens in it.

    The index holds the training data and is readable by you only. Run the same command again to resume a build that was
    stopped. Nothing here is random: --seed changes nothing.
    """
    del seed
    with Output(json=json, quiet=quiet) as output:
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.corpus.index.building import build_index
        from coalmine.visible import visible

        clock = RunClock()
        check_places(out, RUN_FILE)
        index = build_index(
            corpus,
            out,
            options=msgspec.structs.replace(
                options, fields=fields_from(text_field, None, source_field, target_field)
            ),
            overwrite=overwrite,
            progress=output.progress(),
        )
        manifest = index.manifest
        clock.save(out, corpus_sha256=manifest.corpus.sha256, tokenizer_sha256=manifest.tokenizer.sha256)
        output.say(
            f"Indexed {manifest.documents:,} documents, {manifest.tokens:,} tokens ({manifest.tokenizer.kind}), "
            f"shards: {len(manifest.shards)}.\n"
            f'Index: {visible(str(out))}; query it with coalmine count {visible(str(out))} "some text"'
        )
        output.document(manifest)
    return 0

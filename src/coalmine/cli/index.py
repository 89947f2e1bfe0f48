"""`coalmine index`: make a corpus searchable by its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from coalmine.cli.options import Corpus, Printing, Seed, TextFields, out_option
from coalmine.cli.taking import Arguments, takes
from coalmine.corpus.index.options import IndexOptions
from coalmine.engines.options import EngineOptions
from coalmine.records.options import Option
from coalmine.storage.files import check_places


class Index(Arguments, frozen=True, kw_only=True):
    """What `coalmine index` takes."""

    corpus: Corpus
    out: Annotated[Path, out_option("Directory for the index.")]
    options: IndexOptions
    overwrite: Annotated[bool, Option("Replace another index that is in --out.")] = False
    columns: TextFields
    running: EngineOptions
    seed: Seed = 0
    printing: Printing


@takes
def command(given: Index) -> int:
    """Index a corpus, so that `coalmine count` and audits of recitation can look up any sequence of tokens in it.

    The index holds the training data and is readable by you only. Run the same command again to resume a build that was
    stopped. Nothing here is random: --seed changes nothing.
    """
    out = given.out
    with given.printing.output() as output, given.running.opened() as engine:
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.corpus.index.building import build_index
        from coalmine.visible import visible

        clock = RunClock()
        check_places(out, RUN_FILE)
        index = build_index(
            given.corpus,
            out,
            options=msgspec.structs.replace(given.options, fields=given.columns.fields()),
            overwrite=given.overwrite,
            engine=engine,
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

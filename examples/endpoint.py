"""Audit a model behind an endpoint: `coalmine serve` in a process of its own, and an audit that knows only its URL.

    pip install 'coalmine[torch,endpoints,serving]'
    python endpoint.py WORK

With a server of your own, leave out `served` and give its URL to `load_model`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coalmine import expose, load_model, plant, train
from coalmine.corpus import write_embedded_corpus


@contextmanager
def served(model: Path) -> Iterator[str]:
    """The URL of a server that runs as long as the block does."""
    command = [sys.executable, "-m", "coalmine", "serve", str(model), "--port", "0", "--json", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def main(work: Path, *, size: int = 60_000, epochs: int = 4, hidden: int = 128) -> dict[str, float | None]:
    """The exposure of each planted canary, in bits, measured through the endpoint."""
    write_embedded_corpus(work / "corpus.txt", size)
    planted = plant(
        work / "corpus.txt", "my pin is {digits:3}", repeat=[1, 64], canaries=2, withhold=0.0, references=50,
        out=work / "planted", overwrite=True,
    )  # fmt: skip
    train(work / "planted", out=work / "model", epochs=epochs, hidden=hidden)
    with served(work / "model") as url:
        model = load_model(url)
        print(f"{url} is a {model.describe()['capability']}")
        results = expose(model, planted.canaries)
    for result in results:
        print(f"{result.canary_id}, planted {result.repetitions} times: {result.estimate.statement}")
    return {result.canary_id: result.exposure for result in results}


if __name__ == "__main__":
    main(Path(sys.argv[1]))

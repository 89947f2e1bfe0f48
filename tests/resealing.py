"""Results that somebody edited together with every checksum that vouches for them: what no checksum can notice."""

import contextlib
import json
from pathlib import Path

from coalmine.records.documents import write_sealed
from coalmine.storage.files import sha256_of_file

# Where a document keeps the SHA-256 of a file that was written with it.
VOUCHES = {"scores.parquet": ("exposure.json", "scores_sha256")}


@contextlib.contextmanager
def resealed(path):
    """The content of a result as plain JSON; what the block makes of it is written back as if it had always been so."""
    path = Path(path)
    document = json.loads(path.read_bytes())
    del document["checksum"]
    yield document
    write_sealed(path, document)
    vouch_again(path)


def vouch_again(path):
    """Let the document beside a file that was changed say that this is how it was written."""
    path = Path(path)
    if path.name in VOUCHES:
        name, field = VOUCHES[path.name]
        with resealed(path.with_name(name)) as document:
            document[field] = sha256_of_file(path)
    verified = path.with_name("verified.json")
    if path.name.startswith("extraction-") and verified.is_file():
        with resealed(verified) as document:
            document["extractions"][path.name] = sha256_of_file(path)

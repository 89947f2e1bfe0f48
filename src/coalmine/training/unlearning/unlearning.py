"""Unlearning documents from a reference model: what `coalmine unlearn` calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import UNSET

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.reading import read_documents
from coalmine.corpus.outputs import exists_already, first_in_the_way, sole_writing
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.engines.threads import computing_threads
from coalmine.errors import CorpusError, InputError, ModelError
from coalmine.grouped import grouped
from coalmine.models.inference.incremental import StatefulModel
from coalmine.models.loading import load_model
from coalmine.models.protocols import FloatArray, IntArray
from coalmine.models.reference.checkpoint import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    model_files,
    require_torch,
    training_of,
)
from coalmine.models.reference.tokens import ReferenceTokenizer
from coalmine.progress import Progress, Silent
from coalmine.storage.files import FileGroup, check_places, sha256_of_file, together
from coalmine.storage.unfinished import UNFINISHED_FILE
from coalmine.training.changed_models import check_out, made_before, remove_earlier
from coalmine.training.unlearning.options import UnlearnOptions
from coalmine.training.unlearning.record import UNLEARNINGS, LossChange, Unlearning


class _Documents(NamedTuple):
    """What is to be forgotten, and texts of the same kind that were never trained on."""

    texts: list[str]
    sha256: str
    # The format of each text, and by format the texts that were not trained on; empty for a corpus.
    formats: list[str]
    others: dict[str, list[str]]
    what: Literal["references", "withheld canaries"] = "references"


def unlearn(
    model: str | os.PathLike[str],
    documents: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    keep: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    record: Callable[[Unlearning], None] | None = None,
    options: UnlearnOptions | None = None,
    **changes: Any,
) -> Unlearning:
    """Write a copy of a model that was trained to find documents unlikely, with a record of how far it forgot them.

    Gradient ascent, the simplest baseline: each step raises the loss of documents that are still below a limit, and holds the loss of the
    text to keep, if there is one, by descending on it. It is no proof that nothing is left: measure the new model, and compare it with one
    that was trained without the documents. A document that was pushed beyond that stands out too.

    Args:
        model: a directory that `train` wrote, of a model of single texts.
        documents: a corpus file with what to forget, or a canaries.json or secrets.json, whose planted texts are forgotten.
        out: the directory for the new model and unlearning.json.
        keep: a corpus of text whose loss should stay as it is, such as training data without these documents.
        overwrite: replace what an earlier run wrote to `out`. Without it, what the very same call wrote there is left as it is, and
            anything else is refused.
        progress: gets the steps.
        record: called with the result; what it writes appears together with the model.
        options: when to stop, and how fast to go.
        changes: fields of `UnlearnOptions` by name, such as `steps=50`.

    >>> unlearn("model", "planted/canaries.json", "unlearned", keep="corpus.txt").remembered_after  # doctest: +SKIP
    0
    """
    chosen = UnlearnOptions.of(options, changes)
    require_torch("unlearning")
    source, folder = Path(model), Path(out)
    check_out(source, folder)
    written = [WEIGHTS_FILE, CONFIG_FILE, UNLEARNINGS.file]
    check_places(folder, *written, UNFINISHED_FILE)
    forget = _to_forget(Path(documents), chosen.fields)
    kept = None if keep is None else Path(keep)
    places = [] if overwrite else [folder / name for name in written]
    if (there := first_in_the_way(*places)) is not None:
        done = made_before(UNLEARNINGS, folder)
        if done is None or not _is_of(done, source, forget, kept, chosen):
            raise exists_already(there)
        return done
    with sole_writing(folder, written, places), together() as group:
        made = _Unlearner(source, chosen, progress or Silent()).write(forget, kept, folder, group)
        if record is not None:
            record(made)
    return made


def _is_of(
    done: Unlearning, source: Path, forget: _Documents, kept: Path | None, options: UnlearnOptions
) -> bool:
    """Whether the very same call wrote a record."""
    return (done.options, done.weights_sha256_before, done.documents_sha256, done.keep_sha256) == (
        options,
        sha256_of_file(source / WEIGHTS_FILE),
        forget.sha256,
        UNSET if kept is None else sha256_of_file(kept),
    )


def _to_forget(path: Path, fields: Fields) -> _Documents:
    """The texts of a corpus, or the planted texts of a manifest."""
    if path.is_dir() or path.suffix == ".json":
        canaries = CanarySet.load(path)
        planted = [canary for canary in canaries if canary.planted]
        if not planted:
            raise InputError(
                f"{path} has no planted canaries, so there is nothing to forget; give another file"
            )
        texts, formats = [canary.text for canary in planted], [canary.format_id for canary in planted]
        references = {format_id: list(canaries.references[format_id]) for format_id in formats}
        if all(references.values()):
            return _Documents(texts, canaries.sha256, formats, references)
        withheld = grouped((canary.format_id, canary.text) for canary in canaries if not canary.planted)
        others = dict(withheld) if all(format_id in withheld for format_id in formats) else {}
        return _Documents(texts, canaries.sha256, formats, others, "withheld canaries")
    return _Documents(_texts(path, fields), sha256_of_file(path), [], {})


def _texts(path: Path, fields: Fields) -> list[str]:
    found = [document.text for document in read_documents(path, fields) if document.text]
    if not found:
        raise CorpusError(f"{path} has no documents with text; give another file")
    return found


class _Unlearner:
    """One model, and what it is to forget."""

    def __init__(self, source: Path, options: UnlearnOptions, progress: Progress) -> None:
        loaded = load_model(source)
        if not isinstance(loaded, StatefulModel) or not isinstance(loaded.tokenizer, ReferenceTokenizer):
            raise ModelError(
                f"{source} is not a model of single texts of `coalmine train`, the only kind that unlearning is offered for; name one"
            )
        self._source, self._options, self._progress = source, options, progress
        self._network, self._tokenizer = loaded.network, loaded.tokenizer

    def write(self, forget: _Documents, kept: Path | None, folder: Path, group: FileGroup) -> Unlearning:
        """Forget, and write the model and the record."""
        from coalmine.training.unlearning.ascent import ascend

        options = self._options
        texts = self._encoded(forget.texts)
        keep = [] if kept is None else self._encoded(_texts(kept, options.fields))
        limits, until_from = self._limits(forget, keep)
        before, kept_before = self._losses(texts), self._losses(keep)
        self._progress.start("Unlearning", options.steps)
        with computing_threads(1):  # sums are rounded by how they are split
            ended = ascend(self._network, texts, keep, self._separator, limits, options, self._report)
        self._progress.finish()
        files = model_files(self._network, self._tokenizer)
        remove_earlier(folder, {WEIGHTS_FILE: "", CONFIG_FILE: ""}, group)
        files.write(folder)
        made = Unlearning(
            options=options,
            model=self._source.resolve().name,
            weights_sha256_before=sha256_of_file(self._source / WEIGHTS_FILE),
            documents_sha256=forget.sha256,
            keep_sha256=UNSET if kept is None else sha256_of_file(kept),
            data_sha256=training_of(self._source).data_sha256,
            files={name: sha256_of_file(group.where(folder / name)) for name in (WEIGHTS_FILE, CONFIG_FILE)},
            until_bits=float(limits.mean()),
            until_from=until_from,
            steps=ended.steps,
            remembered_before=int((before < limits).sum()),
            remembered_after=int((ended.losses < limits).sum()),
            forget=_change(before, ended.losses),
            keep=UNSET if kept is None else _change(kept_before, self._losses(keep)),
        )
        UNLEARNINGS.save(folder, made)
        return made

    @property
    def _separator(self) -> int:
        return int(self._tokenizer.separator)

    def _encoded(self, texts: Sequence[str]) -> list[IntArray]:
        return [self._tokenizer.encode_document(text) for text in texts]

    def _losses(self, documents: Sequence[IntArray]) -> FloatArray:
        from coalmine.training.unlearning.ascent import losses_bits

        return losses_bits(self._network, documents, self._separator)

    def _limits(self, forget: _Documents, keep: Sequence[IntArray]) -> tuple[FloatArray, Any]:
        """(documents,) the loss at which each counts as forgotten, and where it comes from."""
        number = len(forget.texts)
        if self._options.until is not None:
            return np.full(number, self._options.until), "given"
        if forget.others:
            # By format: nine digits cost less than nine letters, whoever has seen them.
            means = {name: self._losses(self._encoded(texts)).mean() for name, texts in forget.others.items()}
            return np.array([means[format_id] for format_id in forget.formats]), forget.what
        if keep:
            return np.full(number, self._losses(keep).mean()), "text to keep"
        raise InputError(
            "it is not known at which loss a document counts as forgotten; give --until in bits per token, or --keep with text to compare "
            "with"
        )

    def _report(self, step: int, left: int) -> None:
        self._progress.advance(1 if step else 0, f"{left:,} still remembered")


def _change(before: FloatArray, after: FloatArray) -> LossChange:
    return LossChange(documents=len(before), before=float(before.mean()), after=float(after.mean()))

"""Unlearning documents from a reference model: what `coalmine lab alter` calls."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType

from coalmine.engines.threads import computing_threads
from coalmine.errors import InputError, ModelError
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
from coalmine.storage.files import FileGroup, sha256_of_file
from coalmine.training.changed_models import check_out, remove_earlier, write_changed
from coalmine.training.unlearning.documents import Forget, documents_to_forget, texts_of
from coalmine.training.unlearning.options import UnlearnOptions
from coalmine.training.unlearning.record import UNLEARNINGS, LossChange, Unlearning

if TYPE_CHECKING:
    from coalmine.training.unlearning.ascent import ForgetGroup


class _Given(NamedTuple):
    """What a call was given to forget, and to keep."""

    forget: Forget
    keep: list[str]
    keep_sha256: str | UnsetType


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

    Gradient ascent, the simplest baseline: each step raises the loss of documents that still cost less than similar texts that were not
    trained on, as measured in the changed model. The same step descends on the text to keep, if there is some, and on other members of the
    format of canaries, drawn at random and in no manifest. It is no proof that nothing is left: measure the new model, and compare it with
    one that was trained without the documents. A document that was pushed beyond that stands out too.

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
    kept = [] if keep is None else texts_of(Path(keep), chosen.fields)
    given = _Given(
        documents_to_forget(Path(documents), kept, chosen.fields, chosen.seed),
        kept,
        UNSET if keep is None else sha256_of_file(Path(keep)),
    )
    return write_changed(
        UNLEARNINGS,
        folder,
        (WEIGHTS_FILE, CONFIG_FILE),
        lambda group: _Unlearner(source, chosen, progress or Silent()).write(given, folder, group),
        lambda done: _is_of(done, source, given, chosen),
        overwrite=overwrite,
        record=record,
    )


def _is_of(done: Unlearning, source: Path, given: _Given, options: UnlearnOptions) -> bool:
    """Whether the very same call wrote a record."""
    return (done.options, done.weights_sha256_before, done.documents_sha256, done.keep_sha256) == (
        options,
        sha256_of_file(source / WEIGHTS_FILE),
        given.forget.sha256,
        given.keep_sha256,
    )


class _Unlearner:
    """One model, and what it is to forget."""

    def __init__(self, source: Path, options: UnlearnOptions, progress: Progress) -> None:
        loaded = load_model(source, device="cpu")
        if not isinstance(loaded, StatefulModel) or not isinstance(loaded.tokenizer, ReferenceTokenizer):
            raise ModelError(
                f"{source} is not a model of single texts of `coalmine train`, the only kind that unlearning is offered for; name one"
            )
        self._source, self._options, self._progress = source, options, progress
        self._network, self._tokenizer = loaded.network, loaded.tokenizer

    def write(self, given: _Given, folder: Path, group: FileGroup) -> Unlearning:
        """Forget, and write the model and the record."""
        from coalmine.training.unlearning.ascent import Ascent, losses_bits

        options, forget, separator = self._options, given.forget, int(self._tokenizer.separator)
        texts, keep = self._encoded(forget.texts), self._encoded(given.keep)
        groups = self._groups(forget)
        kept_before = losses_bits(self._network, keep, separator)
        self._progress.start("Unlearning", options.steps)
        with computing_threads(1):  # sums are rounded by how they are split
            ascent = Ascent(self._network, separator, texts, groups, keep, options)
            ended = ascent.run(
                lambda steps, left: self._progress.advance(steps, f"{left:,} still remembered")
            )
        self._progress.finish()
        files = model_files(self._network, self._tokenizer)
        remove_earlier(folder, {WEIGHTS_FILE: "", CONFIG_FILE: ""}, group)
        files.write(folder)
        left = len(ended.after.remembered)
        made = Unlearning(
            options=options,
            model=self._source.resolve().name,
            weights_sha256_before=sha256_of_file(self._source / WEIGHTS_FILE),
            documents_sha256=forget.sha256,
            keep_sha256=given.keep_sha256,
            data_sha256=training_of(self._source).data_sha256,
            files={name: sha256_of_file(group.where(folder / name)) for name in (WEIGHTS_FILE, CONFIG_FILE)},
            until_bits_before=float(ended.before.limits.mean()),
            until_bits=float(ended.after.limits.mean()),
            until_from=forget.compared_with if options.until is None else "given",
            compared=sum(len(one.compared) for one in groups) if options.until is None else 0,
            held=sum(len(one.held) for one in groups),
            steps=ended.steps,
            ended="gave up" if left else "reached",
            remembered_before=len(ended.before.remembered),
            remembered_after=left,
            forget=_change(ended.before.losses, ended.after.losses),
            keep=_change(kept_before, losses_bits(self._network, keep, separator)) if keep else UNSET,
        )
        UNLEARNINGS.save(folder, made)
        return made

    def _encoded(self, texts: Sequence[str]) -> list[IntArray]:
        return [self._tokenizer.encode_document(text) for text in texts]

    def _groups(self, forget: Forget) -> list[ForgetGroup]:
        from coalmine.training.unlearning.ascent import ForgetGroup

        if self._options.until is None and forget.compared_with == "nothing":
            raise InputError(
                "it is not known at which loss a document counts as forgotten; give --until in bits per token, or --keep with text to "
                "compare with"
            )
        return [
            ForgetGroup(np.array(kind.places), self._encoded(kind.compared), self._held(kind.others))
            for kind in forget.kinds
        ]

    def _held(self, others: Sequence[str]) -> list[IntArray]:
        """Members of a format, without those that have a character that the model does not know."""
        found = []
        for text in others if self._options.format_weight else ():
            with contextlib.suppress(ModelError):
                found.append(self._tokenizer.encode_document(text))
        return found


def _change(before: FloatArray, after: FloatArray) -> LossChange:
    return LossChange(documents=len(before), before=float(before.mean()), after=float(after.mean()))

"""The questions of recitation: sequences of a sample, cut into the prompt that is given and the suffix that should follow."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from coalmine.audits.recitation.options import RecitationOptions
from coalmine.corpus.index.queries import CorpusIndex, Occurrence
from coalmine.corpus.index.sampling import LENGTHS, Sample, normalized_sample, uniform_sample
from coalmine.corpus.index.tokenizing import tokenizer_sha256
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.protocols import IntArray, Model, max_length
from coalmine.progress import Progress
from coalmine.randomness import arrays

ONE_DOCUMENT = "all sequences are of one document, so the intervals are for this document alone: only sequences that overlap count together"


class Questions(NamedTuple):
    """Sequences of a corpus, each asked about once or several times, with contexts of different length.

    Question i is about sample which[i], of which `contexts[i]` tokens are given before the last `suffix`. A context of 0 is for masked
    models, which are given the sequence with gaps, and for chat endpoints, which are given the conversation before it. Samples of equal
    `clusters` count together, as those of one document do.
    """

    samples: list[Sample]
    which: IntArray
    contexts: IntArray
    suffix: int
    # Of each sample.
    clusters: IntArray
    # What is given in place of a context, for each sample.
    given: tuple[IntArray, ...] | None = None

    def __len__(self) -> int:
        return len(self.which)

    def sample(self, question: int) -> Sample:
        """The sequence that a question is about."""
        return self.samples[int(self.which[question])]

    def prompt(self, question: int) -> IntArray:
        """What is given; nothing for a masked model."""
        if self.given is not None:
            return self.given[int(self.which[question])]
        tokens = self.sample(question).tokens
        context = int(self.contexts[question])
        return (
            tokens[len(tokens) - self.suffix - context : len(tokens) - self.suffix] if context else tokens[:0]
        )

    def target(self, question: int) -> IntArray:
        """What should follow; for a masked model, the whole sequence."""
        tokens = self.sample(question).tokens
        return tokens[len(tokens) - self.suffix :] if self.contexts[question] else tokens

    def select(self, rows: IntArray) -> Questions:
        """Some of the questions, about the same samples."""
        return Questions(
            self.samples, self.which[rows], self.contexts[rows], self.suffix, self.clusters, self.given
        )

    def sha256(self) -> str:
        """A hash that differs between any two sets of questions."""
        digest = hashlib.sha256(repr((self.suffix, len(self.samples))).encode())
        for sample in self.samples:
            digest.update(np.asarray(sample.tokens, dtype=np.int64).tobytes())
        for before in self.given or ():
            digest.update(repr(before.tolist()).encode())
        digest.update(self.which.astype(np.int64).tobytes())
        digest.update(self.contexts.astype(np.int64).tobytes())
        return digest.hexdigest()


class Cuts(NamedTuple):
    """The lengths of sequences that are sampled, and of the contexts that are given; all in tokens."""

    lengths: tuple[int, ...]
    contexts: tuple[int, ...]
    # Whether a context is tried on longer sequences too, and not only on those that are just long enough.
    on_longer: bool = False
    # What was left out, in words.
    left_out: tuple[str, ...] = ()


def plan_cuts(
    models: Sequence[Model],
    *,
    contexts: Sequence[int] | None,
    lengths: Sequence[int] | None,
    suffix: int,
) -> Cuts:
    """The lengths and contexts to use: as given, or the default ones that fit into the models' context.

    Where only contexts are given, each is tried on sequences of its own length: context and suffix. Where lengths are given, each
    context is tried on all sequences that are long enough.
    """
    if suffix < 1:
        raise InputError(f"the suffix must be at least 1 token, got {suffix}; 50 is usual")
    for name, values in (("contexts", contexts), ("lengths", lengths)):
        if values is not None and (not values or min(values) < 1):
            raise InputError(f"{name} must be numbers of tokens, at least 1, got {list(values)}")
    if contexts is not None:
        wanted = sorted(set(contexts))
        for model in models:
            longest = longest_prompt(model, suffix)
            if longest is not None and wanted[-1] > longest:
                raise NotMeasurableError(
                    f"a context of {wanted[-1]} tokens and a suffix of {suffix} are more than {model.name!r} can read; "
                    f"give contexts of up to {longest} tokens"
                )
        sampled = sorted(set(lengths)) if lengths is not None else [context + suffix for context in wanted]
        if wanted[-1] + suffix > sampled[-1]:
            raise InputError(
                f"a context of {wanted[-1]} tokens and a suffix of {suffix} do not fit into sequences of {sampled[-1]}; give longer "
                "lengths, or a shorter context"
            )
        return Cuts(tuple(sampled), tuple(wanted), on_longer=lengths is not None)
    sampled = sorted(set(lengths or LENGTHS))
    room = min(
        (longest for model in models if (longest := longest_prompt(model, suffix)) is not None), default=None
    )
    wanted = sorted({length - suffix for length in sampled if length > suffix})
    fitting = [context for context in wanted if room is None or context <= room]
    if not fitting:
        raise NotMeasurableError(
            f"no sequence of {', '.join(map(str, sampled))} tokens has room for a context before a suffix of {suffix}, or none that the "
            "models can read; give other lengths, or a shorter suffix"
        )
    left_out: tuple[str, ...] = ()
    if fitting != wanted:
        left_out = (
            f"contexts of more than {room} tokens were left out, because not all models can read as much before {suffix} more",
        )
    return Cuts(tuple(context + suffix for context in fitting), tuple(fitting), left_out=left_out)


def plan_whole(models: Sequence[Model], *, lengths: Sequence[int] | None) -> Cuts:
    """The lengths of sequences that are given whole, to models that fill gaps: as given, or the default ones that all models can read."""
    if lengths is not None and (not lengths or min(lengths) < 1):
        raise InputError(f"lengths must be numbers of tokens, at least 1, got {list(lengths)}")
    wanted = sorted(set(lengths or LENGTHS))
    limits = [most - len(model.context) for model in models if (most := max_length(model)) is not None]
    room = min(limits, default=None)
    fitting = [length for length in wanted if room is None or length <= room]
    if fitting == wanted:
        return Cuts(tuple(wanted), ())
    if lengths is not None or not fitting:
        raise NotMeasurableError(
            f"sequences of {wanted[-1]} tokens are more than the models can read; give --lengths of up to {room} tokens"
        )
    left_out = f"sequences of more than {room} tokens were left out, because not all models can read as much"
    return Cuts(tuple(fitting), (), left_out=(left_out,))


def longest_prompt(model: Model, suffix: int) -> int | None:
    """How long a prompt may be for a suffix to fit after it; None if there is no known limit."""
    most = max_length(model)
    # The last token of a suffix is predicted, and never read.
    return None if most is None else most - len(model.context) - suffix + 1


def check_tokens(models: Sequence[Model], index: CorpusIndex) -> None:
    """Reject models whose tokens are not those of the index: a sequence of other tokens is another sequence."""
    expected = index.manifest.tokenizer.sha256
    for model in models:
        try:
            same = tokenizer_sha256(model.tokenizer) == expected
        except InputError:
            same = False
        if not same:
            raise InputError(
                f"the index holds tokens of kind {index.tokenizer.kind!r} that are not those of {model.name!r}; index the corpus with "
                "the model's own: `coalmine index CORPUS -o INDEX --tokenizer MODEL`"
            )


def sample_sequences(
    index: CorpusIndex, lengths: Sequence[int], options: RecitationOptions, progress: Progress
) -> list[Sample]:
    """The sequences of a sample, at most `max_sequences` of them in all."""
    options.check_sample()
    each, most, seed = options.per_bucket, options.max_sequences, options.seed
    if options.sample == "normalized":
        samples = normalized_sample(index, lengths=lengths, per_bucket=each, seed=seed, progress=progress)
    else:
        samples = [
            one for length in lengths for one in uniform_sample(index, length=length, size=each, seed=seed)
        ]
    if most is not None and most < 1:
        raise InputError(f"the most sequences to try must be at least 1, got {most}")
    if most is not None and len(samples) > most:
        chosen = arrays(seed, "recite", "subset").choice(len(samples), most, replace=False)
        samples = [samples[place] for place in sorted(chosen.tolist())]
    if not samples:
        raise NotMeasurableError(
            f"no document of the index has a sequence of {min(lengths)} tokens, so nothing can be recited; give shorter lengths"
        )
    return samples


def ask_about(samples: list[Sample], clusters: IntArray, cuts: Cuts, suffix: int) -> Questions:
    """Each sample with each context that it is tried with; neighbors have contexts of one length, and share batches."""
    pairs = [
        (context, place)
        for context in cuts.contexts
        for place, sample in enumerate(samples)
        if sample.length == context + suffix or (cuts.on_longer and sample.length > context + suffix)
    ]
    return _questions(samples, clusters, pairs, suffix)


def not_asked(questions: Questions, cuts: Cuts) -> tuple[str, ...]:
    """A warning about contexts that no document was long enough for."""
    missing = sorted(set(cuts.contexts) - set(questions.contexts.tolist()))
    if not missing:
        return ()
    given = ", ".join(map(str, missing))
    return (
        f"contexts of {given} tokens were not tried, because no sequence has as many before {questions.suffix} more",
    )


def ask_whole(samples: list[Sample], clusters: IntArray) -> Questions:
    """Each sample as a whole, for masked models."""
    return _questions(samples, clusters, [(0, place) for place in range(len(samples))], 0)


def _questions(
    samples: list[Sample], clusters: IntArray, pairs: list[tuple[int, int]], suffix: int
) -> Questions:
    columns: Any = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Questions(samples, columns[1], columns[0], suffix, clusters)


def clusters_of(samples: Sequence[Sample], index: CorpusIndex | None = None) -> IntArray:
    """The cluster of each sequence: a number that is the same for sequences whose first copies are in the same document.

    Sequences that overlap are in one document, and so in one cluster. Where all are of a single document, the clusters are the runs
    of sequences that overlap there. Numbers are in the order of the corpus. A normalized sample holds the places of first copies; for
    a uniform one, which holds those of the copies that were drawn, give the `index` to find them.

    >>> from coalmine.corpus.index.sampling import Sample
    >>> tokens = np.arange(3)
    >>> two = [Sample(3, 0, 1, document, offset, tokens) for document, offset in ((7, 0), (4, 0), (7, 50))]
    >>> clusters_of(two).tolist()
    [1, 0, 1]
    >>> clusters_of([Sample(3, 0, 1, 4, offset, tokens) for offset in (9, 0, 2)]).tolist()
    [1, 0, 0]
    """
    homes = [_first_copy(sample, index) for sample in samples]
    documents = np.array([home.document for home in homes], dtype=np.int64)
    if len(np.unique(documents)) > 1:
        return np.asarray(np.unique(documents, return_inverse=True)[1], dtype=np.int64)
    begins = np.array([home.offset for home in homes], dtype=np.int64)
    ends = begins + np.array([sample.length for sample in samples], dtype=np.int64)
    order = np.lexsort((ends, begins))
    # A run ends where the next sequence begins at or after the end of all before it.
    reached = np.maximum.accumulate(ends[order])
    numbers = np.concatenate([[0], np.cumsum(begins[order][1:] >= reached[:-1])])
    clusters = np.empty(len(samples), dtype=np.int64)
    clusters[order] = numbers
    return clusters


def _first_copy(sample: Sample, index: CorpusIndex | None) -> Occurrence:
    if index is None or sample.count == 1:
        return Occurrence(sample.document, sample.offset)
    return index.locate(sample.tokens, limit=1)[0]

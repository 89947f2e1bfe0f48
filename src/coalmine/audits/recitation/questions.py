"""The questions of recitation: sequences of a sample, cut into the prompt that is given and the suffix that should follow.

A chat endpoint cannot be given any piece of a text, as a local model can. So its sequences are the beginnings of an assistant's turns,
and what is given is the whole conversation before each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from coalmine.audits.recitation.records import RecitationOptions
from coalmine.corpus.index.queries import CorpusIndex, Occurrence
from coalmine.corpus.index.sampling import LENGTHS, Sample, bucket_of, normalized_sample, uniform_sample
from coalmine.corpus.index.tokenizing import tokenizer_sha256
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.protocols import (
    ChatModel,
    ConversationWriter,
    IntArray,
    MaskedModel,
    Model,
    PairModel,
    Scorer,
    TextReciter,
    max_length,
)
from coalmine.progress import Progress
from coalmine.randomness import arrays


@dataclass(frozen=True)
class Questions:
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
        before, context = self.sample(question).tokens[: -self.suffix or None], int(self.contexts[question])
        return before[len(before) - context :]

    def target(self, question: int) -> IntArray:
        """What should follow; for a masked model, the whole sequence."""
        return self.sample(question).tokens[-self.suffix :]

    def sha256(self) -> str:
        """A hash that differs between any two sets of questions."""
        digest = hashlib.sha256(str(self.suffix).encode())
        for tokens in (self.which, self.contexts, *(one.tokens for one in self.samples), *(self.given or ())):
            digest.update(f"{len(tokens)} ".encode() + tokens.astype(np.int64).tobytes())
        return digest.hexdigest()


def plan(
    models: Sequence[Model], index: CorpusIndex, options: RecitationOptions, progress: Progress
) -> tuple[Questions, RecitationOptions]:
    """The questions, and the options with what was left open as it was decided."""
    for model in models:
        _check_reads(model, index)
    kinds = {isinstance(model, MaskedModel) for model in models}
    if len(kinds) != 1:
        raise InputError("give one model or more, which all fill gaps or all continue a prompt")
    [masked] = kinds
    options.check()
    if index.manifest.tokenizer.chat_template_sha256 and any(
        isinstance(model, ConversationWriter) for model in models
    ):
        return _plan_turns(models, index, options)
    lengths, contexts = plan_sizes(models, options, masked=masked)
    samples = _sample(index, lengths, options, progress)
    clusters = clusters_of(samples, index if options.sample == "uniform" else None)
    longer = options.contexts is not None and options.lengths is not None
    questions = ask_about(samples, clusters, contexts, 0 if masked else options.suffix, longer=longer)
    settings = msgspec.structs.replace(
        options,
        contexts=contexts,
        lengths=lengths,
        tries=() if options.greedy_only or masked or any(map(by_text, models)) else tuple(options.tries),
        hidden_share=options.hidden_share if masked else None,
    )
    return questions, settings


def by_text(model: Model) -> bool:
    """Whether a model is judged by the text that it writes: one that gives no probabilities of any text, and every chat endpoint."""
    return isinstance(model, TextReciter) and (not isinstance(model, Scorer) or isinstance(model, ChatModel))


def _check_reads(model: Model, index: CorpusIndex) -> None:
    """Reject a model whose tokens are not those of the index: a sequence of other tokens is another sequence."""
    if isinstance(model, PairModel):
        raise NotMeasurableError(
            f"{model.name!r} is a model of pairs, and an index has no sources; hold one fixed with given(source), or --source"
        )
    if tokenizer_sha256(model.tokenizer) != index.manifest.tokenizer.sha256:
        raise InputError(
            f"the index holds tokens of kind {index.tokenizer.kind!r} that are not those of {model.name!r}; index the corpus with "
            "the model's own: `coalmine data index CORPUS -o INDEX --tokenizer MODEL`"
        )


def plan_sizes(
    models: Sequence[Model], options: RecitationOptions, *, masked: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The lengths and contexts to use, as given or the usual ones that fit into the models' context.

    Where only contexts are given, each is tried on sequences of its own length: context and suffix. Where lengths are given, each
    context is tried on all sequences that are long enough. Masked models are given sequences whole, and have no context.
    """
    if masked and options.contexts is not None:
        raise InputError("models that fill gaps are given whole sequences; give lengths instead of contexts")
    suffix, what = (0, "lengths") if masked else (options.suffix, "contexts")
    lengths = sorted(set(options.lengths or LENGTHS))
    wanted = sorted(set(options.contexts or [length - suffix for length in lengths if length > suffix]))
    if options.contexts is not None and options.lengths is None:
        lengths = [context + suffix for context in wanted]
    if not wanted or wanted[-1] + suffix > lengths[-1]:
        raise InputError(
            f"sequences of {', '.join(map(str, lengths))} tokens have no room for the context and a suffix of {suffix}; give longer "
            "lengths, or a shorter context or suffix"
        )
    # The last token of a suffix is predicted, and never read; of a whole sequence, all are.
    limits = [longest_prompt(model, max(1, suffix)) for model in models]
    room = min((one for one in limits if one is not None), default=wanted[-1])
    fitting = [one for one in wanted if one <= room]
    if not fitting or (fitting != wanted and (options.lengths if masked else options.contexts) is not None):
        raise NotMeasurableError(
            f"{what} of {wanted[-1]} tokens are more than the models can read; give {what} of up to {room} tokens"
        )
    if options.contexts is None:
        lengths = [one + suffix for one in fitting]
    return tuple(lengths), () if masked else tuple(fitting)


def longest_prompt(model: Model, suffix: int) -> int | None:
    """How long a prompt may be for a suffix to fit after it; None if there is no known limit."""
    most = max_length(model)
    return None if most is None else most - len(model.context) - suffix + 1


def _sample(
    index: CorpusIndex, lengths: Sequence[int], options: RecitationOptions, progress: Progress
) -> list[Sample]:
    """The sequences of a sample, at most `max_sequences` of them in all."""
    each, most, seed = options.per_bucket, options.max_sequences, options.seed
    if options.sample == "normalized":
        samples = normalized_sample(index, lengths=lengths, per_bucket=each, seed=seed, progress=progress)
    else:
        samples = [
            one for length in lengths for one in uniform_sample(index, length=length, size=each, seed=seed)
        ]
    if most is not None and len(samples) > most:
        chosen = arrays(seed, "recite", "subset").choice(len(samples), most, replace=False)
        samples = [samples[place] for place in sorted(chosen.tolist())]
    if not samples:
        raise NotMeasurableError(
            f"no document of the index has a sequence of {min(lengths)} tokens, so nothing can be recited; give shorter lengths"
        )
    return samples


def ask_about(
    samples: list[Sample], clusters: IntArray, contexts: Sequence[int], suffix: int, *, longer: bool = False
) -> Questions:
    """Each sample with each context that it is tried with, or as a whole; neighbors have contexts of one length, and share batches.

    With `longer`, a context is tried on longer sequences too, and not only on those that are just long enough.
    """
    pairs = [
        (context, place)
        for context in contexts or (0,)
        for place, sample in enumerate(samples)
        if not context or sample.length == context + suffix or (longer and sample.length > context + suffix)
    ]
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
    homes = [
        Occurrence(one.document, one.offset) if index is None else index.locate(one.tokens, limit=1)[0]
        for one in samples
    ]
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


def _plan_turns(
    models: Sequence[Model], index: CorpusIndex, options: RecitationOptions
) -> tuple[Questions, RecitationOptions]:
    """Up to `per_bucket` turns of the assistant, drawn uniformly, with the conversation before each."""
    writers = [model for model in models if isinstance(model, ConversationWriter)]
    if len(writers) < len(models):
        raise InputError(
            "a chat endpoint recites turns, and other models recite any sequence; ask them apart"
        )
    if options.contexts is not None or options.lengths is not None:
        raise InputError(
            "a chat endpoint is given the whole conversation before a turn; leave out --contexts and lengths"
        )
    suffix, lengths = options.suffix, dict(index.document_lengths())
    order = arrays(options.seed, "recite", "turns").permutation(np.array(sorted(lengths), dtype=np.int64))
    most = min(options.per_bucket, options.max_sequences or options.per_bucket)
    turns: list[tuple[int, int, IntArray]] = []  # document, where the turn begins, and the document's tokens
    for document in order.tolist():
        if len(turns) >= most:
            break
        tokens = index.tokens_at(Occurrence(document, 0), lengths[document])
        turns += [(document, begin, tokens) for begin in _turns_of(writers[0], index, tokens, suffix)]
    if not turns:
        raise NotMeasurableError(
            f"no conversation of the index has a turn of the assistant with {suffix} tokens or more, so nothing can be recited; "
            "give a shorter --suffix"
        )
    turns = turns[:most]
    texts = [tokens[begin : begin + suffix] for _, begin, tokens in turns]
    counts = index.counts(np.array(texts, dtype=np.int64)).tolist()
    samples = [
        Sample(suffix, bucket_of(count), count, document, begin, text)
        for (document, begin, _), text, count in zip(turns, texts, counts, strict=True)
    ]
    questions = Questions(
        samples,
        which=np.arange(len(samples)),
        contexts=np.zeros(len(samples), dtype=np.int64),
        suffix=suffix,
        clusters=clusters_of(samples, index),
        given=tuple(tokens[:begin] for _, begin, tokens in turns),
    )
    settings = msgspec.structs.replace(
        options, contexts=(), lengths=(suffix,), tries=(), hidden_share=None, sample="uniform"
    )
    return questions, settings


def _turns_of(model: ConversationWriter, index: CorpusIndex, tokens: IntArray, suffix: int) -> Iterator[int]:
    """Where the long enough turns of the assistant in a document begin."""
    turns = model.turns_in(index.decode(tokens)) or ()
    for place, turn in enumerate(turns):
        if not place or turn.role != "assistant" or len(index.encode(turn.content)) < suffix:
            continue
        before = index.encode(model.before_last(turns[: place + 1]))
        begin = len(before)
        # What comes before it must end with a token.
        if np.array_equal(tokens[:begin], before) and index.decode(tokens[begin:]).startswith(turn.content):
            yield begin

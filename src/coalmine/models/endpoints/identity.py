"""Whether a server is still the same model: tested throughout a run, so that no number comes from another one.

An answer cannot be taken back once it was used, so no answer is used before this test. `Client` sends probes, which are questions with
known answers, among those of the run, and calls `Identity.check` after each window of answers, before it returns any of them. No audit
can forget to do it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import random
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from coalmine.errors import InputError
from coalmine.models.endpoints.answers import EndpointAnswer, EndpointQuestion, UnusableAnswerError
from coalmine.models.endpoints.client import Client, RecognitionRequests
from coalmine.models.endpoints.http import EndpointRefusedError
from coalmine.models.endpoints.probing import Capability, plain
from coalmine.models.endpoints.probing_scores import (
    MOST_NOISE_BITS,
    TRIES,
    anything,
    echoing,
    in_another_order,
    listing,
    noise_bits,
    reading_as,
    rounding_bits,
)

# Which questions are asked again changes only what is detected, so it may differ from run to run, and no server can predict it.
DICE: random.Random = random.SystemRandom()
FEWEST_TO_REPEAT = 8
ANSWERS_PER_REPEAT = 32
# This many answers around an unexpected one are enough to distinguish noise from another model that answered for a moment.
NEIGHBORS = 16
# After they showed this often that it was noise, differences that are not larger are not investigated anymore.
LOOKS = 8
# If the model changed, a text that was written differently is written differently in at least this many of the next tries.
OTHER_TEXTS = 2


class _Evidence(NamedTuple):
    """Evidence that another model answers, in words; whether it is `sure`, or may be noise, and of how many bits."""

    what: str
    sure: bool = True
    noise_bits: float | None = None


class _Odd(NamedTuple):
    """A probe with an unexpected answer that is not sure evidence; `place` answers of its window came before it."""

    question: EndpointQuestion
    before: EndpointAnswer
    place: int
    found: _Evidence


class Identity:
    """Recognizes one model by its answers to the text of its first test, and to texts of the run itself.

    Attributes:
        sha256: of the answer to the first, to a hundredth of a nat: equal for equal models, apart from noise.
    """

    def __init__(self, client: Client, capability: Capability, *, context: str = "") -> None:
        self._client = client
        self._capability = capability
        text, chat = capability.text, capability.chat
        questions = {
            "scorer": echoing(text),
            "ranker": listing(text, chat),
            "generator": plain(text, 0, chat),
        }
        levels = list(questions)
        self._references = [questions[level] for level in levels[levels.index(capability.level) :]]
        other = context + in_another_order(text[len(context) :])
        self._between = msgspec.structs.replace(self._references[0], prompt=other)
        # What every check of this run compares with.
        self._reference = self._references[0]
        self._first = client.ask(self._reference, anything)
        self._sent: dict[EndpointQuestion, tuple[EndpointQuestion, EndpointAnswer]] = {}
        self._probes = 0
        self._probed_earlier = False
        self._odd: list[_Odd] = []
        self._outliers: set[EndpointQuestion] = set()
        self._most_noise = 0.0
        self._looks = 0
        self._warned = False
        self.sha256 = self._hash()

    @property
    def noise_bits(self) -> float:
        """How far apart answers to one question were in this run in bits, once that turned out to be noise several times."""
        return self._most_noise if self._looks >= LOOKS else 0.0

    def check_cache(self) -> None:
        """Check that the server is still the one that filled the cache, if the cache has answers; asks one question."""
        client = self._client
        kept = [one for one in self._references if not client.was_tried(one) and client.cached(one)]
        if not kept and client.has_confirmed_answers():
            raise InputError(
                f"the cache has lost the answers by which the model {client.model!r} at {client.connection.url} is recognized, so the "
                "others in it cannot be trusted; use another cache"
            )
        before = client.cached(kept[0]) if kept else None
        if before is not None:
            with client.throwing_away():
                found = self._difference(kept[0], before)
                if found is not None:
                    raise client.recognition.not_that_of_the_cache(found.what)
            client.recognition.recognize()

    def next_probe(self, earlier: Sequence[EndpointQuestion]) -> EndpointQuestion | None:
        """Alternately one of the questions asked `earlier` in the run, because two models may differ only where an audit looks, and the
        text of the first test; None if no answer would distinguish the server from another one.
        """
        if not self._capability.recognizable:
            return None
        self._probes += 1
        question, before = self._reference, self._first
        if self._probes % 2 and (known := self._drawn(earlier)) is not None:
            question, before = known
            self._probed_earlier = True
        probe = msgspec.structs.replace(question, again=-self._probes)
        self._sent[probe] = question, before
        return probe

    def hear(self, probe: EndpointQuestion, said: EndpointAnswer | EndpointRefusedError, place: int) -> bool:
        """Whether a probe was answered as expected; a ModelChangedError if another model certainly answered it.

        `check` looks into anything in between, once the answers around it are there.
        """
        question, before = self._sent.pop(probe)
        found = _Evidence("a text that it was asked before came back otherwise", sure=False)
        if isinstance(said, EndpointAnswer):
            # An answer that cannot be read may have been damaged on its way.
            with contextlib.suppress(UnusableAnswerError):
                distance = self._distance(question, before, said)
                usual = max(self._tolerance(before), self.noise_bits)
                if before.text == said.text if distance is None else distance <= usual:
                    return True
                if distance is not None:
                    found = _Evidence(_differing(distance), sure=False, noise_bits=distance)
                if distance is not None and distance > MOST_NOISE_BITS:
                    raise self._client.recognition.changed(found.what)
        self._odd.append(_Odd(question, before, place, found))
        return False

    def check(
        self,
        asked: Sequence[EndpointQuestion],
        doubtful: Sequence[EndpointQuestion],
        earlier: Sequence[EndpointQuestion],
    ) -> RecognitionRequests:
        """Raise a ModelChangedError unless the server answers as before: the text of its first test, and questions of the run itself.

        Some of those `asked` since the last check are asked again, which finds servers that take turns, and one of the `doubtful`,
        whose answers came from a state of the server that was not seen before. One is from those asked `earlier` in the run, unless a
        probe was. If there were few questions, none is asked again: it would cost as much as they did.
        """
        asked = [question for question in asked if not self._client.was_tried(question)]
        self._compare(self._reference, self._first, asked)
        many = len(asked) >= FEWEST_TO_REPEAT
        probes, odd, self._odd = 1, self._odd, []
        known = self._drawn(earlier) if many and not self._probed_earlier else None
        self._probed_earlier = False
        if known is not None:
            self._compare(*known, asked, among=earlier)
            probes += 1
        for one in odd:
            self._compare(one.question, one.before, asked, among=earlier)
            self._look_around(asked, one.place, one.found)
        repeated = self._comparable(asked) if many else []
        repeated = DICE.sample(
            repeated, min(len(repeated), max(1, round(len(repeated) / ANSWERS_PER_REPEAT)))
        )
        for question in repeated:
            before = self._client.cached(question)
            if before is not None:
                self._compare(question, before, asked, among=asked)
        dubious = self._drawn([one for one in doubtful if one not in repeated])
        if dubious is not None:
            self._compare(*dubious, asked)
        return RecognitionRequests(probes, len(repeated))

    def _comparable(self, questions: Sequence[EndpointQuestion]) -> list[EndpointQuestion]:
        """Those whose answers distinguish one model from another: numbers, or text if it is always the same."""
        return [
            one
            for one in questions
            if (one.top is not None or self._capability.deterministic)
            and not self._client.was_tried(one)
            and one not in self._outliers
        ]

    def _drawn(self, questions: Sequence[EndpointQuestion]) -> tuple[EndpointQuestion, EndpointAnswer] | None:
        """A random one of these questions, with its answer."""
        known = self._comparable(questions)
        chosen = DICE.choice(known) if known else None
        before = None if chosen is None else self._client.cached(chosen)
        return None if chosen is None or before is None else (chosen, before)

    def _compare(
        self,
        question: EndpointQuestion,
        before: EndpointAnswer,
        asked: Sequence[EndpointQuestion],
        *,
        among: Sequence[EndpointQuestion] = (),
    ) -> None:
        """Raise a ModelChangedError if the new answer shows that it, or the one before, comes from another model.

        The answer before may be the unusual one: it is one of several, to the questions `among` which this one is. What seems to be
        noise may also be a model that answered until now, and gave the last of the answers to `asked`.
        """
        found = self._difference(question, before)
        if found is None:
            return
        if found.noise_bits is not None:
            if not 0 < found.noise_bits <= self.noise_bits:
                self._look_around(asked, asked.index(question) if question in asked else len(asked), found)
            return
        if found.sure or question not in among:
            raise self._client.recognition.changed(found.what)
        self._look_around(among, among.index(question), found)
        self._outliers.add(question)

    def _look_around(self, asked: Sequence[EndpointQuestion], place: int, found: _Evidence) -> None:
        """Raise a ModelChangedError if most answers around an unexpected one differ from what the server answers now.

        Another model that answered for a moment gave several of them; rare noise affects few. Each question is asked twice again, and
        counts if these two answers agree with each other but not with the stored one.
        """
        first = max(0, min(place - NEIGHBORS // 2, len(asked) - NEIGHBORS))
        around = self._comparable(asked[first : first + NEIGHBORS])
        again = [msgspec.structs.replace(one, again=one.again + time) for time in (1, 2) for one in around]
        answers = self._client.ask_all_now(again, anything)
        pairs = zip(around, answers[: len(around)], answers[len(around) :], strict=True)
        others = sum(self._is_of_another(question, one, other) for question, one, other in pairs)
        if others >= max(FEWEST_TO_REPEAT // 2, len(around) / 2):
            raise self._client.recognition.changed(
                f"{found.what}, and so do {others} of the {len(around)} answers around it: another model answered for a moment"
            )
        self._looks += 1
        self._most_noise = max(self._most_noise, found.noise_bits or 0.0)
        self._warn(found.what)

    def _is_of_another(self, question: EndpointQuestion, one: EndpointAnswer, other: EndpointAnswer) -> bool:
        """Whether the stored answer differs from two new ones that agree with each other."""
        before = self._client.cached(question)
        if before is None:
            return False
        with contextlib.suppress(UnusableAnswerError):
            apart = self._distance(question, one, other)
            distances = [self._distance(question, before, now) for now in (one, other)]
            if apart is None or None in distances:
                return before.text != one.text == other.text
            return apart <= self._tolerance(before) < min(one or 0.0 for one in distances)
        return False

    def _difference(self, question: EndpointQuestion, before: EndpointAnswer) -> _Evidence | None:
        """Evidence that another model answers now; None if there is none."""
        try:
            now = self._now(question)
        except EndpointRefusedError as problem:
            if problem.status not in {400, 422}:
                raise
            return _Evidence(f"it refuses a text that it read before, with status {problem.status}")
        except UnusableAnswerError as problem:
            return _Evidence(f"a text that it was asked before comes back otherwise: {problem}")
        if before.model and now.model and before.model != now.model:
            return _Evidence(self._client.recognition.other_name(before.model, now.model))
        distance = self._distance(question, before, now)
        if distance is None:
            return self._other_text(question, before, now)
        if distance <= max(self._tolerance(before), self.noise_bits):
            return None
        said = _differing(distance)
        return (
            _Evidence(said) if distance > MOST_NOISE_BITS else self._noise_or_not(question, before, now, said)
        )

    def _noise_or_not(
        self, question: EndpointQuestion, before: EndpointAnswer, now: EndpointAnswer, said: str
    ) -> _Evidence:
        """Noise, if the new answers differ from each other as much as from the one before."""
        try:
            answers = [now, *self._more(question)]
            apart, nearest = self._spread(question, before, answers)
            if self._tolerance(before) < apart < nearest / 2:
                # The server is noisy, and a few answers of a noisy server may be close to each other by chance.
                answers += self._more(question)
                apart, nearest = self._spread(question, before, answers)
        except UnusableAnswerError as problem:
            return _Evidence(f"a text that it was asked before comes back otherwise: {problem}")
        if nearest > max(self._tolerance(before), 2 * apart) or apart > MOST_NOISE_BITS:
            more = ", and not from one time to the next (if the server is that noisy, give noise_bits)"
            return _Evidence(f"{said}{more}", sure=apart > MOST_NOISE_BITS)
        return _Evidence(said, sure=False, noise_bits=max(apart, nearest))

    def _spread(
        self, question: EndpointQuestion, before: EndpointAnswer, answers: Sequence[EndpointAnswer]
    ) -> tuple[float, float]:
        """The largest distance between answers, and the smallest from the one before, in bits."""
        pairs = itertools.combinations(answers, 2)
        apart = max(self._distance(question, one, other) or 0.0 for one, other in pairs)
        return apart, min(self._distance(question, before, one) or 0.0 for one in answers)

    def _other_text(
        self, question: EndpointQuestion, before: EndpointAnswer, now: EndpointAnswer
    ) -> _Evidence | None:
        if before.text == now.text or not self._capability.deterministic:
            return None
        others = sum(one.text != before.text for one in self._more(question))
        if others >= OTHER_TEXTS:
            return _Evidence("a prompt that it was asked before is continued in another way", sure=False)
        return _Evidence("one prompt is continued in different ways", sure=False, noise_bits=0.0)

    def _warn(self, what: str) -> None:
        """Warn once per run that the server's own noise is larger than it was at the beginning."""
        if not self._warned:
            warnings.warn(
                f"the answers of {self._client.model!r} at {self._client.connection.url} are less exact than when the run began: {what}; "
                "no number is more exact than that",
                stacklevel=2,
            )
        self._warned = True

    def _more(self, question: EndpointQuestion) -> list[EndpointAnswer]:
        """Further answers to a question, asked as the run asks: several at a time, with another question between them.

        On some servers, an answer depends on what is computed together with it, or on the question just before.
        """
        asked = [
            msgspec.structs.replace(one, again=number)
            for number in range(TRIES)
            for one in (self._between, question)
        ]
        return self._client.ask_all_now(asked, anything)[1::2]

    def _now(self, question: EndpointQuestion) -> EndpointAnswer:
        """The answer to a question; an UnusableAnswerError if no try gives one that can be read as before."""
        reading = reading_as(self._capability.style) if self._scored(question) else anything
        for _ in range(TRIES - 1):
            answer = self._client.ask_now(question, anything)
            with contextlib.suppress(UnusableAnswerError):
                reading(question, answer)
                return answer
        answer = self._client.ask_now(question, anything)
        reading(question, answer)
        return answer

    def _scored(self, question: EndpointQuestion) -> bool:
        return question.echo and self._capability.level == "scorer"

    def _distance(
        self, question: EndpointQuestion, one: EndpointAnswer, other: EndpointAnswer
    ) -> float | None:
        """The distance between two answers to one question in bits; None if they have no numbers."""
        if self._scored(question):
            reading = reading_as(self._capability.style)
            return noise_bits(reading(question, one), reading(question, other))
        if not (one.top and other.top and one.top[0] and other.top[0]):
            return None
        first, second = one.top[0], other.top[0]
        shared = [abs(first[token] - second[token]) for token in first.keys() & second.keys()]
        return max(shared) / math.log(2) if shared else math.inf

    def _tolerance(self, answer: EndpointAnswer) -> float:
        return 2 * max(self._capability.resolution_bits, rounding_bits(answer))

    def _hash(self) -> str:
        answer = self._first
        facts: list[object] = [answer.text]
        if self._scored(self._reference):
            pieces = reading_as(self._capability.style)(self._reference, answer).prompt
            facts = [[piece.text, [_hundredths(nats) for nats in piece.nats]] for piece in pieces]
        elif answer.top and answer.top[0]:
            facts = [[token, _hundredths(nats)] for token, nats in sorted(answer.top[0].items())]
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


def _differing(distance: float) -> str:
    if distance == math.inf:
        return "a text that it was asked before comes back in other tokens"
    return f"log-probabilities of a text that it was asked before differ by up to {distance:.2g} bits"


def _hundredths(nats: float | None) -> int | None:
    return None if nats is None else round(100 * nats / math.log(2))

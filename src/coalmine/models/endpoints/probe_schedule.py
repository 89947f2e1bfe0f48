"""Where probes go among the questions of a run, and how many answers there are between two of them."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Sequence

from coalmine import randomness
from coalmine.models.endpoints.answers import EndpointQuestion

# The fewest and the most answers between two probes. The number is drawn, so that servers that take turns do not do so in step with the
# probes; always with the same seed, so that a run asks equally often each time.
SHORTEST_STRETCH, LONGEST_STRETCH = 10, 14


class ProbeSchedule:
    """The requests of one window, in the order in which they began and ended; the threads that send them share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._dice = randomness.integers(0, "endpoint", "stretches")
        self.start_window()

    def start_window(self) -> None:
        """Start over: the server was recognized, and nothing is in flight."""
        self._clock = 0
        self._began: dict[EndpointQuestion, int] = {}
        self._ended: dict[EndpointQuestion, int] = {}
        # The probes, each with the number of questions before it.
        self._probes: dict[EndpointQuestion, int] = {}
        self._heard: list[EndpointQuestion] = []
        self._whole: set[EndpointQuestion] = set()
        self._questions = 0
        self._left = self._stretch()

    def mixed(
        self, questions: Sequence[EndpointQuestion], probe: Callable[[], EndpointQuestion | None]
    ) -> list[EndpointQuestion]:
        """The questions, with a probe before the first one after each stretch; none at the end, where other probes follow."""
        sent: list[EndpointQuestion] = []
        for question in questions:
            added = probe() if self._left == 0 else None
            if added is not None:
                self._probes[added] = self._questions
                sent.append(added)
                self._left = self._stretch()
            sent.append(question)
            self._questions += 1
            self._left = max(0, self._left - 1)
        return sent

    def is_probe(self, question: EndpointQuestion) -> bool:
        """Whether a request is a probe of this window."""
        return question in self._probes

    def place_of(self, probe: EndpointQuestion) -> int:
        """The number of questions of the window before a probe."""
        return self._probes[probe]

    def begin(self, question: EndpointQuestion) -> None:
        """Record that a request is about to be sent."""
        with self._lock:
            self._clock += 1
            self._began.setdefault(question, self._clock)

    def end(self, question: EndpointQuestion) -> None:
        """Record that its answer came."""
        with self._lock:
            self._clock += 1
            self._ended[question] = self._clock

    def close_stretch(self, probe: EndpointQuestion) -> tuple[int, list[EndpointQuestion]]:
        """After a probe: how many answers another model can have given since the previous probe, and which ended before this one began.

        A probe is answered at some moment between its beginning and its end, and so is every question. It is certain that the n-th
        probe in the order of those moments came after the n-th beginning and before the n-th end.
        """
        with self._lock:
            done = len(self._heard)
            self._heard.append(probe)
            begins = sorted(self._began[one] for one in self._probes if one in self._began)
            ends = sorted(self._ended[one] for one in self._probes if one in self._ended)
            between = self._between(begins[done - 1] if done else 0, ends[done])
            began = self._began[probe]
            whole = [
                one
                for one, ended in self._ended.items()
                if ended < began and one not in self._whole and one not in self._probes
            ]
            self._whole.update(whole)
            return between, whole

    def close_window(self) -> int:
        """How many answers another model can have given since the last probe, when nothing is in flight anymore."""
        return self._between(max((self._began[one] for one in self._heard), default=0), self._clock + 1)

    def _between(self, after: int, before: int) -> int:
        """How many answers were in flight at any time between two moments."""
        answers = [one for one in self._began if one not in self._probes]
        over = sum(self._ended.get(one, before) <= after for one in answers)
        begins = [self._began[one] for one in answers]
        return bisect.bisect_left(begins, before) - over

    def _stretch(self) -> int:
        return self._dice.randint(SHORTEST_STRETCH, LONGEST_STRETCH)

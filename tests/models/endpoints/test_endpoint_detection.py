"""How likely a switch goes unnoticed, against counting every way in which it can happen."""

import itertools
import math

import pytest

from coalmine.models.endpoints.answers import EndpointQuestion
from coalmine.models.endpoints.detection import Checks, Stretch, unnoticed_in_a_row, unnoticed_scattered
from coalmine.models.endpoints.probe_schedule import LONGEST_STRETCH, SHORTEST_STRETCH, ProbeSchedule


def counted_in_a_row(length, windows):
    """Each window is (stretches, repeats). Every place where the switch can begin, and every draw of repeats in its windows."""
    stretch_of, window_of = [], []
    for number, (stretches, _) in enumerate(windows):
        for answers in stretches:
            stretch_of += [len(set(stretch_of))] * answers
            window_of += [number] * answers
    unnoticed = 0.0
    starts = range(len(stretch_of) - length + 1)
    for start in starts:
        struck = range(start, start + length)
        if len({stretch_of[one] for one in struck}) > 1:
            continue  # a probe was among them
        window = window_of[start]
        members = [one for one, its in enumerate(window_of) if its == window]
        draws = list(itertools.combinations(members, windows[window][1]))
        unnoticed += sum(not set(draw) & set(struck) for draw in draws) / len(draws)
    return unnoticed / len(starts)


@pytest.mark.parametrize(
    "windows",
    [
        [([4], 0)],
        [([4, 3], 1)],
        [([3, 3, 2], 2), ([4, 1], 1)],
        [([5, 4], 3), ([5, 4], 3), ([2], 0)],
        [([1], 0), ([1], 0), ([6, 2], 2)],
    ],
)
def test_in_a_row(windows):
    stretches = [Stretch(answers, sum(window), repeats) for window, repeats in windows for answers in window]
    total = sum(sum(window) for window, _ in windows)
    for length in range(1, total + 1):
        expected = counted_in_a_row(length, windows)
        assert unnoticed_in_a_row(length, total, stretches) == pytest.approx(expected, abs=1e-12), length
    assert unnoticed_in_a_row(0, total, stretches) == unnoticed_in_a_row(total + 1, total, stretches) == 0


@pytest.mark.parametrize(("probes", "repeats"), [(0, 0), (1, 0), (0, 1), (3, 2), (2, 4)])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.9])
def test_scattered(share, probes, repeats):
    expected = 0.0
    # A probe is one request, and a repeat two: of the question, and of the same again.
    for others in itertools.product([False, True], repeat=probes + 2 * repeats):
        pairs = zip(others[probes::2], others[probes + 1 :: 2], strict=True)
        if not any(others[:probes]) and all(one == again for one, again in pairs):
            expected += math.prod(share if other else 1 - share for other in others)
    assert unnoticed_scattered(share, probes, repeats) == pytest.approx(expected, abs=1e-12)


def test_the_record():
    told = Checks(1280, 100, 40, (Stretch(16, 128, 4, times=80),)).to_record(tolerance_bits=2e-4)
    assert told == {
        "answers": 1280,
        "probes": 100,
        "repeats": 40,
        "most_answers_between_probes": 16,
        "tolerance_bits": 2e-4,
        "unnoticed": {
            "share": 0.05,
            "in_a_row": 0.0,
            "scattered": pytest.approx(0.95**100 * (1 - 2 * 0.05 * 0.95) ** 40),
        },
    }
    # Nothing was asked, or nothing that is answered shows anything.
    assert Checks(0, 0, 0).to_record(tolerance_bits=2e-4)["unnoticed"]["scattered"] == 1
    blind = Checks(1280, 100, 0, (Stretch(16, 128, 0, times=80),)).to_record(tolerance_bits=None)
    assert blind["unnoticed"] == {"share": 0.05, "in_a_row": 1.0, "scattered": 1.0}


class TestStream:
    """Requests by hand: questions are numbers, and probes too, from 1000 on."""

    def started(self, count):
        schedule, probes = ProbeSchedule(), itertools.count(1000)
        questions = [EndpointQuestion(prompt=str(number)) for number in range(count)]
        sent = schedule.mixed(questions, lambda: EndpointQuestion(prompt=str(next(probes))))
        assert [one for one in sent if not schedule.is_probe(one)] == questions
        return schedule, sent

    def test_a_probe_after_every_stretch(self):
        schedule, sent = self.started(1000)
        probes = [one for one in sent if schedule.is_probe(one)]
        places = [schedule.place_of(one) for one in probes]
        gaps = [after - before for before, after in itertools.pairwise([0, *places])]
        assert min(gaps) == SHORTEST_STRETCH
        assert max(gaps) == LONGEST_STRETCH
        assert len(set(gaps)) == LONGEST_STRETCH - SHORTEST_STRETCH + 1
        assert not schedule.is_probe(sent[-1])
        assert sent == self.started(1000)[1], "as many requests each time"

    def test_stretches_of_a_run_without_company(self):
        schedule, sent = self.started(100)
        gaps, kept = [], []
        for one in sent:
            schedule.begin(one)
            schedule.end(one)
            if schedule.is_probe(one):
                gap, whole = schedule.close_stretch(one)
                gaps.append(gap)
                kept.append(len(whole))
        assert gaps == kept
        assert [*itertools.accumulate(gaps)] == [
            schedule.place_of(one) for one in sent if schedule.is_probe(one)
        ]
        assert sum(gaps) + schedule.close_window() == 100

    def test_stretches_where_several_are_under_way(self):
        """Whatever is under way together with a probe may be answered before it or after it, and counts on both sides."""
        schedule, sent = self.started(60)
        gaps, kept = [], []
        for start in range(0, len(sent), 4):
            part = sent[start : start + 4]
            for one in part:
                schedule.begin(one)
            for one in reversed(part):
                schedule.end(one)
            for one in part:
                if schedule.is_probe(one):
                    gap, whole = schedule.close_stretch(one)
                    gaps.append(gap)
                    kept += whole
        assert all(SHORTEST_STRETCH <= gap <= LONGEST_STRETCH + 2 * 3 for gap in gaps)
        assert sum(gaps) + schedule.close_window() > 60
        assert len(kept) == len(set(kept)) < sum(gaps)

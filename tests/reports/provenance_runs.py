"""Provenance results made by hand from scores that are given, through the code that decides: every number in them follows from the scores."""

import functools
from pathlib import Path

import numpy as np

from coalmine import Estimate
from coalmine.audits import PROVENANCES, Provenance, ProvenanceOptions, Run
from coalmine.audits.provenance.blind_baseline import BlindBaseline, GroupResult
from coalmine.audits.provenance.data_checks import (
    DataChecks,
    Overlap,
    RepeatedTexts,
    TimeRange,
    TimeRanges,
    UnknownShare,
    UnknownWords,
    unknown_words,
)
from coalmine.audits.provenance.deciding import decided, interpreted
from coalmine.audits.provenance.records import AblationPoint
from coalmine.audits.provenance.scores import Available
from coalmine.audits.provenance.words import FREQUENCY_GROUPS, LOG_BINS, log_histogram, word_groups
from coalmine.evidence.run import Located
from coalmine.statistics.intervals import effective_interval

TOKENS = 100
# Non-members from the lowest to the highest; 199 of them give p-values of 0.005 and more.
OTHERS = tuple(np.linspace(-2, 2, 199).tolist())
NO_CLASSIFIER = "there is no audit classifier; train shadow models with `coalmine provenance --only-fit`"


class FirstFeature:
    """An audit classifier whose score is the first bin of the histogram."""

    def score(self, features):
        return features[:, 0]


def numbers(scores, *, unknown=2):
    """What was found about users whose score is given, by every statistic; nothing was read of one whose score is None."""
    given = np.array([np.nan if score is None else score for score in scores], dtype=np.float64)
    there = ~np.isnan(given)
    many = len(given)
    rank_counts = np.where(there[:, None], 5, 0) * np.ones((many, FREQUENCY_GROUPS), dtype=np.int64)
    ranks = np.linspace(1, 400, FREQUENCY_GROUPS) * np.exp(-np.nan_to_num(given)[:, None] / 10)
    logs = np.zeros((many, 2, LOG_BINS), dtype=np.int64)
    logs[there, 0, 3], logs[there, 1, 9], logs[there, 1, 20] = 40, 40, 20
    return {
        "rank-histogram": np.stack([given, 1 - given], axis=1),
        "texts": np.where(there, 4, 0),
        "reason": np.full(many, ""),
        "tokens": np.where(there, TOKENS, 0),
        "unknown": np.full(many, unknown),
        "likelihood-ratio": given,
        "windowed-ratio": given / 8 + 0.5,
        "min-k++": given - 5,
        "rank_sums": rank_counts * ranks,
        "rank_counts": rank_counts,
        "log_histogram": logs,
    }


def available(*, classifier=None, reference=True, moments=True):
    """What an audit has: a reference model, unless there is none, and no shadow models that cut texts alike."""
    absent = {
        "classifier": "" if classifier else NO_CLASSIFIER,
        "moments": "" if moments else "the target does not give the whole distribution over its vocabulary",
        "comparison": "" if reference else "there is no model to compare with",
        "shadows": "there are no shadow models that cut texts into the target's tokens",
        "list": "the target ranks every token, so that all are listed",
    }
    return Available({need: why for need, why in absent.items() if why}, classifier)


def area(value, users):
    low, high = effective_interval(value, min(users), 0.95)
    n = sum(users)
    return Estimate(
        method="blind baseline",
        status="measured",
        value=value,
        low=low,
        high=high,
        confidence=0.95,
        n=n,
        statement=f"without any model, AUC is {value:.3f} (95% interval {low:.3f} to {high:.3f}), where 0.5 is chance: {n:,} users",
    )


def blind(suspects, others, value=0.5, p_value=0.4, scores_p_value=0.0005):
    """A blind baseline that sees words alone, with this AUC, and would have seen a difference as large as that of the scores."""
    auc = area(value, (suspects, others))
    groups = (
        GroupResult(name="words", auc=auc, p_value=p_value),
        GroupResult(
            name="dates", auc=Estimate.not_measured("blind baseline", "texts have no dates"), p_value=None
        ),
    )
    return BlindBaseline(
        auc=auc,
        p_value=p_value,
        groups=groups,
        suspects=suspects,
        non_members=others,
        orders=2_000,
        smallest_p_value=0.0005,
        scores_p_value=scores_p_value,
    )


def times(suspects=("2018-01-01", "2018-06-30"), others=("2018-01-02", "2018-06-29"), within=(0.97, 0.98)):
    """When the two groups wrote."""
    ranges = [TimeRange(first=first, last=last, dated=50, undated=3) for first, last in (suspects, others)]
    disjoint = ranges[0].last < ranges[1].first or ranges[1].last < ranges[0].first
    return TimeRanges(
        suspects=ranges[0],
        non_members=ranges[1],
        suspects_within=within[0],
        non_members_within=within[1],
        disjoint=disjoint,
    )


def repeated(texts=300, shared=2):
    return RepeatedTexts(
        shortest=30,
        texts=texts,
        repeated=shared,
        users=120,
        affected_users=3 if shared else 0,
        most_users=2 if shared else 1,
    )


def overlap(first="suspects", second="non-members", *, users=0, texts=0, sharing=()):
    return Overlap(
        first=first, second=second, users=users, first_users=20, texts=texts, first_texts=400, sharing=sharing
    )


@functools.cache
def differing_words():
    return unknown_words(
        {"suspects": ([1, 0, 2, 1] * 5, [100] * 20), "non-members": ([30, 25, 33, 31] * 5, [100] * 20)}
    )


def same_words():
    share = {"unknown": 20, "tokens": 1_000, "share": 0.02, "mean_share": 0.02, "users": 10}
    return UnknownWords(
        groups=(UnknownShare(group="suspects", **share), UnknownShare(group="non-members", **share)),
        difference=None,
    )


def provenance(
    suspects=(9.0, 8.0, 0.1, -0.3),
    non_members=OTHERS,
    *,
    others=None,
    names=None,
    members=None,
    classifier=None,
    reference=True,
    moments=True,
    blind_baseline=None,
    others_blind_baseline=None,
    checks=None,
    ablation=False,
    **settings,
):
    """The result of an audit of users with these scores; `others` are the scores of other texts by the same users."""
    options = ProvenanceOptions(**settings)
    there = available(classifier=classifier, reference=reference, moments=moments)
    called = (
        [f"person{place}@example.org" for place in range(1, len(suspects) + 1)] if names is None else names
    )
    own = numbers(suspects)
    calibration = numbers(non_members) if len(non_members) else None
    questions = [decided("texts", called, own, calibration, there, options, members)]
    if others is not None:
        questions.append(decided("user", called, numbers(others), calibration, there, options, members))
    many = len(non_members)
    if checks is None:
        checks = DataChecks(unknown_words=same_words())
    result = Provenance(
        model={"adapter": "scripted"},
        settings=options,
        ranked=1000,
        top=None,
        probabilities=True,
        questions=tuple(questions),
        blind_baseline=blind(len(suspects), many) if blind_baseline is None and many else blind_baseline,
        others_blind_baseline=blind(len(others), many)
        if others_blind_baseline is None and many and others is not None
        else others_blind_baseline,
        checks=checks,
        words=word_groups(own, calibration, options.confidence),
        log_probabilities=log_histogram(own, calibration),
        ablation=tuple(
            AblationPoint(
                ablated=share / 10,
                frequent=0.3 - share / 50,
                rare=0.3 - share / 20,
                non_members_frequent=0.29 - share / 50 if len(non_members) else None,
                non_members_rare=0.02 if len(non_members) else None,
            )
            for share in range(5 if ablation else 0)
        ),
    )
    return interpreted(result)


def run_of(*documents, place=None):
    """A run with these results."""
    folder = Path("run") if place is None else place
    located = tuple(
        Located(folder / f"{number}" / "provenance.json", one) for number, one in enumerate(documents)
    )
    return Run(paths=(folder,), name="run", documents={PROVENANCES: located})

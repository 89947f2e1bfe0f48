"""Provenance results made by hand from scores that are given, through the code that decides: every number in them follows from the scores."""

from pathlib import Path

import msgspec
import numpy as np

from coalmine.audits import PROVENANCES, Provenance, ProvenanceOptions, Run, User, UserText
from coalmine.audits.provenance.blind_baseline import BlindBaseline, _estimate
from coalmine.audits.provenance.deciding import decide, question_of
from coalmine.audits.provenance.scores import Available
from coalmine.audits.provenance.words import FREQUENCY_GROUPS, LOG_BINS, word_points
from coalmine.evidence.run import Located

TOKENS = 100
# Non-members from the lowest to the highest; 199 of them give p-values of 0.005 and more.
OTHERS = tuple(np.linspace(-2, 2, 199).tolist())
NO_CLASSIFIER = "there is no audit classifier; train shadow models with `coalmine provenance --reference`"


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
        "beside_bits": np.full(many, np.nan),
        "rank_sums": rank_counts * ranks,
        "rank_counts": rank_counts,
        "log_histogram": logs,
    }


def available(classifier):
    """What an audit has: a reference model, and no shadow models that cut texts alike."""
    absent = {
        "classifier": "" if classifier else NO_CLASSIFIER,
        "shadows": "there are no shadow models that cut texts into the target's tokens",
        "list": "the target ranks every token, so that all are listed",
    }
    return Available({need: why for need, why in absent.items() if why}, classifier)


def blind(suspects, others, value=0.5, p_value=0.4, scores_p_value=0.0005):
    """A blind baseline that sees words alone, with this AUC, and would have seen a difference as large as that of the scores."""
    return BlindBaseline(
        auc=_estimate(value, min(suspects, others), suspects + others, 0.95),
        p_value=p_value,
        groups={"words": p_value},
        suspects=suspects,
        non_members=others,
        orders=2_000,
        smallest_p_value=0.0005,
        scores_p_value=scores_p_value,
    )


def provenance(
    suspects=(9.0, 8.0, 0.1, -0.3),
    non_members=OTHERS,
    *,
    others=None,
    names=None,
    members=None,
    classifier=None,
    baseline=None,
    checks=None,
    **settings,
):
    """The result of an audit of users with these scores; `others` are the scores of other texts by the same users.

    `checks` are those of each question; the blind baseline of the first one is `baseline`.
    """
    options = ProvenanceOptions(**settings)
    there = available(classifier)
    called = names or [f"person{place}@example.org" for place in range(1, len(suspects) + 1)]
    calibration, many = numbers(non_members) if len(non_members) else None, len(non_members)
    questions = []
    for asks, scores in {"texts": suspects, "user": others}.items():
        if scores is not None:
            users = [User(name, (UserText("hi"),)) for name in called], [User("non-member", ())]
            raw = question_of(
                asks, users, numbers(scores), calibration, there, options, (checks or {}).get(asks, ())
            )
            mine = baseline if asks == "texts" else None
            raw = msgspec.structs.replace(raw, blind=(mine or blind(len(scores), many)) if many else None)
            questions.append(decide(raw, options, members))
    both = {"suspects": numbers(suspects), "non-members": calibration}
    return Provenance(
        model={"adapter": "scripted"},
        settings=options,
        ranked=1000,
        top=None,
        probabilities=True,
        questions=tuple(questions),
        words=tuple(word_points(both, options.confidence)),
    )


def run_of(*documents):
    """A run with these results."""
    folder = Path("run")
    located = tuple(
        Located(folder / f"{number}" / "provenance.json", one) for number, one in enumerate(documents)
    )
    return Run(paths=(folder,), name="run", documents={PROVENANCES: located})

"""The tables and figures of the provenance paper, each measured on a target and its shadow models: the parts of `provenance_paper.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from provenance_data import Split, noisy, with_words_dropped, with_words_swapped, word_counts
from provenance_measures import Audited, Row

from coalmine.audits.provenance.measure import audit_provenance
from coalmine.audits.provenance.users import AuditedUsers, User
from coalmine.audits.provenance.views import encoded, look, view_of
from coalmine.audits.provenance.words import ablation_curves, frequency_ranks
from coalmine.models.protocols import Model

# Of appendix B.2: the paper's vocabulary, and the sizes of table 3, of figure 3, of figure 4, of figure 7.
VOCABULARY = 5_000
TOPS = (1, 5, 10, 50, 100, 500, 1000)
QUERIES = (1, 2, 4, 8, 16, 32)
SELECTIONS = ("frequency-sum", "index-sum", "random")
NOISE = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0)
ABLATED = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# How words are changed, and which share of them.
OBFUSCATED = (("dropped", 0.2), ("swapped", 0.2), ("swapped", 0.5))
# The most frequent fifth of words, as in figure 5.
FREQUENT = 0.2


def performance(target: Model, split: Split) -> dict[str, Any]:
    """Table 1: how often the likeliest word is the right one, and the perplexity, on texts of members and of non-members."""
    return {
        "train": _performance(target, split.members),
        "test": _performance(target, split.non_members),
        "test_other_texts_of_members": _performance(target, split.others) if split.others else None,
    }


def _performance(target: Model, users: Sequence[User]) -> dict[str, float]:
    """Of the words that the model knows; those that it reads as unknown are counted apart."""
    texts = [text for user in users for text in user.texts]
    views = [view for view in look(target, view_of(target), texts) if view is not None]
    ranks = np.concatenate([view.ranks for view in views])
    bits = np.concatenate([view.log2_probabilities for view in views if view.log2_probabilities is not None])
    unknown = sum(view.unknown for view in views)
    return {
        "accuracy": float(np.mean(ranks == 0)),
        "perplexity": float(2.0 ** -bits.mean()),
        "words": len(ranks),
        "unknown_share": unknown / (unknown + len(ranks)),
        "mean_rank": float(ranks.mean()),
    }


def headline(audited: Audited, split: Split) -> tuple[list[Row], dict[str, Any]]:
    """All ranks and all texts: the rows, and what an audit that knows the non-members says, with figures 5 and 6."""
    groups = audited.scores({"members": split.members, "non-members": split.non_members})
    rows = audited.rows("headline", "all texts, all ranks", groups["members"], groups["non-members"])
    users = AuditedUsers(
        split.members, non_members=split.non_members, others=split.others, reference=audited.reference
    )
    found = audit_provenance(audited.target, users, fit=audited.fit, ablation_texts=0)
    facts = {
        "scores": {
            side: {name: np.round(one, 5).tolist() for name, one in group.scores.items()}
            for side, group in groups.items()
        },
        "unknown_share": {side: group.unknown_share for side, group in groups.items()},
        "audit": [
            {
                "asks": question.asks,
                "decides": question.deciding.name if question.deciding is not None else None,
                "found": len(question.found()),
                "suspects": len(question.rows),
                "smallest_p_value": 1 / (question.non_members + 1),
                "found_by": {one.name: one.found for one in question.statistics},
            }
            for question in found.questions
        ],
        "blind_baseline": msgspec.to_builtins(found.questions[0].blind),
        "checks": msgspec.to_builtins(found.questions[0].checks),
        "words": msgspec.to_builtins(found.words),
        "warnings": list(found.warnings),
    }
    return rows, facts


def coverage(target: Model, split: Split) -> dict[str, float]:
    """The share of the words of members and of non-members that are among the most frequent fifth of the vocabulary."""
    tokenizer = target.tokenizer
    unknown = getattr(tokenizer, "unknown", None)
    tokens = {
        side: np.array(
            [
                token
                for user in users
                for text in user.texts
                for token in encoded(tokenizer, text.text) or []
                if token != unknown
            ]
        )
        for side, users in (("train", split.members), ("test", split.non_members))
    }
    shares = frequency_ranks(np.bincount(tokens["train"], minlength=tokenizer.size))
    return {side: float(np.mean(shares[some] < FREQUENT)) for side, some in tokens.items()}


def outputs(audited: Audited, split: Split, part: str) -> list[Row]:
    """Table 3: only the likeliest k tokens are seen."""
    rows = []
    for top in TOPS:
        groups = audited.scores({"members": split.members, "non-members": split.non_members}, top=top)
        rows += audited.rows(part, f"top {top}", groups["members"], groups["non-members"])
    return rows


def queries(audited: Audited, split: Split) -> list[Row]:
    """Figure 3: few texts of each user, rare or random ones."""
    rows = []
    for selection in SELECTIONS:
        for number in QUERIES:
            groups = audited.scores(
                {"members": split.members, "non-members": split.non_members},
                selection=selection,
                queries=number,
            )
            rows += audited.rows("queries", f"{selection} {number}", groups["members"], groups["non-members"])
    return rows


def noise(audited: Audited, split: Split) -> list[Row]:
    """Figure 4: a share of the texts of members was not trained on; with all of them, the question is whether the user took part."""
    mixed = {f"noise {share:g}": noisy(split.members, split.others, share) for share in NOISE}
    groups = audited.scores({**mixed, "non-members": split.non_members})
    return [row for name in mixed for row in audited.rows("noise", name, groups[name], groups["non-members"])]


def obfuscation(audited: Audited, split: Split, seed: int) -> list[Row]:
    """Table 5, with obfuscations that need no translation service: words left out, or swapped for words of similar frequency."""
    counts = word_counts(split.members, VOCABULARY)
    changed = {}
    for way, share in OBFUSCATED:
        for side, users in (("members", split.members), ("non-members", split.non_members)):
            changed[f"{way} {share:g} {side}"] = (
                with_words_dropped(users, share, seed)
                if way == "dropped"
                else with_words_swapped(users, share, counts, seed)
            )
    groups = audited.scores(changed)
    return [
        row
        for way, share in OBFUSCATED
        for row in audited.rows(
            "obfuscation",
            f"{way} {share:g}",
            groups[f"{way} {share:g} members"],
            groups[f"{way} {share:g} non-members"],
        )
    ]


def features(audited: Audited, split: Split) -> list[Row]:
    """What the paper leaves open: histograms of shares, counts or unit vectors, and how many bins."""
    rows = []
    for setting in ({"scaling": "counts"}, {"scaling": "unit"}, {"bins": 20}, {"bins": 500}):
        groups = audited.scores({"members": split.members, "non-members": split.non_members}, **setting)
        [(name, value)] = setting.items()
        found = audited.rows("features", f"{name} {value}", groups["members"], groups["non-members"])
        rows += [row for row in found if row.statistic == "rank-histogram"]
    return rows


def ablation(target: Model, split: Split, *, seed: int) -> list[dict[str, float]]:
    """Figure 7: accuracy on the texts of members with hidden units silenced, for a target without dropout."""
    texts = [text.text for user in split.members for text in user.texts]
    counts = Counter(token for text in texts for token in encoded(target.tokenizer, text) or [])
    ranks = frequency_ranks([counts[token] for token in range(target.tokenizer.size)])
    points = ablation_curves(target, ranks, split.members, (), most=len(texts), seed=seed, shares=ABLATED)
    return [msgspec.to_builtins(point) for point in points]

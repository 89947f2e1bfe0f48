"""The scores that membership compares with, whatever method measures exposure: those of references and of all canaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.estimators import Estimator
from coalmine.audits.exposure.question import FormatQuestion, Measured
from coalmine.audits.exposure.ranked import KEEP_UP_TO
from coalmine.engines.courses import SURVIVED, Course
from coalmine.errors import CoalmineError, ModelError
from coalmine.formats.naming import format_name
from coalmine.search.walks.works import score_in_batches

# Problems with the references alone, which are no reason to measure nothing.
_SURVIVED: tuple[type[CoalmineError], ...] = (*SURVIVED, ModelError)


class Comparisons:
    """The references and canaries of one format, with their scores.

    Attributes:
        warnings: why the references have no scores, where they have none.
    """

    def __init__(self, question: FormatQuestion) -> None:
        self._question = question
        self._references: CandidateScores | None = None
        self.warnings: list[str] = []

    def score_before(self, estimator: Estimator) -> Course[None]:
        """Score the references, unless the estimator scores them itself: alone, or among all members of a space that is kept."""
        kept = estimator.keeps == "member" and self._question.format.size <= KEEP_UP_TO
        if estimator.keeps == "reference" or kept or not self._question.references:
            return
        question = self._question
        texts = question.references
        try:
            scored = yield from score_in_batches(
                question.members, texts, f"Scoring {len(texts):,} references", survives=_SURVIVED
            )
        except _SURVIVED as problem:
            self._lack(len(texts), problem)
            return
        known = [place for place in range(len(texts)) if place not in scored.problems]
        self._references = CandidateScores(
            question.format_id,
            "reference",
            self._places([texts[place] for place in known]),
            scored.bits[known],
        )
        if scored.problems:
            self._lack(len(scored.problems), scored.problems[min(scored.problems)])

    def _lack(self, number: int, problem: object) -> None:
        """Warn that references have no score."""
        question = self._question
        self.warnings.append(
            f"{number:,} of {len(question.references):,} references of {format_name(question.format.template)} could not be scored, so "
            f"membership has fewer comparisons ({problem})"
        )

    def rows(self, measured: Measured) -> list[CandidateScores]:
        """What goes into scores.parquet besides the rows of the method, once that has finished."""
        question, candidates = self._question, measured.candidates
        if self._references is None and candidates is not None and candidates.kind == "member":
            self._references = self._among(candidates)
        own = question.canary_scores if measured.own is None else measured.own
        canaries = CandidateScores(question.format_id, "canary", self._places(question.canary_texts), own)
        return [canaries] if self._references is None else [self._references, canaries]

    def _among(self, members: CandidateScores) -> CandidateScores | None:
        """The references, with the scores that they have among all members; those that the model gave no number for are left out."""
        question = self._question
        if not question.references:
            return None
        wanted = self._places(question.references)
        order = np.argsort(members.indices, kind="stable")
        rows = order[np.minimum(np.searchsorted(members.indices[order], wanted), len(order) - 1)]
        there = members.indices[rows] == wanted
        if not there.all():
            self._lack(int((~there).sum()), "the model gave no number for them")
        return CandidateScores(
            question.format_id, "reference", wanted[there], members.log_perplexities_bits[rows[there]]
        )

    def _places(self, texts: Sequence[str]) -> NDArray[Any]:
        return self._question.index_array([self._question.format.index(text) for text in texts])

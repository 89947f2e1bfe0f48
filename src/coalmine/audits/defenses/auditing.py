"""The audit of one model of a bench: its loss, the exposure of all canaries, which of them come out, epsilon, and recitation."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from coalmine.audits.defenses.corpora import BenchCorpora
from coalmine.audits.defenses.options import DefenseOptions
from coalmine.audits.defenses.recipes import Defense
from coalmine.audits.defenses.records import BenchedModel
from coalmine.audits.exposure.measuring import expose
from coalmine.audits.exposure.options import ExposureOptions
from coalmine.audits.exposure.results import EXPOSURES, ExposureResult, Exposures
from coalmine.audits.extraction.measuring import verify_extraction
from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.audits.extraction.results import CanaryExtraction, save_verification
from coalmine.audits.framing import framed
from coalmine.audits.membership.measure import membership
from coalmine.audits.membership.records import Membership
from coalmine.audits.provenance.views import encoded
from coalmine.audits.recitation.measure import recite
from coalmine.audits.recitation.options import RecitationOptions
from coalmine.corpus.index.building import build_index
from coalmine.corpus.index.options import IndexOptions
from coalmine.corpus.index.tokenizing import tokenizer_sha256
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import CoalmineError, NotMeasurableError, WriteError
from coalmine.evidence.directories import audit_directory
from coalmine.models.protocols import Model
from coalmine.records import Estimate
from coalmine.records.privacy import DescribedClaim, claim_of_model
from coalmine.search.walks.scoring import score_texts
from coalmine.storage.files import make_directory

# The most and the fewest tokens that are given and that must come out, by how long documents are.
LONGEST, SHORTEST = 50, 10
_Found = TypeVar("_Found")


class Auditor(NamedTuple):
    """What all models of a bench are asked, in the same way; results go beside each model."""

    corpora: BenchCorpora
    options: DefenseOptions
    bound_confidence: float
    engine: Engine

    def audited(
        self, model: Model, defense: Defense, seed: int, directory: Path, seconds: float | None
    ) -> BenchedModel:
        """Ask a model everything. What cannot be measured of one does not stop the rest, except for the exposures."""
        problems: list[str] = []

        def tried(what: str, measure: Callable[[], _Found]) -> _Found | None:
            try:
                return measure()
            except WriteError:
                raise
            except CoalmineError as problem:
                problems.append(f"{what} was not measured: {problem}")
                return None

        corpus = defense.does.corpus
        canaries, out = self.corpora.by_name[corpus].canaries, audit_directory(directory)
        claim = claim_of_model(model.describe())
        exposures = self._exposures(model, canaries, out / "exposure")
        loss = tried("the validation loss", lambda: self._loss_bits(model))
        every = tried("extraction", lambda: self._searched(model, canaries, out / "extraction")) or []
        judged = self.judged(exposures, claim, out / "membership")
        recited = None
        if self.options.sequences:
            recited = tried("recitation", lambda: self._recited(model, out / "recitation"))
        planted = {one.canary_id for one in exposures.results if one.planted}
        searched = [one for one in every if one.canary_id in planted and one.problem is None]
        return BenchedModel(
            defense=defense.name,
            seed=seed,
            folder=directory.name,
            model=model.describe(),
            seconds=None if seconds is None else round(seconds, 3),
            corpus=corpus,
            copies_left=sum(one.times_trained_on for one in canaries if one.planted),
            loss_bits=loss,
            exposures=tuple(map(_limits, exposures.results)),
            extracted=tuple(one.canary_id for one in searched if one.extracted),
            searched=len(searched),
            bound=bound_of(judged),
            privacy=claim,
            verdict=judged.verdict,
            recited=recited,
            problems=tuple(problems),
        )

    def judged_again(self, one: BenchedModel, folder: Path) -> BenchedModel:
        """A model of an earlier run at the confidence of this one, which depends on the number of seeds; it is not asked again."""
        out = audit_directory(folder / one.folder)
        judged = self.judged(EXPOSURES.load(out / "exposure"), one.privacy, out / "membership")
        return msgspec.structs.replace(one, bound=bound_of(judged), verdict=judged.verdict)

    def judged(self, exposures: Exposures, claim: DescribedClaim | None, out: Path) -> Membership:
        """What the coins say about epsilon, and about a claim."""
        claimed: dict[str, Any] = {}
        if claim is not None:
            claimed = {f"claimed_{name}": value for name, value in msgspec.structs.asdict(claim).items()}
        found = membership(
            exposures,
            delta=self.options.delta if claim is None else claim.delta,
            confidence=self.bound_confidence,
            seed=self.options.seed,
            **claimed,
        )
        make_directory(out)
        found.save(out)
        return found

    def _exposures(self, model: Model, canaries: CanarySet, out: Path) -> Exposures:
        ledger, given = Ledger(out), self.options
        asked = ExposureOptions(method=given.method, confidence=given.confidence, seed=given.seed)
        found = expose(model, canaries, asked, engine=self.engine, resume=ledger)
        found.save(out)
        ledger.forget()
        return found

    def _loss_bits(self, model: Model) -> float:
        """The loss on all documents that are held out together, in bits per character."""
        texts = self.corpora.held_out
        return math.fsum(score_texts(model, texts).tolist()) / sum(map(len, texts))

    def _searched(self, model: Model, canaries: CanarySet, out: Path) -> list[CanaryExtraction]:
        """Whether each canary is among as many members as were planted."""
        ledger, planted = Ledger(out), sum(canary.planted for canary in canaries)
        asked = ExtractionOptions(top=max(1, planted), budget=self.options.search)
        found, extractions = verify_extraction(model, canaries, asked, engine=self.engine, resume=ledger)
        described = framed(model, canaries, writes=True).describe()
        save_verification(
            make_directory(out), found, extractions, manifest_sha256=canaries.sha256, model=described
        )
        ledger.forget()
        return found

    def _recited(self, model: Model, out: Path) -> Estimate:
        """The share of sampled sequences that it recites, of the planted corpus for all models alike."""
        lengths = sorted(len(encoded(model.tokenizer, text) or []) for text in self.corpora.held_out)
        # Half a document of middle length, within limits.
        tokens = min(LONGEST, max(SHORTEST, lengths[len(lengths) // 2] // 2))
        corpus = self.corpora.planted.path
        index = build_index(
            corpus,
            self.corpora.below / f"index-{tokenizer_sha256(model.tokenizer)[:16]}",
            options=IndexOptions(
                tokenizer=model.tokenizer,
                fields=msgspec.structs.replace(self.options.fields, user=None, date=None),
            ),
            engine=self.engine,
        )
        asked = RecitationOptions(
            suffix=tokens,
            contexts=(tokens,),
            sample="uniform",
            per_bucket=self.options.sequences,
            greedy_only=True,
            confidence=self.options.confidence,
            seed=self.options.seed,
        )
        found = recite(model, index, asked, out=out, engine=self.engine)
        group = found.overall(found.models[0].name, tokens)
        if group is None:
            raise NotMeasurableError("no document is long enough for a sequence")
        return group.recited


def bound_of(found: Membership) -> Estimate:
    """The largest bound on epsilon that a population proves: for one copy, or for all of a canary where the claim is for a user."""
    whole = found.settings.claimed_unit == "user"
    every = [one.best.canary if whole else one.best.one_copy for one in found.populations]
    bounds = [one for one in every if one is not None]
    measured = [one for one in bounds if one.low is not None]
    if measured:
        return max(measured, key=lambda one: one.low or 0.0)
    why = bounds[0].statement if bounds else "no population has a bound for one copy"
    return Estimate.not_measured("audited epsilon", why)


def _limits(result: ExposureResult) -> tuple[float, float]:
    """What is known of an exposure: the value twice, a lower bound and the most that is possible, or anything."""
    estimate, most = result.estimate, result.most_possible_bits
    if estimate.value is not None:
        return estimate.value, estimate.value
    return (estimate.low or 0.0) if estimate.status == "lower_bound" else 0.0, most

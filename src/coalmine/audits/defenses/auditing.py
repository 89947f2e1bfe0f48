"""The audit of one model of a bench: its loss, the exposure of all canaries, which of them come out, epsilon, and recitation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from coalmine.audits.defenses.corpora import BenchCorpora, BenchCorpus
from coalmine.audits.defenses.losses import loss_bits
from coalmine.audits.defenses.options import DefenseOptions
from coalmine.audits.exposure.measuring import expose
from coalmine.audits.exposure.options import ExposureOptions
from coalmine.audits.exposure.results import Exposures
from coalmine.audits.extraction.measuring import verify_extraction
from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.audits.extraction.results import CanaryExtraction, save_verification
from coalmine.audits.framing import framed
from coalmine.audits.membership.measuring import membership
from coalmine.audits.membership.results import Membership
from coalmine.audits.provenance.views import encoded
from coalmine.audits.recitation.measuring import recite
from coalmine.audits.recitation.options import RecitationOptions
from coalmine.corpus.index.building import build_index
from coalmine.corpus.index.options import IndexOptions
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.corpus.index.tokenizing import tokenizer_sha256
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import CoalmineError, NotMeasurableError, WriteError
from coalmine.models.protocols import Model
from coalmine.records import Estimate
from coalmine.records.privacy import DescribedClaim
from coalmine.storage.files import make_directory

# The most and the fewest tokens that are given and that must come out, by how long documents are.
LONGEST, SHORTEST = 50, 10
_Found = TypeVar("_Found")


class AuditedModel(NamedTuple):
    """What an audit found out about a model; what could not be measured is None, and `problems` say why."""

    loss_bits: float | None
    exposures: Exposures
    extracted: tuple[CanaryExtraction, ...]
    membership: Membership
    recited: Estimate | None
    problems: tuple[str, ...]


class Auditor:
    """Audits the models of a bench, all in the same way; results go beside each model."""

    def __init__(
        self,
        corpora: BenchCorpora,
        options: DefenseOptions,
        bound_confidence: float,
        folder: Path,
        engine: Engine,
    ) -> None:
        self._corpora, self._options, self._bound_confidence = corpora, options, bound_confidence
        self._folder, self._engine = folder, engine
        self._indexes: dict[str, CorpusIndex] = {}

    def audited(
        self, model: Model, trained_on: BenchCorpus, claim: DescribedClaim | None, out: Path
    ) -> AuditedModel:
        """Ask a model everything. What cannot be measured of one does not stop the rest, except for the exposures."""
        problems: list[str] = []
        exposures = self._exposures(model, trained_on, out / "exposure")
        return AuditedModel(
            _tried(
                "the validation loss",
                problems,
                lambda: loss_bits(model, self._corpora.held_out, self._engine),
            ),
            exposures,
            _tried("extraction", problems, lambda: self._searched(model, trained_on, out / "extraction"))
            or (),
            self.judged(exposures, claim, out / "membership"),
            _tried("recitation", problems, lambda: self._recited(model, out / "recitation"))
            if self._options.sequences
            else None,
            tuple(problems),
        )

    def _exposures(self, model: Model, trained_on: BenchCorpus, out: Path) -> Exposures:
        ledger = Ledger(out)
        asked = ExposureOptions(
            method=self._options.method, confidence=self._options.confidence, seed=self._options.seed
        )
        found = expose(model, trained_on.canaries, asked, engine=self._engine, resume=ledger)
        found.save(out)
        ledger.forget()
        return found

    def _searched(self, model: Model, trained_on: BenchCorpus, out: Path) -> tuple[CanaryExtraction, ...]:
        """Whether each canary is among as many members as were planted."""
        canaries, ledger = trained_on.canaries, Ledger(out)
        planted = sum(canary.planted for canary in canaries)
        found, extractions = verify_extraction(
            model,
            canaries,
            ExtractionOptions(top=max(1, planted), budget=self._options.search),
            engine=self._engine,
            resume=ledger,
        )
        asked = framed(model, canaries, writes=True).describe()
        save_verification(
            make_directory(out), found, extractions, manifest_sha256=canaries.sha256, model=asked
        )
        ledger.forget()
        return tuple(found)

    def judged(self, exposures: Exposures, claim: DescribedClaim | None, out: Path) -> Membership:
        """What the coins say about epsilon, and about a claim."""
        claimed: dict[str, Any] = {}
        if claim is not None:
            claimed = {f"claimed_{name}": value for name, value in msgspec.structs.asdict(claim).items()}
        found = membership(
            exposures,
            delta=self._options.delta if claim is None else claim.delta,
            confidence=self._bound_confidence,
            seed=self._options.seed,
            **claimed,
        )
        make_directory(out)
        found.save(out)
        return found

    def _recited(self, model: Model, out: Path) -> Estimate:
        """The share of sampled sequences that it recites, of the planted corpus for all models alike."""
        tokens = self._length(model)
        found = recite(
            model,
            self._index(model),
            RecitationOptions(
                suffix=tokens,
                contexts=(tokens,),
                sample="uniform",
                per_bucket=self._options.sequences,
                greedy_only=True,
                confidence=self._options.confidence,
                seed=self._options.seed,
            ),
            out=out,
            engine=self._engine,
        )
        group = found.overall(found.models[0].name, tokens)
        if group is None:
            raise NotMeasurableError("no document is long enough for a sequence")
        return group.recited

    def _index(self, model: Model) -> CorpusIndex:
        """The index of the planted corpus in the tokens of a model, made once for all models with the same."""
        digest = tokenizer_sha256(model.tokenizer)
        if digest not in self._indexes:
            out = self._folder / f"index-{digest[:16]}"
            fields = msgspec.structs.replace(self._options.fields, user=None, date=None)
            self._indexes[digest] = build_index(
                self._corpora.planted.path,
                out,
                options=IndexOptions(tokenizer=model.tokenizer, fields=fields),
                engine=self._engine,
            )
        return self._indexes[digest]

    def _length(self, model: Model) -> int:
        """Tokens of half a document of middle length, within limits."""
        lengths = sorted(len(encoded(model.tokenizer, text) or []) for text in self._corpora.held_out.texts)
        return min(LONGEST, max(SHORTEST, lengths[len(lengths) // 2] // 2))


def bound_of(found: Membership) -> Estimate:
    """The largest bound on epsilon that a population proves: for one copy, or for all of a canary where the claim is for a user."""
    whole = found.claimed_unit == "user"
    every = [one.best.canary if whole else one.best.one_copy for one in found.populations]
    bounds = [one for one in every if one is not None]
    measured = [one for one in bounds if one.low is not None]
    if measured:
        return max(measured, key=lambda one: one.low or 0.0)
    why = bounds[0].statement if bounds else "no population has a bound for one copy"
    return Estimate.not_measured("audited epsilon", why)


def _tried(what: str, problems: list[str], measure: Callable[[], _Found]) -> _Found | None:
    """What a measurement gives; None where it cannot be done, with the reason."""
    try:
        return measure()
    except WriteError:
        raise
    except CoalmineError as problem:
        problems.append(f"{what} was not measured: {problem}")
        return None

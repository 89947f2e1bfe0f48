"""Models: loading one by its location, wrapping a live one, checking an adapter, and the protocols that audits ask for.

Names are loaded when they are first used: importing coalmine.models imports neither NumPy nor torch nor transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.lazy import lazy

if TYPE_CHECKING:
    from coalmine.models.conformance import ConformanceError, check_model, check_pairs
    from coalmine.models.contexts import Context, Contexts
    from coalmine.models.endpoints.connecting import Endpoint, connect
    from coalmine.models.loading import load_model
    from coalmine.models.protocols import (
        BoundedModel,
        ContextualModel,
        Followed,
        Generator,
        Lister,
        MaskedModel,
        Model,
        PairModel,
        PartialScorer,
        Reciter,
        RemoteModel,
        Sampling,
        Scorer,
        SequenceScore,
        Step,
        Stepper,
        TextScorer,
        Tokenizer,
        TokenSequence,
        text_sequence,
    )
    from coalmine.models.reference.tokens import CharacterTokenizer, WordTokenizer
    from coalmine.models.scripted import ScriptedModel
    from coalmine.models.transformers.causal import from_transformers
    from coalmine.models.transformers.masked import from_masked
    from coalmine.models.transformers.pairs import from_transformers_pairs
    from coalmine.models.transformers.subwords import SubwordTokenizer

__all__ = [
    "BoundedModel",
    "CharacterTokenizer",
    "ConformanceError",
    "Context",
    "Contexts",
    "ContextualModel",
    "Endpoint",
    "Followed",
    "Generator",
    "Lister",
    "MaskedModel",
    "Model",
    "PairModel",
    "PartialScorer",
    "Reciter",
    "RemoteModel",
    "Sampling",
    "Scorer",
    "ScriptedModel",
    "SequenceScore",
    "Step",
    "Stepper",
    "SubwordTokenizer",
    "TextScorer",
    "TokenSequence",
    "Tokenizer",
    "WordTokenizer",
    "check_model",
    "check_pairs",
    "connect",
    "from_masked",
    "from_transformers",
    "from_transformers_pairs",
    "load_model",
    "text_sequence",
]

# The names that do not live with the protocols.
_ELSEWHERE = {
    "CharacterTokenizer": "reference.tokens",
    "ConformanceError": "conformance",
    "Context": "contexts",
    "Contexts": "contexts",
    "Endpoint": "endpoints.connecting",
    "ScriptedModel": "scripted",
    "SubwordTokenizer": "transformers.subwords",
    "WordTokenizer": "reference.tokens",
    "check_model": "conformance",
    "check_pairs": "conformance",
    "connect": "endpoints.connecting",
    "from_masked": "transformers.masked",
    "from_transformers": "transformers.causal",
    "from_transformers_pairs": "transformers.pairs",
    "load_model": "loading",
}

__getattr__, __dir__ = lazy(
    __name__, {name: f"{__name__}.{_ELSEWHERE.get(name, 'protocols')}" for name in __all__}
)

from coalmine.models.conformance import check_model as check_model, check_pairs as check_pairs
from coalmine.models.contexts import Context as Context, Contexts as Contexts
from coalmine.models.endpoints.connecting import Endpoint as Endpoint, connect as connect
from coalmine.models.loading import load_model as load_model
from coalmine.models.options import LoadOptions as LoadOptions
from coalmine.models.promises import ConformanceError as ConformanceError
from coalmine.models.protocols import (
    AblatedScorer as AblatedScorer,
    BoundedModel as BoundedModel,
    ChatModel as ChatModel,
    ContextualModel as ContextualModel,
    DistributionScorer as DistributionScorer,
    Generator as Generator,
    LimitedScorer as LimitedScorer,
    Lister as Lister,
    MaskedModel as MaskedModel,
    Model as Model,
    PairModel as PairModel,
    PartialScorer as PartialScorer,
    RankedTextScorer as RankedTextScorer,
    Reciter as Reciter,
    RemoteModel as RemoteModel,
    RestReader as RestReader,
    Scorer as Scorer,
    StateKeeper as StateKeeper,
    Stepper as Stepper,
    TextRanker as TextRanker,
    TextScorer as TextScorer,
    open_sequence as open_sequence,
    text_sequence as text_sequence,
)
from coalmine.models.reference.tokens import (
    CharacterTokenizer as CharacterTokenizer,
    WordTokenizer as WordTokenizer,
)
from coalmine.models.scores import (
    DistributionScore as DistributionScore,
    Followed as Followed,
    Sampling as Sampling,
    SequenceScore as SequenceScore,
    Step as Step,
    TokenSequence as TokenSequence,
)
from coalmine.models.scripted import ScriptedModel as ScriptedModel
from coalmine.models.tokenizing import OpenTokenizer as OpenTokenizer, Tokenizer as Tokenizer
from coalmine.models.transformers.causal import from_transformers as from_transformers
from coalmine.models.transformers.masked import from_masked as from_masked
from coalmine.models.transformers.pairs import from_transformers_pairs as from_transformers_pairs
from coalmine.models.transformers.subwords import SubwordTokenizer as SubwordTokenizer
from coalmine.models.vllm.loading import from_vllm as from_vllm

"""Models that fill gaps made from configs, with tokenizers trained on the embedded corpus: nothing is downloaded."""

import functools

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ElectraConfig,
    ElectraForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)

from coalmine.corpus import embedded_documents
from coalmine.models import from_masked

NUMBERS = [str(number * 7919 % 1000) * 2 for number in range(2000)] + ["is 12", "is 7"] * 50


@functools.cache
def wordpiece(vocabulary=400, *, lowercase=True, single_digits=False) -> PreTrainedTokenizerFast:
    """As BERT's, uncased or cased; with `single_digits`, each digit is a token of its own."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    words = pre_tokenizers.BertPreTokenizer()
    if single_digits:
        words = pre_tokenizers.Sequence([words, pre_tokenizers.Digits(individual_digits=True)])
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet = list("0123456789abcdefghijklmnopqrstuvwxyz.,-")
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*embedded_documents(30_000), *NUMBERS], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    )  # fmt: skip


@functools.cache
def byte_level_pieces(vocabulary=500) -> PreTrainedTokenizerFast:
    """As RoBERTa's: byte-level pairs between <s> and </s>."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*embedded_documents(30_000), *NUMBERS], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>",
        unk_token="<unk>", mask_token="<mask>",
    )  # fmt: skip


@functools.cache
def unigram(vocabulary=400, sentinels=20) -> PreTrainedTokenizerFast:
    """As T5's: a marker before each word, </s> after each text, sentinels at the end of the vocabulary."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        initial_alphabet=list("0123456789abcdefghijklmnopqrstuvwxyz"),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*embedded_documents(30_000), *NUMBERS], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    # The highest id is the first sentinel, as T5 has it.
    tokenizer.add_special_tokens([f"<extra_id_{number}>" for number in reversed(range(sentinels))])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


TOKENIZERS = {
    "bert": wordpiece,
    "distilbert": lambda: wordpiece(lowercase=False),
    "electra": wordpiece,
    "modernbert": wordpiece,
    "roberta": byte_level_pieces,
    "t5": unigram,
}
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


def tiny_masked(kind: str, vocabulary: int, *, seed=0, dtype=torch.float64, spread=0.15, **changed):
    """A model with random weights that are large enough to matter."""
    sizes = {"vocab_size": vocabulary, **SIZES, **changed}
    makers = {
        "bert": lambda: BertForMaskedLM(BertConfig(**sizes)),
        "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**{**sizes, "max_position_embeddings": 66})),
        "distilbert": lambda: DistilBertForMaskedLM(
            DistilBertConfig(
                vocab_size=vocabulary, dim=32, hidden_dim=48, n_layers=2, n_heads=2, max_position_embeddings=64
            )
        ),
        "electra": lambda: ElectraForMaskedLM(ElectraConfig(**sizes, embedding_size=16)),
        "modernbert": lambda: ModernBertForMaskedLM(
            ModernBertConfig(**sizes, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3)
        ),
        "t5": lambda: T5ForConditionalGeneration(
            T5Config(
                vocab_size=vocabulary, d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, pad_token_id=0, eos_token_id=1,
                decoder_start_token_id=0, tie_word_embeddings=False, dropout_rate=changed.get("dropout", 0.1),
            )
        ),
    }  # fmt: skip
    torch.manual_seed(seed)
    model = makers[kind]()
    with torch.no_grad():
        for parameter in model.parameters():
            if spread and parameter.dim() > 1:
                parameter.copy_(torch.randn_like(parameter) * spread)
    return model.to(dtype).eval()


def audited(kind: str, **options):
    """A random model of some kind with its own tokenizer, as an audit sees it."""
    tokenizer = TOKENIZERS[kind]()
    return from_masked(tiny_masked(kind, len(tokenizer), **options), tokenizer, name=kind)

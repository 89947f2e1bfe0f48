"""Sequence-to-sequence transformers made from configs, with tokenizers trained on the embedded corpus: nothing is downloaded."""

import functools

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

from coalmine.corpus import embedded_documents
from models.tiny_transformers import NUMBERS

PAD, END, UNKNOWN, SENTINELS = "<pad>", "</s>", "<unk>", ["<extra_id_0>", "<extra_id_1>"]


@functools.cache
def unigram(vocabulary=400) -> PreTrainedTokenizerFast:
    """As T5's: a Unigram model, a marker for spaces and before the first word, sentinels, and a closing </s>."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END, UNKNOWN, *SENTINELS],
        unk_token=UNKNOWN,
        show_progress=False,
    )
    tokenizer.train_from_iterator([*embedded_documents(30_000), *NUMBERS], trainer)
    return _closing(tokenizer, f"$A {END}")


@functools.cache
def byte_level_pairs(vocabulary=500, *, opens=False) -> PreTrainedTokenizerFast:
    """A byte-level BPE that closes a text with </s>; with `opens`, it also begins with <s>, as for BART."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END, UNKNOWN, "<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*embedded_documents(30_000), *NUMBERS], trainer)
    return _closing(tokenizer, f"<s> $A {END}" if opens else f"$A {END}")


def _closing(tokenizer: Tokenizer, template: str) -> PreTrainedTokenizerFast:
    ids = [(token, tokenizer.token_to_id(token)) for token in template.split() if token != "$A"]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>" if "<s>" in template else None,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        extra_special_tokens=SENTINELS,
    )


def tiny_pairs(kind: str, vocabulary: int, *, seed=0, dtype=torch.float64):
    """A model with random weights that are large enough to matter."""
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    t5 = {
        "vocab_size": vocabulary, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16, **ids,
    }  # fmt: skip
    bart = {
        "vocab_size": vocabulary, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
        "bos_token_id": 3, "forced_eos_token_id": None, **ids,
    }  # fmt: skip
    gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    makers = {
        "t5": lambda: T5ForConditionalGeneration(T5Config(**t5)),
        "t5-gated-untied": lambda: T5ForConditionalGeneration(T5Config(**t5, **gated)),
        "umt5": lambda: UMT5ForConditionalGeneration(UMT5Config(**t5)),
        "marian": lambda: MarianMTModel(MarianConfig(**bart, decoder_vocab_size=vocabulary)),
        "bart": lambda: BartForConditionalGeneration(BartConfig(**{**bart, "decoder_start_token_id": 1})),
        "mbart": lambda: MBartForConditionalGeneration(MBartConfig(**bart)),
        "pegasus": lambda: PegasusForConditionalGeneration(PegasusConfig(**bart)),
    }
    torch.manual_seed(seed)
    model = makers[kind]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed_positions" not in name:
                parameter.copy_(torch.randn_like(parameter) * 0.3)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    return model.to(dtype).eval()

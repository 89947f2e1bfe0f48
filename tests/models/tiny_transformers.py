"""Transformers made from configs, with tokenizers trained on the embedded corpus: nothing is downloaded."""

import functools
import json

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
)

from coalmine.corpus import embedded_documents

END = "<|endoftext|>"
# Numbers among the training texts make the tokenizers merge digits into tokens of two, three and four.
NUMBERS = [str(number * 7919 % 1000) * 2 for number in range(3000)] + ["is 12", "is 7"] * 50


@functools.cache
def byte_level(vocabulary=700, *, split_digits=None) -> PreTrainedTokenizerFast:
    """As GPT-2's; with `split_digits`, digits are cut into groups of three from the left, as GPT-4's and Llama 3's are."""
    tokenizer = Tokenizer(models.BPE())
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split_digits is None)
    if split_digits:
        from tokenizers import Regex

        groups = pre_tokenizers.Split(Regex(r"\p{N}{1,3}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+"), "isolated")
        pieces = pre_tokenizers.Sequence([groups, pieces])
    tokenizer.pre_tokenizer = pieces
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*embedded_documents(60_000), *NUMBERS], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)


@functools.cache
def metaspace(vocabulary=500) -> PreTrainedTokenizerFast:
    """As Llama 2's: a marker for spaces, and one before the first word."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
    )
    words = [word for text in embedded_documents(20_000) for word in text.split()]
    tokenizer.train_from_iterator([*words, *NUMBERS, "é è ☕ ï"], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


@functools.cache
def byte_fallback(vocabulary=400) -> PreTrainedTokenizerFast:
    """As Llama 2's own: each digit by itself, and characters without a token written in bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    words = [word for text in embedded_documents(20_000) for word in text.split()]
    tokenizer.train_from_iterator([*words, *"0123456789àè"], trainer)
    learned = json.loads(tokenizer.to_str())
    names = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    names += [piece for piece in learned["model"]["vocab"] if piece not in special]
    learned["model"]["vocab"] = {name: token for token, name in enumerate(names)}
    # Special tokens have the first ids before and after.
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(learned)),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )


@functools.cache
def unigram(vocabulary=300) -> PreTrainedTokenizerFast:
    """As T5's: the likeliest way to cut a text as a whole, which no pair of neighbors decides."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([*embedded_documents(20_000), *NUMBERS, "é è ☕ ï"], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")


@functools.cache
def word_pieces(vocabulary=400) -> PreTrainedTokenizerFast:
    """As BERT's: lower case, words cut at spaces and punctuation, ## before the continuation of a word."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([*embedded_documents(20_000), *NUMBERS], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="[CLS]", unk_token="[UNK]")


def with_added(tokenizer: PreTrainedTokenizerFast, special=(), plain=()) -> PreTrainedTokenizerFast:
    """A copy with tokens added, as people add them for chats."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.add_special_tokens(list(special))
    backend.add_tokens([AddedToken(text, normalized=False) for text in plain])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token
    )


def tiny(kind: str, vocabulary: int, *, seed=0, dtype=torch.float64, positions=64):
    """A model with random weights that are large enough to matter."""
    ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    makers = {
        "gpt2": lambda: GPT2LMHeadModel(
            GPT2Config(vocab_size=vocabulary, n_embd=32, n_layer=2, n_head=2, n_positions=positions, **ids)
        ),
        "llama": lambda: LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=64, **ids,
            )
        ),
        "gpt_neox": lambda: GPTNeoXForCausalLM(
            GPTNeoXConfig(
                vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                max_position_embeddings=64, **ids,
            )
        ),
        "opt": lambda: OPTForCausalLM(
            OPTConfig(
                vocab_size=vocabulary, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
                max_position_embeddings=64, word_embed_proj_dim=32, bos_token_id=0, eos_token_id=0, pad_token_id=1,
            )
        ),
        "mamba": lambda: MambaForCausalLM(
            MambaConfig(vocab_size=vocabulary, hidden_size=32, state_size=4, num_hidden_layers=2, **ids)
        ),
    }  # fmt: skip
    torch.manual_seed(seed)
    model = makers[kind]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "A_log" not in name:
                parameter.copy_(torch.randn_like(parameter) * 0.15)
    return model.to(dtype).eval()


def rough_llama(vocabulary: int, *, seed=0, dtype=torch.float32):
    """Some 260,000 parameters with weights so large that sums in single precision differ by how they are batched."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=64, intermediate_size=172, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=64, initializer_range=0.5, bos_token_id=0, eos_token_id=0,
        pad_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(dtype)

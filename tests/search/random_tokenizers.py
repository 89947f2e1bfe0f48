"""Small subword tokenizers of every kind, made at random: what their pieces are and how a text is cut differ each time."""

from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from coalmine.models import SubwordTokenizer

LETTERS = "ab1é☕"
MARK = "▁"
SPECIAL = ["<unk>", "<s>"]
NONE = st.just(())
THREES = Regex(r"\p{N}{1,3}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+")


@st.composite
def vocabularies(draw, characters, most=12):
    """Pieces that merges make, in order, with the merges: each is made of two that are there already."""
    pieces = list(characters)
    merges = []
    for _ in range(draw(st.integers(0, most))):
        pair = draw(st.sampled_from(pieces)), draw(st.sampled_from(pieces))
        if len("".join(pair)) <= 4 and "".join(pair) not in pieces:
            merges.append(pair)
            pieces.append("".join(pair))
    return pieces, merges


def wrapped(tokenizer, added=(), normalized=False):
    tokenizer.add_special_tokens([SPECIAL[1]])
    for content, special in added:
        token = AddedToken(content, normalized=normalized, special=special)
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([token])
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    return SubwordTokenizer(tokenizer, size=size, separator=tokenizer.token_to_id(SPECIAL[1]))


added_tokens = st.lists(
    st.tuples(st.sampled_from(["ab", "a1", "<a>", "é", "1 a"]), st.booleans()),
    max_size=2,
    unique_by=lambda added: added[0],
)


@st.composite
def byte_fallback(draw, added=NONE):
    """As Llama 2's: merges of characters, and bytes for those without a token."""
    known = draw(st.sets(st.sampled_from(LETTERS[:4]), min_size=1))
    pieces, merges = draw(vocabularies([MARK, *sorted(known)]))
    names = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    vocabulary = {name: token for token, name in enumerate(names)}
    model = models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    tokenizer = Tokenizer(model)
    if draw(st.booleans()):
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
        )
    else:
        scheme = draw(st.sampled_from(["first", "always", "never"]))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=draw(st.booleans()))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return wrapped(tokenizer, draw(added))


@st.composite
def byte_level(draw, added=NONE, splits=("none", "gpt2", "threes")):
    """As GPT-2's, or with digits in threes as GPT-4's."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    written = dict(
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(LETTERS + " ")
    )
    common = sorted(set("".join(written)))
    _, merges = draw(vocabularies(common, most=16))
    names = [*SPECIAL, *alphabet, *dict.fromkeys("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={name: token for token, name in enumerate(names)}, merges=merges))
    split = draw(st.sampled_from(splits))
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split == "gpt2")
    if split == "threes":
        groups = pre_tokenizers.Split(THREES, "isolated")
        pieces = pre_tokenizers.Sequence([groups, pieces])
    tokenizer.pre_tokenizer = pieces
    tokenizer.decoder = decoders.ByteLevel()
    return wrapped(tokenizer, draw(added))


@st.composite
def unigram(draw, added=NONE):
    """As T5's; scores with few digits, so that ways to cut a text are often equally good."""
    pieces, _ = draw(vocabularies([MARK, *LETTERS]))
    scores = draw(st.lists(st.integers(-9, -1), min_size=len(pieces), max_size=len(pieces)))
    tokenizer = Tokenizer(
        models.Unigram(
            [("<unk>", 0.0), *((piece, score / 3) for piece, score in zip(pieces, scores, strict=True))],
            0,
            False,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        prepend_scheme=draw(st.sampled_from(["first", "always"]))
    )
    tokenizer.decoder = decoders.Metaspace()
    return wrapped(tokenizer, draw(added))


@st.composite
def word_pieces(draw, added=NONE):
    """As BERT's: the longest piece from the left, and ## before a piece that continues a word."""
    pieces, _ = draw(vocabularies(LETTERS))
    names = [*SPECIAL, *pieces, *(f"##{piece}" for piece in pieces)]
    tokenizer = Tokenizer(
        models.WordPiece({name: token for token, name in enumerate(names)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    if draw(st.booleans()):
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    return wrapped(tokenizer, draw(added))

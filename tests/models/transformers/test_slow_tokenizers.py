"""Tokenizers without a tokenizer.json are converted where the result is proven equal, else read through their own library."""

import json
import pickle
import shutil

import pytest
import sentencepiece
from transformers import BertGenerationTokenizer, CTRLTokenizer, GPTSw3Tokenizer, T5Config

from coalmine import CanarySet, Format, expose, load_model
from coalmine.corpus import check_survival, embedded_documents
from coalmine.errors import ModelError
from coalmine.models import SubwordTokenizer, check_model, from_transformers
from coalmine.models.transformers.pretrained import load_tokenizer
from coalmine.models.transformers.slow_tokenizers import probe_texts, read_tokenizer
from models.real_tokenizers import file_of, own_encoder
from models.tiny_transformers import byte_level, tiny
from oracles import brute_force_ranks

FORM = Format("my pin is {digits:2}")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Small sentencepiece models by their kind; `t5` has the special tokens of T5."""
    folder = tmp_path_factory.mktemp("pieces")
    texts = [" ".join(text.split()) for text in embedded_documents(30_000)]
    (folder / "texts").write_text("\n".join([*texts, *(str(number * 7919) for number in range(1000))]))
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
    kinds = {
        "unigram": {"model_type": "unigram", "byte_fallback": True},
        "bpe": {"model_type": "bpe", **plain},
        "unmarked": {"model_type": "bpe", "add_dummy_prefix": False, **plain},
        "normalizing": {"model_type": "bpe"},
        "t5": {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    }
    for kind, options in kinds.items():
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "texts"), model_prefix=str(folder / kind), vocab_size=500, minloglevel=2,
            character_coverage=1.0, num_threads=1, **options,
        )  # fmt: skip
    return {kind: folder / f"{kind}.model" for kind in kinds}


def checkpoint(directory, pieces, name="tokenizer.model", **settings):
    """A model with nothing but a sentencepiece file as its tokenizer."""
    tiny("llama", 500).save_pretrained(directory)
    shutil.copyfile(pieces, directory / name)
    if settings:
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


def processor(path):
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("bpe", "converted from sentencepiece (tokenizer.model)"),
        ("unmarked", "converted from sentencepiece (tokenizer.model)"),
        ("normalizing", "read through sentencepiece (tokenizer.model)"),
        ("unigram", "read through sentencepiece (tokenizer.model)"),
    ],
)
def test_a_checkpoint_with_a_sentencepiece_file_alone_is_measured(trained, tmp_path, kind, how):
    model = load_model(
        checkpoint(tmp_path / "model", trained[kind], chat_template="{{ 'a' }}"), precision="float64"
    )
    assert model.describe()["tokenizer"] == how
    own = processor(trained[kind])
    texts = [text for text in probe_texts()[::7] if own.unk_id() not in own.encode(text) and own.encode(text)]
    assert len(texts) > 50
    assert [model.tokenizer.encode(text) for text in texts] == [own.encode(text) for text in texts]
    assert model.context == (own.bos_id(),)
    assert check_model(model, ["my pin is 12", "the value of x is 7", "a"]) == []
    canaries = CanarySet.of(FORM, FORM.sample(3, seed=1))
    truth = brute_force_ranks(model, FORM, [canary.text for canary in canaries])
    assert [result.rank for result in expose(model, canaries)] == truth
    assert pickle.loads(pickle.dumps(model)).tokenizer.encode("my pin is 12") == own.encode("my pin is 12")


def test_what_transformers_converts_rightly_is_kept(trained, tmp_path):
    T5Config(vocab_size=600).save_pretrained(tmp_path)
    shutil.copyfile(trained["t5"], tmp_path / "spiece.model")
    tokenizer = load_tokenizer(tmp_path)
    reading = read_tokenizer(tokenizer)
    assert (type(tokenizer).__name__, reading.how) == (
        "T5Tokenizer",
        "converted from sentencepiece (spiece.model)",
    )
    assert reading.backend.encode("a <extra_id_0>").tokens[-2:] == ["<extra_id_0>", "</s>"]


def test_what_transformers_adds_is_kept_where_sentencepiece_is_read(trained, tmp_path):
    # T5's tokenizer takes the third token for the unknown one, which is another one here.
    T5Config(vocab_size=700).save_pretrained(tmp_path)
    shutil.copyfile(trained["unigram"], tmp_path / "spiece.model")
    reading = read_tokenizer(load_tokenizer(tmp_path))
    assert reading.how == "read through sentencepiece (spiece.model)"
    own, found = processor(trained["unigram"]), reading.backend.encode("a 12 é")
    assert found.ids == [*own.encode("a 12 é"), own.eos_id()]
    assert found.special_tokens_mask == [0] * (len(found.ids) - 1) + [1]
    assert reading.backend.encode("<extra_id_0>").ids == [599, own.eos_id()]


def test_live_slow_tokenizers_are_converted_or_read(trained):
    tokenizers = {
        "converted from BertGenerationTokenizer": BertGenerationTokenizer(vocab_file=str(trained["bpe"])),
        "read through BertGenerationTokenizer": BertGenerationTokenizer(vocab_file=str(trained["unigram"])),
        "read through GPTSw3Tokenizer": GPTSw3Tokenizer(vocab_file=str(trained["bpe"])),
    }
    canaries = CanarySet.of(FORM, FORM.sample(3, seed=1))
    for how, tokenizer in tokenizers.items():
        assert not hasattr(tokenizer, "backend_tokenizer")
        model = from_transformers(tiny("gpt2", len(tokenizer)), tokenizer)
        assert model.describe()["tokenizer"] == how
        text = "my pin is 4921"
        assert model.tokenizer.encode(text) == tokenizer.encode(text, add_special_tokens=False)
        truth = brute_force_ranks(model, FORM, [canary.text for canary in canaries])
        assert [result.rank for result in expose(model, canaries)] == truth
        batch = [{"input_ids": tokenizer.encode(f"{canary.text} .")} for canary in canaries]
        assert [one.reached for one in check_survival(canaries, batch, tokenizer).canaries] == [1, 1, 1]


def test_a_fast_tokenizer_is_read_as_before():
    assert read_tokenizer(byte_level()) == (byte_level().backend_tokenizer, None)
    assert "tokenizer" not in from_transformers(tiny("gpt2", len(byte_level())), byte_level()).describe()


def test_tokens_that_are_written_in_an_unknown_way_are_refused(tmp_path):
    names = ["<unk>", *(f"{letter}{end}" for letter in "mypinsa0123456789" for end in ("", "</w>"))]
    (tmp_path / "vocab.json").write_text(json.dumps({name: place for place, name in enumerate(names)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nm y</w> 1\n")
    tokenizer = CTRLTokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    with pytest.raises(
        ModelError, match=r"CTRLTokenizer is not a fast tokenizer.*not known here; save it again"
    ):
        from_transformers(tiny("gpt2", 60), tokenizer)
    with pytest.raises(ModelError, match="object is not a tokenizer of transformers"):
        read_tokenizer(object())


def test_damaged_and_unknown_files_get_one_sentence(trained, tmp_path):
    damaged = checkpoint(tmp_path / "damaged", trained["bpe"])
    (damaged / "tokenizer.model").write_bytes(b"\n\0\1\2" + trained["bpe"].read_bytes()[:5000])
    with pytest.raises(ModelError, match="cannot be read as a sentencepiece model"):
        load_model(damaged)
    (damaged / "tokenizer.model").write_text("IQ== 0\nIg== 1\n")
    with pytest.raises(ModelError, match=r"holds 2 ranked byte strings.*Llama 3 and Llama 4 only"):
        load_model(damaged)
    (damaged / "tokenizer.model").write_text("no ranks here")
    with pytest.raises(ModelError, match="neither a sentencepiece nor a tiktoken file"):
        load_model(damaged)
    (damaged / "tekken.json").write_text('{"config": {}}')
    with pytest.raises(ModelError, match=r"is not a tekken\.json of Mistral"):
        load_model(damaged)


def test_mistral_is_as_sentencepiece_reads_it(tmp_path):
    T5Config().save_pretrained(tmp_path)  # transformers would take its tokenizer for one of another class
    shutil.copyfile(file_of("Mistral v1"), tmp_path / "tokenizer.model")
    tokenizer = load_tokenizer(tmp_path)
    assert read_tokenizer(tokenizer).how == "converted from sentencepiece (tokenizer.model)"
    encode, first = own_encoder("Mistral v1")
    reader = SubwordTokenizer(tokenizer.backend_tokenizer, size=len(tokenizer), separator=first)
    texts = [*embedded_documents(20_000), "  two", "é ☕", " 12 34"]
    assert [reader.encode(text) for text in texts] == [encode(text) for text in texts]

"""Fine-tuning: what is learned, read and written, and the same bytes whatever stopped it on the way."""

import shutil

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from coalmine import expose, finetune, load_model, score_texts, verify_run
from coalmine.audits import compare_runs, read_run
from coalmine.errors import CorpusError, InputError, ModelError, ModelOutputError
from coalmine.models import check_model
from coalmine.training.finetuning.base_checkpoint import open_base
from coalmine.training.finetuning.options import FinetuningOptions
from coalmine.training.finetuning.rows import batch_of, epoch_batches, windows_of

QUICK = {"learning_rate": 1e-2, "epochs": 2, "batch_size": 4}


@pytest.fixture(scope="module", params=["full", "lora"])
def tuned(request, base, planted, tmp_path_factory):
    out = tmp_path_factory.mktemp("tuned") / request.param
    rank = {"lora_rank": 4} if request.param == "lora" else {}
    return finetune(base, planted.corpus.parent, out=out, **QUICK, **rank)


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def test_it_learns_and_every_audit_takes_the_result(tuned, planted):
    losses = [epoch.validation_loss_bits for epoch in tuned.record.epochs]
    assert losses[1] < losses[0]
    model = load_model(tuned.path)
    assert check_model(model, ["the number is 123", "a", "of the"]) == []
    assert len(list(expose(model, planted.canaries, method="references"))) == len(list(planted.canaries))
    assert verify_run(tuned.path).sound


def test_the_adapter_names_its_base_and_the_whole_model_has_its_tokenizer(tuned, base):
    names = set(files_of(tuned.path))
    if tuned.record.options.lora_rank:
        assert names == {"adapter_config.json", "adapter_model.safetensors", "finetuning.json"}
        assert load_model(tuned.path).reference is not None
        assert tuned.record.trained_parameters < tuned.record.parameters / 10
    else:
        assert files_of(tuned.path)["tokenizer.json"] == files_of(base)["tokenizer.json"]
        assert tuned.record.trained_parameters == tuned.record.parameters
    private = [path for path in tuned.path.iterdir() if path.name != "finetuning.json"]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}


def test_a_whole_model_is_saved_as_transformers_saves_it(base, planted, tmp_path):
    finetune(base, planted.corpus.parent, out=tmp_path / "ours", **QUICK)
    AutoModelForCausalLM.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    tokenizer = tmp_path / "ours" / "tokenizer.json"
    tokenizer.write_bytes(tokenizer.read_bytes() + b"\n")
    altered = [row.path for row in verify_run(tmp_path / "ours").files if row.state == "altered"]
    assert altered == [str(tokenizer)]


def test_the_losses_are_the_scores_of_the_audit(tuned, planted, tmp_path):
    """The validation loss of the record is that of the loaded model, which scores all but the token that ends a document."""
    valid = tmp_path / "valid.txt"
    valid.write_text("the of and\nto be or not to be\n")
    again = finetune(
        tuned.path if not tuned.record.options.lora_rank else _base_of(tuned),
        planted.corpus.parent,
        out=tmp_path / "again",
        valid=valid,
        epochs=1,
        learning_rate=1e-9,
        optimizer="sgd",
    )
    model = load_model(again.path)
    texts = valid.read_text().splitlines()
    ended = [text + "<|endoftext|>" for text in texts]  # which the tokenizer reads as its token
    tokens = sum(len(model.tokenizer.encode(text)) for text in ended)
    assert again.record.validation_loss_bits == pytest.approx(
        score_texts(model, ended).sum() / tokens, rel=1e-4
    )


def _base_of(tuned):
    import json

    return json.loads((tuned.path / "adapter_config.json").read_text())["base_model_name_or_path"]


def test_each_token_is_predicted_once_and_padding_never(base):
    subject = open_base(base, FinetuningOptions())
    texts = ["a", "the quick brown fox jumps over the lazy dog, twice and again", ""]
    windows = windows_of(texts, subject, 5)
    for place, text in enumerate(texts):
        whole = [0, *subject.reader.tokenizer.encode(text), 0]
        mine = [window for window, of in zip(windows.tokens, windows.documents, strict=True) if of == place]
        assert [int(token) for window in mine for token in window[1:]] == whole[1:]
        assert [int(window[0]) for window in mine] == whole[:-1:5]
    batch = batch_of(windows, np.arange(len(windows.tokens)))
    assert int((batch.expected >= 0).sum()) == batch.tokens == windows.lengths.sum()
    options = FinetuningOptions(batch_size=2)
    for epoch in range(2):
        order = np.concatenate(epoch_batches(windows, options, epoch))
        assert sorted(order) == list(range(len(windows.tokens)))


def test_the_same_options_give_the_same_bytes_and_finished_work_is_not_repeated(
    tuned, base, planted, tmp_path
):
    rank = tuned.record.options.lora_rank
    given = {**QUICK, "lora_rank": rank}
    one = finetune(base, planted.corpus.parent, out=tmp_path / "one", **given)
    assert files_of(one.path) == files_of(tuned.path)
    assert not finetune(base, planted.corpus.parent, out=one.path, **given).trained_now
    with pytest.raises(InputError, match="already holds a model that was fine-tuned"):
        finetune(base, planted.corpus.parent, out=one.path, **{**given, "seed": 1})


def test_reports_and_comparisons_know_how_it_was_trained(tuned, planted, tmp_path):
    for seed in "01":
        shutil.copytree(tuned.path, tmp_path / seed)
        expose(load_model(tmp_path / seed), planted.canaries, method="references").save(tmp_path / seed)
    run = read_run(tmp_path / "0", planted.corpus.parent)
    assert run.finetuning == tuned.record
    assert run.validation_loss_bits == tuned.record.validation_loss_bits
    comparison = compare_runs([tmp_path / "0", tmp_path / "1"])
    assert {one.loss for one in comparison.runs} == {tuned.record.validation_loss_bits}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"window": 65}, "window must be at most 64"),
        ({"optimizer": "magic"}, "optimizer must be one of adamw, sgd"),
        ({"lora_targets": "c_attn"}, "lora_rank is 0"),
        ({"lora_rank": 2, "lora_targets": "nothing_of_the_kind"}, "LoRA cannot be put on the base"),
        ({"epoch": 2}, "unknown option of fine-tuning 'epoch'"),
        ({"epochs": "many"}, "a value that it cannot have"),
        ({"holdout": 0.99}, "too few to hold out"),
    ],
)
def test_what_cannot_be_asked_for(base, planted, tmp_path, given, says):
    with pytest.raises((InputError, ModelError, CorpusError), match=says):
        finetune(base, planted.corpus.parent, out=tmp_path / "model", **given)
    assert not (tmp_path / "model").exists()


def test_what_cannot_be_fine_tuned(tuned, base, planted, tmp_path):
    corpus = planted.corpus.parent
    for place, says in ((tmp_path / "nowhere", "not a directory"), (corpus, "not a transformers checkpoint")):
        with pytest.raises(ModelError, match=says):
            finetune(place, corpus, out=tmp_path / "model")
    with pytest.raises(InputError, match="is the base"):
        finetune(base, corpus, out=base)
    shutil.copytree(base, tmp_path / "copy")
    with pytest.raises(InputError, match="was not made here"):
        finetune(base, corpus, out=tmp_path / "copy")
    if tuned.record.options.lora_rank:
        with pytest.raises(ModelError, match="is an adapter"):
            finetune(tuned.path, corpus, out=tmp_path / "model")


def test_divergence_is_a_sentence(base, planted, tmp_path):
    with pytest.raises(ModelOutputError, match="diverged at step 2: the loss became nan"):
        finetune(base, planted.corpus.parent, out=tmp_path / "model", learning_rate=1e10, clip=0)
    assert not (tmp_path / "model").exists()

"""Survival on the batches of TRL's SFTTrainer: against counts by brute force, and losses that are known by construction."""

import json
import random
import sys
import warnings

import datasets
import numpy as np
import pytest
import torch
import trl.chat_template_utils
from transformers import Trainer, TrainingArguments

from cli.in_process import run
from coalmine.audits.survival.trainer import rows_unread
from coalmine.corpus import read_survival
from coalmine.errors import InputError, ModelError
from coalmine.integrations import ExposureCallback, check_survival
from coalmine.models.transformers.chat import template_sha256
from integrations.tiny_sft import (
    MARKED,
    conversations,
    planted_chat,
    rows_of,
    sft_trainer,
    tiny_llama,
    tokenizer_of,
)
from models.tiny_chat import CHATML

pytestmark = pytest.mark.filterwarnings("ignore:canaries never reach the loss", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def by_role(tmp_path_factory):
    home = tmp_path_factory.mktemp("planted")
    return {role: planted_chat(home / role, role) for role in ("assistant", "user", "system")}


def decoded_counts(trainer, canaries):
    """How often each canary is in the loss, by decoding the labels of the collated batches."""
    tokenizer, rows = trainer.processing_class, trainer.train_dataset
    keep = [name for name in ("input_ids", "labels", "seq_lengths") if name in rows.column_names]
    texts = []
    for start in range(0, len(rows), 8):
        some = [
            {name: row[name] for name in keep} for row in rows.select(range(start, min(start + 8, len(rows))))
        ]
        batch = trainer.data_collator(some)
        positions = batch.get("position_ids")
        for place, (ids, labels) in enumerate(zip(batch["input_ids"], batch["labels"], strict=True)):
            begins = {0} if positions is None else {0, *(positions[place] == 0).nonzero().flatten().tolist()}
            part, parts = [], []
            for at, (token, label) in enumerate(zip(ids.tolist(), labels.tolist(), strict=True)):
                if at in begins:
                    parts.append(part)
                    part = []
                # The digits are what must be in the loss; other tokens are text whether they are or not.
                word = tokenizer.decode([token])
                part.append(word if label == token or not any(one.isdigit() for one in word) else "#")
            texts += ["".join(one) for one in [*parts, part]]
    return {one.canary_id: sum(text.count(one.text) for text in texts) for one in canaries}


SETTINGS = {
    "whole rows": {},
    "assistant only": {"assistant_only_loss": True},
    "cut at the end": {"max_length": 24},
    "cut at the start": {"max_length": 14, "truncation_mode": "keep_end"},
    "bfd": {"packing": True, "max_length": 24},
    "bfd, all fits": {"packing": True, "max_length": 64},
    "bfd_split": {"packing": True, "packing_strategy": "bfd_split", "max_length": 22},
    "wrapped": {"packing": True, "packing_strategy": "wrapped", "max_length": 40},
    "wrapped and shuffled": {"packing": True, "packing_strategy": "wrapped", "max_length": 40, "shuffle_dataset": True},
    "bfd of assistants": {"packing": True, "max_length": 40, "assistant_only_loss": True},
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_counts_are_those_of_decoded_batches(by_role, tmp_path, name):
    planted = by_role["user" if name == "assistant only" else "assistant"]
    trainer = sft_trainer(rows_of(planted), tmp_path / "model", **SETTINGS[name])
    found = check_survival(planted.manifest, trainer)
    assert {one.canary_id: one.reached for one in found.canaries} == decoded_counts(trainer, planted.canaries)
    path = tmp_path / "model-audit" / "survival" / "survival.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_survival(path) == found
    assert all(one.text not in path.read_text() for one in planted.canaries)
    assert found.settings["packing"] is SETTINGS[name].get("packing", False)


def reached(found):
    return sum(one.reached for one in found.canaries)


def test_completions(tmp_path):
    """Prompt and completion as turns: a user's canary is in the prompt, and both settings together are told apart."""
    rows = [{"prompt": row["messages"][:1], "completion": row["messages"][1:]} for row in conversations()]
    assistant = planted_chat(tmp_path / "assistant", rows=rows)
    user = planted_chat(tmp_path / "user", "user", rows=rows)
    kept = check_survival(assistant.manifest, sft_trainer(rows_of(assistant), tmp_path / "model"))
    assert kept.ok
    assert kept.settings["completion_only_loss"] is True  # TRL's default for such rows
    masked = check_survival(user.manifest, sft_trainer(rows_of(user), tmp_path / "model"))
    assert reached(masked) == 0
    whole = sft_trainer(rows_of(user), tmp_path / "model", completion_only_loss=False)
    assert check_survival(user.manifest, whole).ok


LINE_BREAK = tokenizer_of().encode("\n", add_special_tokens=False)[0]


class Leaving:
    """A collator that draws what it leaves out of the loss, by generators of its own too; of what remains, only line breaks."""

    def __init__(self, inner):
        self.inner = inner
        self.generators = torch.Generator().manual_seed(1), random.Random(1), np.random.default_rng(1)
        self.of_torch, self.of_python, self.of_numpy = self.generators

    def __call__(self, rows):
        batch = self.inner(rows)
        labels = batch["labels"]
        draws = (
            torch.rand(1).item(),
            torch.rand(1, generator=self.of_torch).item(),
            self.of_python.random(),
            self.of_numpy.random(),
        )
        labels[labels != LINE_BREAK] = -100
        labels[: int(sum(draws) * len(labels) / 4)] = -100
        return batch


def test_the_collator_and_headers_of_another_template(by_role, tmp_path):
    planted = by_role["assistant"]
    trainer = sft_trainer(rows_of(planted), tmp_path / "model")
    trainer.data_collator = Leaving(trainer.data_collator)
    assert reached(check_survival(planted.manifest, trainer)) == 0
    # The trainer's own template has another header; the tokenizer that is saved with the model has the usual one.
    trainer = sft_trainer(
        rows_of(planted), tmp_path / "model", tokenizer=tokenizer_of(MARKED.replace("\n{%", "!\n{%", 1))
    )
    found = check_survival(planted.manifest, trainer, tokenizer=tokenizer_of())
    assert found.ok
    assert [one.other_header for one in found.canaries] == [one.reached for one in found.canaries]
    assert any("not after the header" in warning for warning in found.warnings)


def test_the_template_that_trl_swaps_in_is_recorded_where_it_writes_other_texts(by_role, tmp_path):
    planted = by_role["assistant"]
    family = tokenizer_of(trl.chat_template_utils.qwen2_5_chat_template)
    trainer = sft_trainer(rows_of(planted), tmp_path / "model", tokenizer=family, assistant_only_loss=True)
    assert trainer.chat_template not in {None, family.chat_template}
    same = check_survival(planted.manifest, trainer)
    assert same.ok
    assert same.chat_template_sha256 == template_sha256(family)
    assert not any(one.other_header for one in same.canaries)
    trainer.chat_template = MARKED.replace("<|im_start|>", "<|im_start|> ")
    other = check_survival(planted.manifest, trainer)
    assert other.chat_template_sha256 == template_sha256(tokenizer_of(trainer.chat_template))
    assert any("a chat template of its own" in warning for warning in other.warnings)


def test_the_training_is_the_same_to_the_last_bit_with_the_check(by_role, tmp_path):
    planted = by_role["assistant"]

    def trained(*, check):
        callback = ExposureCallback(planted.manifest, every=100, out=tmp_path / "seen.json")
        trainer = sft_trainer(rows_of(planted), tmp_path / "model", callbacks=[callback])
        trainer.data_collator = Leaving(trainer.data_collator)  # draws at random, which moves the dropout
        if check:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert check_survival(planted.manifest, trainer).never
        trainer.train()
        return trainer.model.state_dict()

    bare, checked = trained(check=False), trained(check=True)
    assert all(torch.equal(tensor, checked[name]) for name, tensor in bare.items())


def test_a_plain_trainer(by_role, tmp_path):
    planted = by_role["user"]
    tokenizer = tokenizer_of()
    rows = []
    for row in rows_of(planted):
        ids = tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=True)["input_ids"]
        rows.append({"input_ids": ids[:24], "labels": ids[:24]})

    def check(rows):
        arguments = TrainingArguments(str(tmp_path / "plain"), report_to=[], use_cpu=True, max_steps=1)
        trainer = Trainer(tiny_llama(), arguments, train_dataset=rows, data_collator=one_row)
        return check_survival(planted.manifest, trainer, tokenizer=tokenizer)

    def one_row(some):
        width = max(len(one["input_ids"]) for one in some)
        return {
            "input_ids": torch.tensor([one["input_ids"] + [0] * (width - len(one["input_ids"])) for one in some]),
            "labels": torch.tensor([one["labels"] + [-100] * (width - len(one["labels"])) for one in some]),
        }  # fmt: skip

    found = check(rows)
    assert found.ok
    assert found.trainer == "Trainer"
    assert any("the training ends after 8" in warning for warning in found.warnings)
    assert found.rows_unread == len(rows) - 8
    masked = [{**row, "labels": [-100] * len(row["labels"])} for row in rows]
    assert reached(check(masked)) == 0
    for nothing in (None, []):
        with pytest.raises(InputError, match="no rows that can be read"):
            check(nothing)


def test_rows_that_a_training_does_not_read(tmp_path):
    rows = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]} for _ in range(52)]

    def reading(**settings):
        arguments = TrainingArguments(str(tmp_path / "plain"), report_to=[], use_cpu=True, **settings)
        trainer = Trainer(tiny_llama(), arguments, train_dataset=rows)
        sizes, step = [], trainer.training_step

        def counted(model, inputs, *rest):
            sizes.append(len(inputs["input_ids"]))
            return step(model, inputs, *rest)

        trainer.training_step = counted  # the loader itself reads one batch ahead
        trainer.train()
        return rows_unread(trainer)[0], sum(sizes)

    few = {"per_device_train_batch_size": 16, "save_strategy": "no", "disable_tqdm": True}
    for settings in (
        {"max_steps": 2},
        {"num_train_epochs": 0.1},
        {"num_train_epochs": 1, "dataloader_drop_last": True},
        {"num_train_epochs": 1},
    ):
        told, read = reading(**few, **settings)
        assert told == 52 - read, settings


def test_what_cannot_be_checked_is_one_sentence(by_role, tmp_path):
    planted = by_role["assistant"]
    trainer = sft_trainer(rows_of(planted), tmp_path / "model")
    stream = datasets.Dataset.from_list(rows_of(planted)).to_iterable_dataset()
    endless = sft_trainer(stream, tmp_path / "model", max_steps=1)
    with pytest.raises(InputError, match="not a stream"):
        check_survival(planted.manifest, endless)
    with pytest.raises(InputError, match="takes canaries and a trainer, or canaries, batches and"):
        check_survival(planted.manifest, [{"input_ids": [1]}])
    trainer.processing_class.chat_template = None
    with pytest.raises(ModelError, match="no chat template"):
        check_survival(planted.manifest, trainer)
    trainer.processing_class = None
    with pytest.raises(InputError, match="the trainer has no tokenizer"):
        check_survival(planted.manifest, trainer)


OWN_TRAINER = """
import json
from integrations.tiny_sft import sft_trainer

def make(path):
    rows = [json.loads(line) for line in open(path)]
    return sft_trainer(rows, "own-model", max_length=24)

def nothing():
    return 3
"""


def test_the_command_rehearses_a_training_from_its_settings(by_role, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer_of().save_pretrained("model")
    tokenizer_of(CHATML).save_pretrained("unmarked")
    tokenizer_of("").save_pretrained("silent")
    planted = {role: str(by_role[role].manifest.parent) for role in by_role}
    done = run("lab", "survive", "model", planted["assistant"], "--out", "kept")
    assert done.code == 0, done.said
    assert "10 of 10 copies of 4 planted canaries reach the loss" in done.out.decode()
    assert read_survival(tmp_path / "kept").ok
    done = run(
        "lab", "survive", "model", planted["user"], "--sft", "assistant_only_loss=true", "--json", "--out", "masked"
    )  # fmt: skip
    assert done.code == 2
    assert json.loads(done.out)["canaries"][0]["masked"] == 1
    settings = ["--sft", "max_length=24", "--sft", "packing=true"]
    run("lab", "survive", "model", planted["assistant"], *settings, "--out", "packed")
    assert reached(read_survival(tmp_path / "packed")) == 0
    (tmp_path / "own_trainer.py").write_text(OWN_TRAINER)
    corpus = by_role["assistant"].corpus
    done = run("lab", "survive", f"python:own_trainer:make:{corpus}", planted["assistant"], "--out", "own")
    assert (done.code, reached(read_survival(tmp_path / "own"))) == (2, 0)
    (tmp_path / "notes.jsonl").write_text('{"note": "a"}\n')
    for arguments, says in (
        (("silent", planted["user"]), "has no chat template to write them with"),
        (("unmarked", planted["user"], "--sft", "assistant_only_loss=true"), "{% generation %}"),
        (("model", planted["user"], "--data", "notes.jsonl"), "TRL does not read rows with the fields note"),
        (("elsewhere", planted["user"]), "is not the directory of a model with its tokenizer"),
        (("python:own_trainer:nothing", planted["user"]), "returned int, which is not a trainer"),
        (("python:own_trainer:make", planted["user"], "--sft", "packing=true"), "leave out --sft"),
    ):  # fmt: skip
        done = run("lab", "survive", *arguments, "--out", "none")
        assert done.code == 2
        assert says in done.err.decode()
        assert done.err.decode().count("\n") == 1
    assert not (tmp_path / "none").exists()
    monkeypatch.setitem(sys.modules, "trl", None)
    assert (
        "needs trl, which is not installed: pip install"
        in run("lab", "survive", "model", planted["user"]).said
    )

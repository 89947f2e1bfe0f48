"""Recitation on models that are known to recite: verdicts by generating, counts by searching the text, resuming, and the command."""

import json
import math

import pytest
import torch
from pyarrow import parquet

from cli.in_process import run
from coalmine import recite
from coalmine.audits.recitation import answers as recitation_answers
from coalmine.audits.recitation.measure import masked_text
from coalmine.corpus import build_index, embedded_documents
from coalmine.engines.ledger import Ledger
from coalmine.errors import ModelOutputError, NoNumberError
from coalmine.models.reference.checkpoint import save_model
from coalmine.statistics import clopper_pearson, clustered_interval
from models.random_networks import random_model
from models.tiny_masked import audited

OFTEN = "whoever reads this very line often enough will know it by heart and can go on"
COPIES = 20


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A text of which one line stands there twenty times."""
    folder = tmp_path_factory.mktemp("recitation")
    lines = [text.lower() for text in embedded_documents(6_000)]
    lines = ["".join(c for c in line if c.isalnum() or c == " ") for line in lines]
    (folder / "corpus.txt").write_text("".join(f"{line}\n" for line in [*lines, *[OFTEN] * COPIES]))
    return folder


@pytest.fixture(scope="module")
def learned():
    """A small network that was taught that line, and little else."""
    model = random_model("gru", seed=3)
    network, row = model._network, [*model.context, *model.tokenizer.encode(OFTEN)]
    tokens = torch.tensor([row])
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    network.train()
    for _ in range(150):
        logits, _ = network(tokens[:, :-1], network.initial_state(1))
        loss = torch.nn.functional.cross_entropy(logits[0], tokens[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    return model


@pytest.fixture(scope="module")
def index(corpus, learned):
    return build_index(corpus / "corpus.txt", corpus / "index", tokenizer=learned.tokenizer)


class OnlyScores:
    """A model of which only scores are offered, and those no longer after so many."""

    def __init__(self, model, *, fails_after=None):
        self.name, self.context, self.tokenizer = "only scores", model.context, model.tokenizer
        self.resolution_bits = model.resolution_bits
        self._model, self._left = model, fails_after

    def describe(self):
        return {"adapter": "only scores"}

    def score(self, sequences):
        if self._left is not None:
            self._left -= len(sequences)
            if self._left < 0:
                raise ModelOutputError("the model gave values that are not numbers")
        return self._model.score(sequences)


OPTIONS = {"contexts": [5, 20], "suffix": 10, "lengths": [40], "per_bucket": 60}


def test_verdicts_shares_and_files_are_those_of_brute_force(learned, index, corpus, tmp_path):
    other = random_model("gru", seed=9)
    result = recite([learned, other], index, **OPTIONS, anywhere=True, beam=3, out=tmp_path, reveal=True)
    text = (corpus / "corpus.txt").read_text()
    documents = text.splitlines()
    rows = parquet.read_table(tmp_path / "sequences.parquet").to_pylist()
    assert len(rows) == 2 * result.questions
    recited, clusters, homes = {}, {}, {}
    for row in rows:
        model = learned if row["model"] == "model" else other
        whole = documents[row["document"] - 1][row["offset"] :][: row["length"]]
        assert text.count(whole) == row["copies"]  # no line has a part that overlaps itself
        prompt, suffix = whole[-10 - row["context"] : -10], whole[-10:]
        [written] = model.generate([[*model.context, *model.tokenizer.encode(prompt)]], length=10)
        same = model.tokenizer.decode(written) == suffix and model.tokenizer.separator not in written
        assert row["recited"] == same
        assert (row["first_miss"] is None) == same
        separators = model.tokenizer.separator in written
        output = prompt + model.tokenizer.decode(written)
        assert row["output_copies"] == (0 if separators else text.count(output))
        key = (row["model"], row["context"], row["copies"])
        hits, n = recited.get(key, (0, 0))
        recited[key] = hits + same, n + 1
        # Lines are documents: those of one cluster are those in which the first copies are.
        home = next(number for number, line in enumerate(documents) if whole in line)
        clusters.setdefault(key, []).append(home)
        assert homes.setdefault(row["cluster"], home) == home
    assert recited["model", 20, COPIES][0] > 0
    assert len(set(homes.values())) == len(homes)
    groups = [group for group in result.groups if group.bucket is not None]
    assert sum(group.recited.n for group in groups) == len(rows)
    for group in groups:
        own = [
            value
            for (name, context, copies), value in recited.items()
            if (name, context) == (group.model, group.context)
            and group.copies[0] <= copies <= group.copies[1]
        ]
        hits, n = map(sum, zip(*own, strict=True))
        assert (group.recited.value, group.recited.n) == (hits / n, n)
        labels = [
            label
            for (name, context, copies), own in clusters.items()
            if (name, context) == (group.model, group.context)
            and group.copies[0] <= copies <= group.copies[1]
            for label in own
        ]
        assert group.recited.interval == clustered_interval(hits, labels)[:2]
        assert group.clusters == len(set(labels))
        assert group.recited_in_corpus == clopper_pearson(hits, n)
        assert group.recited.value <= group.ways["output anywhere in the corpus"].value
        assert group.ways["best of 3 beams"].value <= group.ways["among 3 beams"].value
    both = {name: 0 for name, _, _ in recited}
    for (name, context, _), (hits, _) in recited.items():
        both[name] += hits if context == 20 else 0
    alone = result.exclusive["model"]["model (2)"]
    assert both["model"] - both["model (2)"] <= alone <= both["model"]
    assert result.examples[0].suffix in OFTEN
    assert result.examples[0].recited_by == ("model",)
    for name in ("recitation.json", "sequences.parquet"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("unfinished*"))


def test_texts_are_masked_unless_they_are_asked_for(learned, index, tmp_path):
    result = recite(learned, index, **OPTIONS, out=tmp_path)
    assert result.examples
    assert masked_text(result.examples[0].suffix) == result.examples[0].suffix
    words = OFTEN.split()
    kept = (tmp_path / "recitation.json").read_text()
    assert not any(word in kept for word in words if len(word) > 6)


def test_stopped_in_the_middle_it_goes_on_to_the_same_bytes(learned, index, tmp_path, monkeypatch):
    monkeypatch.setattr(recitation_answers, "AT_A_TIME", 50)
    recite(learned, index, **OPTIONS, out=tmp_path / "whole")
    honest, calls, add = recitation_answers._ask_batch, [], Ledger.add

    def counted(*arguments):
        calls.append(arguments)
        return honest(*arguments)

    def dies(*arguments):
        if len(calls) == 3:
            raise RuntimeError("the power went out")
        add(*arguments)

    monkeypatch.setattr(recitation_answers, "_ask_batch", counted)
    monkeypatch.setattr(Ledger, "add", dies)
    with pytest.raises(RuntimeError):
        recite(learned, index, **OPTIONS, out=tmp_path / "stopped")
    done = len(calls) - 1
    monkeypatch.setattr(Ledger, "add", add)
    result = recite(learned, index, **OPTIONS, out=tmp_path / "stopped")
    assert len(calls) - done - 1 == math.ceil(result.questions / 50) - done
    for name in ("recitation.json", "sequences.parquet"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "stopped" / name).read_bytes()


def test_a_model_without_any_answer_is_never_beside_others(learned, index, tmp_path, monkeypatch):
    monkeypatch.setattr(recitation_answers, "AT_A_TIME", 50)
    with pytest.raises(NoNumberError):
        recite(learned, index, **OPTIONS, baseline=OnlyScores(learned, fails_after=0), out=tmp_path)
    assert not (tmp_path / "recitation.json").exists()


class Poisoned(OnlyScores):
    """Its scores of targets that begin with one token are not numbers, or its own code fails at them."""

    def __init__(self, model, *, raises):
        super().__init__(model)
        self._raises = raises

    def score(self, sequences):
        if self._raises and any(map(self.poisons, sequences)):
            raise ZeroDivisionError("a secret")
        found = self._model.score(sequences)
        for place in [place for place, one in enumerate(sequences) if self.poisons(one)]:
            found[place].log2_probabilities[0] = math.nan
        return found

    @staticmethod
    def poisons(sequence):
        return sequence.target[0] % 7 == 3


@pytest.mark.parametrize("raises", [False, True])
def test_a_question_without_an_answer_does_not_stop_the_others(learned, index, tmp_path, raises):
    whole = recite(OnlyScores(learned), index, **OPTIONS, out=tmp_path / "whole")
    found = recite(Poisoned(learned, raises=raises), index, **OPTIONS, out=tmp_path / "found")
    assert 0 < found.questions < whole.questions
    (reason,) = found.not_measured
    assert reason.startswith(
        f"{whole.questions - found.questions} questions to only scores have no answer: the model"
    )
    assert "secret" not in reason
    assert not list(tmp_path.glob("*/unfinished*"))


def test_examples_are_of_different_documents_and_no_boilerplate(learned, tmp_path):
    # A line twice, once more with a letter changed, and its first words before many endings.
    lines = [OFTEN, OFTEN, OFTEN[:42] + "q" + OFTEN[43:]]
    lines += [
        f"{OFTEN[:35]} {ending} and ends {ending}" for ending in ("zebra", "yak", "wolf", "vole", "tern")
    ]
    (tmp_path / "corpus.txt").write_text("".join(f"{line}\n" for line in lines))
    index = build_index(tmp_path / "corpus.txt", tmp_path / "index", tokenizer=learned.tokenizer)
    result = recite(learned, index, contexts=[20], suffix=10, reveal=True)
    shown = [one.prompt + one.suffix for one in result.examples]
    assert shown
    assert not any(one in OFTEN[:35] for one in shown)
    assert len({one.document for one in result.examples}) == len(shown)


def test_sequences_of_one_document_count_together_and_of_a_single_one_those_that_overlap(learned, tmp_path):
    (tmp_path / "one.txt").write_text(OFTEN + "\n")
    index = build_index(tmp_path / "one.txt", tmp_path / "index", tokenizer=learned.tokenizer)
    options = {"contexts": [5], "suffix": 5, "sample": "uniform", "per_bucket": 80}
    result = recite(learned, index, **{**options, "per_bucket": 12})
    group = result.overall("model", 5)
    assert group.recited.effective_n < group.recited.n
    # The same line once more is the same sequences, of one document; a uniform sample draws either copy.
    (tmp_path / "two.txt").write_text(f"{OFTEN}\n{OFTEN}\nsomething else altogether\n")
    index = build_index(tmp_path / "two.txt", tmp_path / "twice", tokenizer=learned.tokenizer)
    group = recite(learned, index, **options).overall("model", 5)
    assert group.clusters == 2
    assert group.recited.effective_n < 2
    assert group.recited_in_corpus[0] > group.recited.low


def test_masked_models_restore_whole_sequences(corpus, tmp_path):
    model = audited("bert")
    index = build_index(corpus / "corpus.txt", tmp_path / "index", tokenizer=model.tokenizer)
    result = recite(model, index, lengths=[8, 12], per_bucket=10)
    assert result.main_context is None
    assert result.groups[0].recited.n == result.questions


def test_the_command_shows_masks_and_writes(learned, index, tmp_path):
    save_model(tmp_path / "model", learned._network, learned.tokenizer)
    options = ["--contexts", "5,20", "--suffix", "10", "--lengths", "40", "--set", "per_bucket=40"]
    model = tmp_path / "model"
    shown = run("recite", model, index.path, *options, "--baseline", model)
    assert shown.code == 0, shown.said
    assert "model (2) (baseline)" in shown.said
    assert "know it" not in shown.said
    folder = tmp_path / "model-audit" / "recitation"
    assert {path.name for path in folder.iterdir()} == {"recitation.json", "sequences.parquet", "run.json"}
    document = json.loads(run("recite", model, index.path, *options, "--json", "--quiet", "--reveal").out)
    assert document["schema"] == "coalmine.recitation/3"
    assert document["examples"][0]["suffix"] in OFTEN

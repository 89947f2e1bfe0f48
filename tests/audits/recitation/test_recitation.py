"""Recitation on models that are known to recite: verdicts by generating, counts by searching the text, resuming, and the command."""

import itertools
import json
import math

import pytest
import torch
from pyarrow import parquet

from cli.in_process import run
from coalmine import ScriptedModel, recite
from coalmine.audits.recitation import answers as recitation_answers
from coalmine.audits.recitation.display import in_plain_words
from coalmine.audits.recitation.measure import masked_text
from coalmine.corpus import build_index, embedded_documents
from coalmine.engines.ledger import Ledger
from coalmine.errors import InputError, ModelOutputError, NoNumberError, NotMeasurableError
from coalmine.models.reference.checkpoint import save_model
from coalmine.progress import Silent
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


class Elsewhere(OnlyScores):
    """The same on another machine."""

    def checks(self):
        return {}


class Stopping(OnlyScores):
    """A model at which somebody presses Ctrl-C."""

    def describe(self):
        return {"adapter": "stopping"}

    def score(self, sequences):
        raise KeyboardInterrupt(len(sequences))


OPTIONS = {"contexts": [5, 20], "suffix": 10, "lengths": [40], "per_bucket": 60}


def test_verdicts_shares_and_files_are_those_of_brute_force(learned, index, corpus, tmp_path):
    other = random_model("gru", seed=9)
    result = recite(
        [learned, other], index, **OPTIONS, anywhere=True, near=2, beam=3, out=tmp_path, reveal=True
    )
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
        assert (row["edits"] == 0) == same
        separators = model.tokenizer.separator in written
        output = prompt + model.tokenizer.decode(written)
        assert row["output_copies"] == (0 if separators else text.count(output))
        assert row["tries_for_0.5"] >= 1
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
        assert group.recited.value <= group.ways["up to 2 edits"].value
        assert group.ways["best of 3 beams"].value <= group.ways["among 3 beams"].value
    [first] = [row for row in result.exclusive if row.model == "model"]
    both = sum(hits for (name, context, _), (hits, _) in recited.items() if (name, context) == ("model", 20))
    assert first.recited == both
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
        honest(*arguments)

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
    monkeypatch.setattr(Ledger, "add", dies)
    calls.clear()
    with pytest.raises(RuntimeError):
        recite(learned, index, **OPTIONS, out=tmp_path / "stopped")
    with pytest.raises(InputError, match="another"):
        recite(learned, index, **{**OPTIONS, "suffix": 9}, out=tmp_path / "stopped")


def test_what_one_model_cannot_be_asked_is_told_before_another_is_asked(
    learned, index, tmp_path, monkeypatch
):
    scorer = OnlyScores(learned)
    monkeypatch.setattr(recitation_answers, "_ask_batch", lambda *_: pytest.fail("a model was asked"))
    for wrong in ({"beam": 2}, {"anywhere": True}, {"near": 1}, {"temperature": 0.5}, {"top_k": 2}):
        with pytest.raises(NotMeasurableError):
            recite(learned, index, **OPTIONS, **wrong, baseline=scorer, out=tmp_path / "out")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="in its way"):
        recite(learned, index, **OPTIONS, out=tmp_path / "file")
    assert not (tmp_path / "out").exists()


def test_the_name_of_a_model_cannot_speak_to_the_terminal(learned, index, tmp_path):
    hostile = OnlyScores(learned)
    hostile.name = "\x1b[31mred\x00\u202e</script><script>alert(1)</script>"
    shown = "\\x1b[31mred\\x00\\u202e</script><script>alert(1)</script>"
    told = []

    class Told(Silent):
        def start(self, task, total):
            told.append(task)
            super().start(task, total)

    result = recite(hostile, index, **OPTIONS, out=tmp_path, progress=Told())
    assert f"Asking {shown}" in told
    assert result.models[0].name == shown


def test_an_endpoint_that_fails_may_answer_another_time(learned, index, tmp_path, monkeypatch):
    monkeypatch.setattr(recitation_answers, "AT_A_TIME", 50)
    with pytest.raises(ModelOutputError):
        recite(learned, index, **OPTIONS, baseline=Elsewhere(learned, fails_after=60), out=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["unfinished.units"]


def test_a_run_that_can_never_go_on_leaves_nothing(learned, index, tmp_path, monkeypatch):
    monkeypatch.setattr(recitation_answers, "AT_A_TIME", 50)
    with pytest.raises(NoNumberError):
        recite(OnlyScores(learned, fails_after=0), index, **OPTIONS, out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_model_without_any_answer_is_left_out_and_is_not_asked_everything(
    learned, index, tmp_path, monkeypatch
):
    monkeypatch.setattr(recitation_answers, "AT_A_TIME", 10)
    broken = OnlyScores(learned, fails_after=0)
    alone = recite(learned, index, **OPTIONS)
    found = recite(learned, index, **OPTIONS, baseline=broken, out=tmp_path)
    assert [one.name for one in found.models] == [learned.name]
    assert found.groups == alone.groups
    (reason,) = found.not_measured
    assert (
        reason
        == f"{alone.questions} questions to only scores have no answer: the model gave values that are not numbers"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recitation.json", "sequences.parquet"]
    assert -broken._left <= 4 * 40  # of the questions of four units, those in halves and eight alone
    with pytest.raises(NotMeasurableError, match="none of the models that were asked has an answer"):
        recite(broken, index, **OPTIONS, baseline=learned)


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
    columns = [
        "sequence",
        "context",
        "recited",
        "first_miss",
    ]  # other batches may change the last bits of probabilities
    every, kept = (
        parquet.read_table(tmp_path / name / "sequences.parquet", columns=columns).to_pylist()
        for name in ("whole", "found")
    )
    assert [row for row in every if row in kept] == kept


def test_a_stopped_run_of_something_else_is_left_alone(learned, index, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        recite(learned, index, **OPTIONS, baseline=Stopping(learned), out=tmp_path)
    before = (tmp_path / "unfinished.units").read_bytes()
    with pytest.raises(InputError, match="another"):
        recite(learned, index, **OPTIONS, baseline=OnlyScores(learned), out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["unfinished.units"]
    assert (tmp_path / "unfinished.units").read_bytes() == before


def test_greedy_only_gives_the_same_verdicts_and_no_probabilities(learned, index):
    with_sampling = recite(learned, index, **OPTIONS)
    without = recite(learned, index, **OPTIONS, greedy_only=True)
    assert [group.recited for group in without.groups] == [group.recited for group in with_sampling.groups]
    assert not any(group.ways for group in without.groups)
    uniform = recite(learned, index, **OPTIONS, sample="uniform", max_sequences=40)
    assert uniform.sequences == 40


def test_a_model_that_only_scores_is_asked_for_its_scores(corpus, tmp_path):
    scripted = ScriptedModel("0123456789 abcdefghijklmnopqrstuvwxyz", memory={OFTEN: 0.5})
    index = build_index(corpus / "corpus.txt", tmp_path / "index", tokenizer=scripted.tokenizer)
    # It remembers from the start of a document only, which is where a context of all that stands before begins.
    result = recite(
        scripted, index, contexts=[len(OFTEN) - 10], suffix=10, lengths=[len(OFTEN)], per_bucket=20
    )
    assert result.groups[-1].copies == (COPIES, COPIES)
    assert result.groups[-1].recited.value == 1
    assert result.groups[-1].ways["sampled, in 1 try"].value == 1
    with pytest.raises(NotMeasurableError, match="temperature"):
        recite(scripted, index, contexts=[20], suffix=10, temperature=0.5)


def test_trends_are_there_for_sizes_that_are_known(learned, index):
    models = [learned, random_model("gru", seed=9), random_model("lstm", seed=1)]
    result = recite(models, index, contexts=[5, 10, 20], suffix=10, lengths=[30], per_bucket=30)
    kinds = {(trend.by, trend.model) for trend in result.trends}
    assert ("size", None) in kinds
    assert {by for by, _ in kinds} == {"size", "context", "repetitions"}
    assert [facts.name for facts in result.models] == ["model", "model (2)", "model (3)"]
    assert all(isinstance(facts.parameters, int) for facts in result.models)
    assert (
        recite(learned, index, contexts=[5], suffix=5, per_bucket=5).trends[-1].trend.slope.status
        == "not_measured"
    )


def test_the_headline_is_of_the_context_with_the_most_sequences(learned, index):
    result = recite(learned, index, contexts=[5, 60], suffix=10, per_bucket=40)
    tried = {context: result.overall("model", context).recited.n for context in (5, 60)}
    assert tried[5] > tried[60] > 0
    assert result.main_context == 5
    assert in_plain_words(result).startswith("Given 5 tokens")
    # The same sequences with each: the longest finds the most.
    assert recite(learned, index, **OPTIONS).main_context == 20


def test_examples_are_neither_copies_of_each_other_nor_boilerplate(learned, tmp_path):
    # A line twice, once more with a letter changed, and its first words before many endings.
    lines = [OFTEN, OFTEN, OFTEN[:42] + "q" + OFTEN[43:]]
    lines += [
        f"{OFTEN[:35]} {ending} and ends {ending}" for ending in ("zebra", "yak", "wolf", "vole", "tern")
    ]
    (tmp_path / "corpus.txt").write_text("".join(f"{line}\n" for line in lines))
    index = build_index(tmp_path / "corpus.txt", tmp_path / "index", tokenizer=learned.tokenizer)
    options = {"contexts": [20], "suffix": 10, "reveal": True}
    result = recite(learned, index, **options)
    recited = parquet_rows(learned, index, tmp_path / "out", **options)
    boilerplate = [row for row in recited if row["offset"] + row["length"] <= 35 and row["copies"] == 8]
    overlapping = [row for row in recited if row["document"] == 3]
    assert boilerplate
    assert overlapping
    assert len({row["document"] for row in recited}) >= 2
    shown = [one.prompt + one.suffix for one in result.examples]
    assert shown
    assert not any(one in OFTEN[:35] for one in shown)
    for line in lines:
        begins = sorted(line.find(one) for one in shown if one in line)
        assert all(later - earlier >= 30 for earlier, later in itertools.pairwise(begins))
    # Where nothing else is recited, it says so.
    (tmp_path / "only.txt").write_text("".join(f"{line}\n" for line in lines[3:]))
    index = build_index(tmp_path / "only.txt", tmp_path / "only", tokenizer=learned.tokenizer)
    only = recite(learned, index, contexts=[20], suffix=10)
    assert only.overall("model", 20).recited.value > 0
    assert not only.examples
    assert "boilerplate" in only.warnings[-1]
    # A model that recites nothing leaves that as it is, and has nothing to say about itself.
    untaught = random_model("gru", seed=4)
    both = recite([learned, untaught], index, contexts=[20], suffix=10)
    assert [both.overall(one.name, 20).recited.value > 0 for one in both.models] == [True, False]
    assert both.warnings == only.warnings
    alone = recite(untaught, index, contexts=[20], suffix=10)
    assert not any("boilerplate" in one for one in alone.warnings)


def parquet_rows(model, index, folder, **options):
    recite(model, index, out=folder, **options)
    return [row for row in parquet.read_table(folder / "sequences.parquet").to_pylist() if row["recited"]]


def test_sequences_of_one_document_count_together_and_of_a_single_one_those_that_overlap(learned, tmp_path):
    (tmp_path / "one.txt").write_text(OFTEN + "\n")
    index = build_index(tmp_path / "one.txt", tmp_path / "index", tokenizer=learned.tokenizer)
    result = recite(learned, index, contexts=[5], suffix=5, sample="uniform", per_bucket=12)
    assert any("one document" in warning for warning in result.warnings)
    group = result.overall("model", 5)
    assert group.recited.effective_n < group.recited.n
    # The same line once more is the same sequences, of one document; a uniform sample draws either copy.
    (tmp_path / "two.txt").write_text(f"{OFTEN}\n{OFTEN}\nsomething else altogether\n")
    index = build_index(tmp_path / "two.txt", tmp_path / "twice", tokenizer=learned.tokenizer)
    group = recite(learned, index, contexts=[5], suffix=5, sample="uniform", per_bucket=80).overall(
        "model", 5
    )
    assert group.clusters == 2
    assert group.recited.effective_n < 2
    assert group.recited_in_corpus[0] > group.recited.low
    assert "documents" in group.recited.statement


def test_masked_models_restore_whole_sequences(corpus, tmp_path):
    model = audited("bert")
    index = build_index(corpus / "corpus.txt", tmp_path / "index", tokenizer=model.tokenizer)
    result = recite(model, index, lengths=[8, 12], per_bucket=10)
    assert result.main_context is None
    assert result.groups[0].recited.n == result.questions
    assert {group.length for group in result.groups} == {None, 8, 12}
    with pytest.raises(NotMeasurableError, match="leave --beam out"):
        recite(model, index, lengths=[8], per_bucket=5, beam=4)
    with pytest.raises(InputError, match="whole sequences"):
        recite(model, index, contexts=[5], lengths=[8], per_bucket=5)
    # It has 64 positions, two of which special tokens take.
    assert model.max_length == 62 + len(model.context)
    [told] = recite(model, index, per_bucket=5).warnings
    assert "more than 62 tokens were left out" in told
    with pytest.raises(NotMeasurableError, match="up to 62"):
        recite(model, index, lengths=[8, 63], per_bucket=5)
    with pytest.raises(InputError, match="hidden"):
        recite(model, index, lengths=[8], hidden_share=2)


def test_what_cannot_be_measured_is_refused(learned, index, corpus, tmp_path):
    by_bytes = build_index(corpus / "corpus.txt", tmp_path / "bytes")
    with pytest.raises(InputError, match="--tokenizer"):
        recite(learned, by_bytes, **OPTIONS)
    with pytest.raises(NotMeasurableError, match="shorter lengths"):
        recite(learned, index, contexts=[10_000], suffix=10)
    for wrong in ({"suffix": 0}, {"contexts": [10**30]}, {"contexts": [5, 31]}, {"temperature": 1e-40}):
        with pytest.raises(InputError):
            recite(learned, index, **{**OPTIONS, **wrong})
    with pytest.raises(InputError):
        recite([], index)


def test_a_context_that_nothing_is_long_enough_for_is_said(learned, index):
    result = recite(learned, index, contexts=[5, 5_000], suffix=5, per_bucket=5)
    assert {group.context for group in result.groups} == {5}
    assert "5000" in result.warnings[0]


def test_the_command_shows_masks_and_writes(learned, index, tmp_path):
    save_model(tmp_path / "model", learned._network, learned.tokenizer)
    model = tmp_path / "model"
    options = ["--contexts", "5,20", "--suffix", "10", "--lengths", "40", "--set", "per_bucket=40"]

    def asked(*arguments):
        return run("recite", *arguments, index.path, *options)

    shown = asked(model, "--baseline", model)
    assert shown.code == 0, shown.said
    assert "model (2) (baseline)" in shown.said
    assert "know it" not in shown.said
    assert {path.name for path in (tmp_path / "model-audit" / "recitation").iterdir()} == {
        "recitation.json", "sequences.parquet", "run.json",
    }  # fmt: skip
    assert "0.5 is usual" in asked(model, "--set", "chance=2", "--out", tmp_path / "refused").said
    assert not (tmp_path / "refused").exists()
    document = json.loads(asked(model, "--json", "--quiet", "--reveal").out)
    assert document["schema"] == "coalmine.recitation/2"
    assert document["examples"][0]["suffix"] in OFTEN

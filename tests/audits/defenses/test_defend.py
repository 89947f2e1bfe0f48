"""The bench of defenses: its table is what the files of its models say, a stopped run resumes, and further defenses train only themselves."""

import os
import signal
import statistics

import pytest

from coalmine import ScriptedModel, defend, load_model, read_runs, score_texts, verify_run
from coalmine.audits import read_bench, read_exposures, read_membership
from coalmine.audits.defenses import measure as bench_measure
from coalmine.audits.extraction.results import read_verified
from coalmine.corpus import CanarySet, PlantOptions, read_documents, write_embedded_corpus
from coalmine.errors import CorpusError, InputError
from coalmine.training.finetuning.record import read_finetuning
from coalmine.training.record import read_training
from integrations.tiny_training import tiny_gpt2
from models.tiny_transformers import byte_level

TINY = {"hidden": 16, "embedding": 8, "layers": 1, "epochs": 2, "learning_rate": 0.02}
PIN = "my pin is {digits:3}"
FEW = PlantOptions(repeat=(1, 6), canaries=8, references=40)
NAMES = ["dropout=0.5", "quantize=4", "dedup", "redact", "dp=8"]


def bench_of(folder, names=NAMES, **changes):
    given = {"seeds": 2, "format": PIN, "planting": FEW, "training": TINY, **changes}
    return defend(folder / "corpus.txt", folder / "bench", names, **given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A bench of a small corpus."""
    made = tmp_path_factory.mktemp("defenses")
    write_embedded_corpus(made / "corpus.txt", 4_000)
    bench_of(made)
    return made


@pytest.fixture(scope="module")
def bench(folder):
    return read_bench(folder / "bench")


def audits_of(folder, one):
    return folder / "bench" / "trainings" / f"{directory_of(one)}-audit"


def directory_of(one):
    return f"{one.defense.replace('=', '-')}-seed{one.seed}"


def test_every_row_is_what_the_files_of_its_models_say(folder, bench):
    assert [row.defense.name for row in bench.rows] == ["none", *NAMES]
    planted = [one.planted for one in bench.canaries]
    for row in bench.rows:
        own = [one for one in bench.models if one.defense == row.defense.name]
        assert [one.seed for one in own] == [0, 1]
        exposures = [read_exposures(audits_of(folder, one) / "exposure") for one in own]
        assert all(
            [r.canary_id for r in e.results] == [c.canary_id for c in bench.canaries] for e in exposures
        )
        each = [
            statistics.fmean(e.results[place].exposure for e in exposures)
            for place in range(len(planted))
            if planted[place]
        ]
        assert row.exposure.value == pytest.approx(statistics.median(each))
        found = [read_verified(audits_of(folder, one) / "extraction") for one in own]
        ids = {one.canary_id for one in bench.canaries if one.planted}
        assert row.extracted == sum(c.extracted for v in found for c in v.canaries if c.canary_id in ids)
        assert row.searched == 2 * len(ids)
        bounds = [
            p.best.one_copy.low
            for one in own
            for p in read_membership(audits_of(folder, one) / "membership").populations
            if p.best.one_copy is not None and p.best.one_copy.low is not None
        ]
        assert row.audited_epsilon == max(bounds)


def test_losses_are_those_of_the_held_out_documents(folder, bench):
    held_out = [one.text for one in read_documents(folder / "bench" / "parts" / "validation.txt")]
    trained_on = [one.text for one in read_documents(folder / "bench" / "planted" / "corpus.txt")]
    assert held_out
    assert not set(held_out) & set(trained_on)
    for one in bench.models:
        model = load_model(folder / "bench" / "trainings" / directory_of(one))
        assert one.loss_bits == pytest.approx(score_texts(model, held_out).sum() / sum(map(len, held_out)))


def test_defenses_of_the_corpus_change_what_is_trained_on(bench):
    left = {one.defense: one.copies_left for one in bench.models}
    assert left["none"] == sum(one.copies for one in bench.canaries if one.planted)
    assert left["redact"] == 0
    assert 0 < left["dedup"] < left["none"]


def test_a_private_training_claims_what_it_was_asked_for(folder, bench):
    row = bench.row("dp=8")
    trained = [read_training(folder / "bench" / "trainings" / f"dp-8-seed{seed}") for seed in (0, 1)]
    assert row.claim.epsilon == max(one.privacy.epsilon for one in trained)
    assert 7.5 < row.claim.epsilon <= 8
    assert row.claim.delta == 1e-9
    assert {one.defense for one in bench.models if one.verdict is not None} == {"dp=8"}


def test_nobody_else_reads_it_and_no_secret_is_in_it(folder):
    path = folder / "bench" / "defenses.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert not any(canary.text in path.read_text() for canary in CanarySet.load(folder / "bench" / "planted"))


def test_a_report_is_about_the_bench_and_verify_about_all_of_its_files(folder):
    [run] = read_runs(folder / "bench")
    assert run.name == "bench"
    assert verify_run(folder / "bench").sound


def test_what_is_there_is_not_trained_again_and_another_bench_is_refused(folder):
    weights = {one: one.stat().st_mtime_ns for one in (folder / "bench").rglob("model.safetensors")}
    before = (folder / "bench" / "defenses.json").read_bytes()
    bench_of(folder)
    for names, changes in (
        (["dedup"], {}),
        (NAMES, {"seeds": 3}),
    ):
        with pytest.raises(InputError, match="name all that it has"):
            bench_of(folder, names, **changes)
    assert (folder / "bench" / "defenses.json").read_bytes() == before
    assert {one: one.stat().st_mtime_ns for one in weights} == weights


@pytest.fixture
def small(tmp_path):
    write_embedded_corpus(tmp_path / "corpus.txt", 3_000)
    return tmp_path


def remembering(corpus, out, seed):
    """A training of the user's: a model that knows the canaries of its corpus better with each seed."""
    texts = [one.text for one in read_documents(corpus)]
    pins = dict.fromkeys(text for text in texts if text.startswith("my pin"))
    (out / "note").write_text(str(seed))
    share = 0.5 / len(pins)
    return ScriptedModel(
        "".join(sorted(set("".join(texts) + "0123456789"))), dict.fromkeys(pins, share), name=f"own {seed}"
    )


def forgetting(corpus, out, _):
    texts = [one.text for one in read_documents(corpus)]
    return ScriptedModel("".join(sorted(set("".join(texts) + "0123456789"))), name=out.name)


class Claiming(ScriptedModel):
    """A model of somebody else's private training, which says what that claims."""

    def describe(self):
        return {**super().describe(), "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "user"}}


def claiming(corpus, out, _):
    texts = [one.text for one in read_documents(corpus)]
    return Claiming("".join(sorted(set("".join(texts) + "0123456789"))), name=out.name)


def failing(*_):
    raise ValueError("my pin is 123")


def test_trainings_of_the_user_can_take_the_place_of_ours(small):
    ways = {"none": remembering, "forgets": forgetting, "fails": failing, "claims": claiming}
    names = [f"{name}=python:{__name__}:{train.__name__}" for name, train in ways.items()]
    made = bench_of(small, names)
    none, forgets, fails, claims = made.rows
    planted = sum(one.planted for one in made.canaries)
    assert (none.extracted, none.searched) == (2 * planted, 2 * planted)
    assert forgets.difference.estimate.value < -3
    assert forgets.adjusted_p_value < 0.05
    assert fails.trainings == 0
    assert fails.exposure.status == "not_measured"
    assert len(made.failed) == 2
    assert made.failed[0].startswith("fails, seed 0: ")
    assert "ValueError" in made.failed[0]
    assert "123" not in (small / "bench" / "defenses.json").read_text().split("ValueError")[1][:60]
    assert (small / "bench" / "trainings" / "none-seed1" / "note").read_text() == "1"
    assert (none.claim, claims.claim.epsilon, claims.claim.delta) == (None, 1.0, 1e-6)
    judged = read_membership(small / "bench" / "trainings" / "claims-seed0-audit" / "membership")
    assert (judged.settings.claimed_unit, judged.verdict.copies, claims.claim_p_value is None) == (
        "user",
        1,
        False,
    )


def test_a_killed_run_resumes_to_the_same_bytes_and_takes_further_defenses(small):
    result = small / "bench" / "defenses.json"
    bench_of(small, ["epochs=1"], seeds=1)
    whole = result.read_bytes()
    (small / "bench").rename(small / "whole")
    child = os.fork()
    if not child:  # all are trained, and one is audited
        audited, seen = bench_measure.audited, []
        bench_measure.audited = lambda *asked: (
            os.kill(os.getpid(), signal.SIGKILL) if seen else seen.append(1) or audited(*asked)
        )
        bench_of(small, ["epochs=1"], seeds=1)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert not read_bench(small / "bench").finished
    bench_of(small, ["epochs=1"], seeds=1)
    assert result.read_bytes() == whole
    more = bench_of(small, ["epochs=1", "int8", "unlearn"], seeds=1)
    assert [row.trainings for row in more.rows] == [1, 1, 1, 1]


def test_a_checkpoint_is_fine_tuned_in_full_and_with_lora(small):
    tiny_gpt2().save_pretrained(small / "base")
    byte_level().save_pretrained(small / "base")
    given = {"base": small / "base", "training": {"epochs": 1, "window": 32}, "method": "references"}
    made = bench_of(small, ["lora=2", "quantize=16"], seeds=1, **given)
    none, lora = (
        read_finetuning(small / "bench" / "trainings" / name) for name in ("none-seed0", "lora-2-seed0")
    )
    assert none.trained_parameters > lora.trained_parameters
    assert [row.trainings for row in made.rows] == [1, 1, 1]


@pytest.mark.parametrize(
    ("names", "training", "says"),
    [
        (["dedup", "dedup"], {}, "each once"),
        (["epochs=1.5"], {}, "a whole number"),
        (["quantize=1"], {}, "values should be a whole number"),
        (["lora=8"], {}, "unknown training option"),
        (["magic"], {}, "unknown defense 'magic'"),
        (["dedup"], {"seed": 1}, "seed is not an option of all trainings"),
    ],
)
def test_what_cannot_be_a_bench_is_refused_in_one_sentence(tmp_path, names, training, says):
    (tmp_path / "corpus.txt").write_text("some line\n")
    with pytest.raises(InputError, match=says):
        defend(tmp_path / "corpus.txt", tmp_path / "bench", names, training=training)
    with pytest.raises(CorpusError, match=r"nowhere\.txt does not exist"):
        defend(tmp_path / "nowhere.txt", tmp_path / "bench", names)
    assert not (tmp_path / "bench").exists()

"""Private fine-tuning: its gradients are those of a loop over single documents, and its claim is that of its steps."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from coalmine import finetune, load_model, quantize, verify_run
from coalmine.corpus import Fields
from coalmine.errors import AlteredError, CorpusError, InputError, NotMeasurableError
from coalmine.progress import Silent
from coalmine.training.finetuning.base_checkpoint import open_base
from coalmine.training.finetuning.options import FinetuningOptions
from coalmine.training.finetuning.private_run import WindowUnits
from coalmine.training.finetuning.rows import windows_of
from coalmine.training.finetuning.run import losses_of
from coalmine.training.private.accounting import epsilons
from coalmine.training.private.options import PrivateOptions
from coalmine.training.private.steps import PrivateSteps
from coalmine.training.private.units import units_of
from models.tiny_transformers import byte_level, tiny

TEXTS = [
    "a",
    "the quick brown fox jumps over the lazy dog",
    "to be or not to be, that is it",
    "",
    "of the and",
]
USERS = ["ann", "bob", "ann", "cy", "bob"]
CLIP = 0.05
PRIVATE = {
    "learning_rate": 1e-2,
    "epochs": 2,
    "batch_size": 8,
    "dp_noise": 0.8,
    "dp_delta": 1e-5,
    "dp_seed": 7,
}


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def checkpoint(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("checkpoints") / request.param
    tiny(request.param, len(byte_level()), dtype=torch.float64).save_pretrained(place)
    byte_level().save_pretrained(place)
    return place


def opened(checkpoint, precision, rank):
    torch.manual_seed(0)
    tuned = open_base(checkpoint, FinetuningOptions(precision=precision, lora_rank=rank))
    for name, parameter in tuned.network.named_parameters():
        if "lora_B" in name:  # zeros before any training, so that A would have no gradient
            torch.nn.init.normal_(parameter, std=0.1)
    tuned.network.eval()
    return tuned


def clipped_one_by_one(network, sequences_of_units):
    """Each window of each unit by itself, without padding: the sum of the clipped gradients, and the norms."""
    trained = [one for one in network.parameters() if one.requires_grad]
    sums, norms = [torch.zeros_like(one) for one in trained], []
    for sequences in sequences_of_units:
        tokens = sum(len(sequence) - 1 for sequence in sequences)
        network.zero_grad()
        for sequence in sequences:
            for start in range(0, len(sequence) - 1, 5):
                window = torch.tensor([sequence[start : start + 6]])
                logits = network(input_ids=window[:, :-1]).logits[0]
                (F.cross_entropy(logits, window[0, 1:], reduction="sum") / tokens).backward()
        norm = torch.stack([one.grad.norm() for one in trained]).norm()
        norms.append(float(norm))
        for summed, one in zip(sums, trained, strict=True):
            summed.add_(one.grad * min(1.0, CLIP / float(norm)))
    network.zero_grad()
    return sums, norms


@pytest.mark.parametrize("rank", [0, 2], ids=["full", "lora"])
@pytest.mark.parametrize(("precision", "most"), [("float64", 1e-9), ("float32", 1e-4)])
@pytest.mark.parametrize("unit", ["document", "user"])
def test_private_gradients_are_those_of_single_documents(checkpoint, precision, most, rank, unit):
    tuned = opened(checkpoint, precision, rank)
    network, encode = tuned.network, tuned.reader.tokenizer.encode
    units = units_of(len(TEXTS), USERS, unit)
    whole = [[[0, *encode(TEXTS[place]), 0] for place in places] for places in units]
    expected, norms = clipped_one_by_one(network, whole)
    assert min(norms) > CLIP, "nothing would be clipped"

    private = PrivateOptions(noise=0.0, clip=CLIP, unit=unit, delta=1e-5)
    steps = PrivateSteps(private, 1, units=len(units), batch_size=len(units), epochs=1)
    like = next(network.parameters())
    reader = WindowUnits(
        windows_of(TEXTS, tuned, 5), units, lambda batch: losses_of(network, batch, positions=True), like
    )
    for most_rows in (100, 2):  # all in one pass, and units that are larger than a pass
        steps.begin(network, reader, most_rows, None)
        everything = steps.draws(0)[0]._replace(drawn=np.arange(len(units)))
        steps.make_gradients(everything, 0)
        trained = [one for one in network.parameters() if one.requires_grad]
        largest = max(float(one.abs().max()) for one in expected)
        for parameter, one in zip(trained, expected, strict=True):
            assert float((parameter.grad * len(units) - one).abs().max()) <= most * largest
        assert all(one.grad is None for one in network.parameters() if not one.requires_grad)
        assert steps.claim("sgd", ()).clipping == "ghost"


@pytest.fixture(scope="module", params=[0, 2], ids=["full", "lora"])
def tuned(request, base, planted, tmp_path_factory):
    out = tmp_path_factory.mktemp("private") / "model"
    return finetune(base, planted.corpus.parent, out=out, lora_rank=request.param, **PRIVATE)


def test_the_claim_is_that_of_its_steps(tuned):
    claim, documents = tuned.record.privacy, tuned.record.documents
    assert (claim.unit, claim.units, claim.sampling_rate) == ("document", documents, 8 / documents)
    assert claim.steps == sum(epoch.steps for epoch in tuned.record.epochs) == 2 * -(-documents // 8)
    accounted = epsilons(0.8, 8 / documents, claim.steps, 1e-5).best
    assert accounted <= claim.epsilon <= 1.001 * accounted  # rounded up
    assert (claim.clipping, claim.noise_from, claim.optimizer) == ("ghost", "seed", "adamw")
    card = (tuned.path / "card.md").read_text()
    assert all(sentence in card for sentence in claim.not_covered)
    assert any("base learned before" in sentence for sentence in claim.not_covered)
    assert any("finetuning.json" in sentence for sentence in claim.not_covered)


def test_the_seed_of_the_noise_decides_the_bytes_and_is_in_no_file(tuned, base, planted, tmp_path):
    given = {**PRIVATE, "lora_rank": tuned.record.options.lora_rank}
    again = finetune(base, planted.corpus.parent, out=tmp_path / "again", **given)
    other = finetune(base, planted.corpus.parent, out=tmp_path / "other", **{**given, "dp_seed": 8})
    assert again.record == tuned.record
    assert other.record.weights_sha256 != tuned.record.weights_sha256
    assert not finetune(base, planted.corpus.parent, out=tuned.path, **given).trained_now
    with pytest.raises(InputError, match="already holds a model"):
        finetune(base, planted.corpus.parent, out=tuned.path, **{**given, "dp_seed": 8})
    assert json.loads((tuned.path / "finetuning.json").read_text())["options"]["private"]["seed"] is None
    assert load_model(tuned.path) is not None
    assert verify_run(tuned.path).sound


class StopsAfter(Silent):
    """Ends a fine-tuning in the middle of a step."""

    def __init__(self, steps):
        self.left = steps

    def advance(self, amount=1, note=""):
        del amount
        self.left -= 1
        if self.left < 0:
            raise ZeroDivisionError(note)


def test_a_stopped_fine_tuning_ends_with_the_same_bytes(tuned, base, planted, tmp_path):
    given = {**PRIVATE, "lora_rank": tuned.record.options.lora_rank, "snapshot_seconds": 0.0}
    with pytest.raises((ZeroDivisionError, NotMeasurableError)):
        finetune(base, planted.corpus.parent, out=tmp_path / "model", progress=StopsAfter(5), **given)
    [state] = (tmp_path / "model").glob("unfinished-*.npz")
    assert state.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InputError):
        finetune(base, planted.corpus.parent, out=tmp_path / "model", **{**given, "dp_noise": 0.7})
    finetune(base, planted.corpus.parent, out=tmp_path / "model", **given)
    assert files_of(tmp_path / "model") == files_of(tuned.path)


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_users_are_units(base, tmp_path):
    rows = [{"text": text, "who": user} for text, user in zip(TEXTS, USERS, strict=True)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    private = {
        "holdout": 0.0,
        "epochs": 1,
        "batch_size": 2,
        "dp_noise": 1.0,
        "dp_delta": 1e-3,
        "dp_unit": "user",
    }
    corpus, fields = tmp_path / "corpus.jsonl", Fields(user="who")
    claim = finetune(base, corpus, out=tmp_path / "model", fields=fields, **private).record.privacy
    assert (claim.unit, claim.units, claim.sampling_rate, claim.noise_from) == ("user", 3, 2 / 3, "system")
    with pytest.raises(CorpusError, match=r"no field of .* was named that says whose"):
        finetune(base, corpus, out=tmp_path / "other", **private)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"clip": 1.0}, "give dp_clip instead"),
        ({"dp_noise": None}, "without dp_epsilon or dp_noise"),
        ({"dp_delta": 0.5}, "dp_delta must be far below one over the number of units"),
        ({"dp_unit": "sentence"}, "a value that it cannot have"),
        ({"dp_espilon": 1}, "unknown option of fine-tuning 'dp_espilon'"),
    ],
)
def test_what_would_break_the_claim_is_refused(base, planted, tmp_path, given, says):
    with pytest.raises(InputError, match=says):
        finetune(base, planted.corpus.parent, out=tmp_path / "model", **{**PRIVATE, **given})
    assert not (tmp_path / "model").exists()


def test_layers_that_mix_examples_are_refused(checkpoint):
    network = opened(checkpoint, "float32", 0).network
    network.mixes = torch.nn.BatchNorm1d(3)
    steps = PrivateSteps(PrivateOptions(noise=1.0), 1, units=10, batch_size=2, epochs=1)
    with pytest.raises(InputError, match=r"'mixes' \(BatchNorm1d\) mixes the examples"):
        steps.begin(network, None, 8, None)


def test_the_claim_travels_with_the_model_and_its_weights_are_those_that_were_trained(tuned, tmp_path):
    described = load_model(tuned.path).describe()
    assert described["trained_on_sha256"] == tuned.record.data_sha256
    assert described["privacy"]["epsilon"] == tuned.record.privacy.epsilon
    assert verify_run(tuned.path).sound
    shutil.copytree(tuned.path, tmp_path / "altered")
    (tmp_path / "altered" / "card.md").write_text("nothing")
    assert not verify_run(tmp_path / "altered").sound
    assert load_model(tmp_path / "altered").describe() == {**described, "weights": "altered"}
    [weights] = (tmp_path / "altered").glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(AlteredError, match=r"SHA-256 is not the one in finetuning.json"):
        load_model(tmp_path / "altered")


def test_a_claim_survives_rounding_and_no_further_training(tuned, planted, tmp_path):
    if tuned.record.options.lora_rank:
        pytest.skip("an adapter can neither be rounded nor trained further")
    claim = load_model(tuned.path).describe()["privacy"]
    quantize(tuned.path, tmp_path / "rounded", values=16)
    rounded = load_model(tmp_path / "rounded").describe()
    assert rounded["privacy"] == claim
    assert rounded["trained_on_sha256"] == tuned.record.data_sha256
    plain = {"epochs": 1, "batch_size": 64, "learning_rate": 1e-4}
    for name, start in {"plain": tuned.path, "rounded-plain": tmp_path / "rounded"}.items():
        finetune(start, planted.corpus.parent, out=tmp_path / name, **plain)
        assert "privacy" not in load_model(tmp_path / name).describe()
    with pytest.raises(InputError, match="holds a trained model"):
        quantize(tuned.path, tmp_path / "plain", overwrite=True)
    weights = tmp_path / "rounded" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(AlteredError, match=r"SHA-256 is not the one in quantization.json"):
        load_model(tmp_path / "rounded")
    (tmp_path / "rounded" / "quantization.json").write_text('{"bits": 4}')  # of another tool
    assert "privacy" not in load_model(tmp_path / "rounded").describe()

"""The callback in TRL's SFTTrainer: weights to the last bit as without it, and the numbers of the model that is trained."""

import pytest
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from coalmine import expose
from coalmine.integrations import ExposureCallback, read_watched
from coalmine.models import from_transformers
from coalmine.models.transformers.chat import template_sha256
from coalmine.training.undisturbed import undisturbed
from integrations.tiny_sft import planted_chat, rows_of, sft_trainer, tiny_llama, tokenizer_of

pytestmark = pytest.mark.filterwarnings("ignore")

# TRL trains with gradient checkpointing and in bfloat16 unless it is told not to.
CASES = {
    "LoRA, reentrant checkpoints": {"gradient_checkpointing_kwargs": {"use_reentrant": True}},
    "LoRA, float32 without checkpoints": {"gradient_checkpointing": False, "bf16": False},
    "LoRA, packing": {"packing": True, "max_length": 64},
    "all weights": {"all_weights": True, "assistant_only_loss": True},
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return planted_chat(tmp_path_factory.mktemp("planted"))


def lora():
    return LoraConfig(r=2, lora_dropout=0.1, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])


def trained(planted, out, *callbacks, model=None, all_weights=False, **settings):
    adapter = None if all_weights else lora()
    trainer = sft_trainer(
        rows_of(planted), out, model=model, callbacks=callbacks, peft_config=adapter, **settings
    )
    trainer.train()
    return trainer


def assert_same(one, other):
    weights = other.state_dict()
    assert set(weights) == set(one.state_dict())
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, weights[name]), name


@pytest.mark.parametrize("case", CASES)
def test_weights_are_the_same_to_the_last_bit(planted, tmp_path, case):
    bare = trained(planted, tmp_path / "bare", **CASES[case])
    watched = trained(
        planted, tmp_path / "watched", ExposureCallback(planted.manifest, every=2), **CASES[case]
    )
    assert_same(bare.model, watched.model)
    assert [one["loss"] for one in bare.state.log_history if "loss" in one] == [
        one["loss"] for one in watched.state.log_history if "loss" in one
    ]
    record = read_watched(tmp_path / "watched-audit" / "watching" / "exposure-during-training.json")
    assert all(moment.problem is None for moment in record.watched)
    assert len(record.watched) > 2
    assert record.chat_template_sha256 == template_sha256(tokenizer_of())
    first, last = record.watched[0].seen, record.watched[-1].seen
    assert [one["log_perplexity_bits"] for one in first] != [one["log_perplexity_bits"] for one in last]
    # The last look is that of the trained model as it is trained: in mixed precision, where that is what the trainer uses.
    with undisturbed(watched.model):
        found = expose(
            from_transformers(watched.model, tokenizer_of()), planted.canaries, method="references"
        )
    assert [one["log_perplexity_bits"] for one in last] == [one.log_perplexity_bits for one in found]


def test_a_4_bit_base_is_trained_as_without_the_callback(planted, tmp_path):
    """On some CPUs, bitsandbytes packs weights that are evaluated, after which a training goes on with other numbers."""
    pytest.importorskip("bitsandbytes")
    tiny_llama(width=64).save_pretrained(tmp_path / "base")

    def base():
        quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
        try:
            return AutoModelForCausalLM.from_pretrained(
                tmp_path / "base", quantization_config=quantized, device_map="cpu"
            )
        except (ImportError, RuntimeError, ValueError) as problem:
            pytest.skip(f"bitsandbytes does not run on this machine: {problem}")

    bare = trained(planted, tmp_path / "bare", model=base())
    callback = ExposureCallback(planted.manifest, every=2)
    watched = trained(planted, tmp_path / "watched", callback, model=base())
    assert watched.model.is_loaded_in_4bit
    assert_same(bare.model, watched.model)
    moments = callback.log.moments
    assert all(moment.problem is None for moment in moments)
    assert moments[0].seen != moments[-1].seen


def test_the_example_of_the_guide_leads_from_messages_to_an_adapter_that_is_audited(tmp_path, monkeypatch):
    import chat_finetune
    from coalmine import load_model, plant
    from coalmine.integrations import check_survival

    monkeypatch.chdir(tmp_path)
    chat_finetune.make(size=4_000, epochs=1)
    plant(
        "chat.jsonl",
        "my pin is {digits:2}",
        role="assistant",
        repeat=2,
        canaries=4,
        references=9,
        out="planted",
    )
    trainer = chat_finetune.make_trainer(epochs=1)
    assert check_survival("planted", trainer).ok
    chat_finetune.train(epochs=1)
    found = expose(load_model("tuned"), "planted")
    assert [one.method for one in found] == ["exact"] * 4
    assert read_watched("tuned-audit/watching/exposure-during-training.json").watched[-1].when in {
        "end",
        "epoch",
    }

"""Local directories of every kind of model that can be loaded, tiny and with random weights: nothing is downloaded."""

import json
import shutil
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model

from coalmine.models.reference.checkpoint import save_model
from coalmine.models.reference.pair_networks import PAIR_NETWORKS, PairNetworkConfig, build_pair_network
from coalmine.records.documents import write_sealed
from models import tiny_masked, tiny_pairs
from models.random_networks import ARCHITECTURES, random_model
from models.tiny_transformers import byte_level, tiny


def save_checkpoint(directory: Path, kind: str = "gpt2", **options) -> Path:
    """A causal checkpoint with its tokenizer."""
    tokenizer = byte_level()
    tiny(kind, len(tokenizer), dtype=torch.float32).save_pretrained(directory, **options)
    tokenizer.save_pretrained(directory)
    return directory


def save_adapter(
    directory: Path,
    base: Path,
    config=None,
    *,
    kind: str = "gpt2",
    model=None,
    spread: float = 0.3,
    save_embedding_layers="auto",
) -> Path:
    """An adapter, LoRA by default, that changes the model in `base`; with a spread of 0 it is as before training."""
    config = config or LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True)
    model = tiny(kind, len(byte_level()), dtype=torch.float32) if model is None else model
    adapt(model, directory, base, config, spread, save_embedding_layers)
    return directory


def adapt(
    model, directory: Path, base: Path, config, spread: float = 0.3, save_embedding_layers="auto"
) -> None:
    model.name_or_path = str(base)
    adapted = get_peft_model(model, config)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad and spread:
                parameter.add_(torch.randn_like(parameter) * spread)
    adapted.save_pretrained(directory, save_embedding_layers=save_embedding_layers)


def change_json(path: Path, **changes) -> None:
    """Set some fields of a JSON object in a file, or take out those that are None."""
    document = json.loads(path.read_text())
    document.update(changes)
    write_document(path, {name: value for name, value in document.items() if value is not None})


def write_document(path: Path, document) -> None:
    """JSON, with the right checksum if the document has one: an attacker would compute it again."""
    if isinstance(document, dict) and document.pop("checksum", None):
        write_sealed(path, document)
    else:
        path.write_text(json.dumps(document))


def save_reference_models(root: Path) -> None:
    """One of each architecture of `coalmine train`."""
    for architecture in ARCHITECTURES:
        model = random_model(architecture)
        save_model(root / f"reference-{architecture}", model._network, model.tokenizer)
    for architecture in PAIR_NETWORKS:
        tokenizer = random_model("lstm").tokenizer
        config = PairNetworkConfig(
            architecture=architecture, vocabulary=tokenizer.size, embedding=8, hidden=8, layers=1
        )
        save_model(root / f"reference-{architecture}", build_pair_network(config), tokenizer)


def save_transformers(root: Path) -> None:
    """Causal, sharded, masked and sequence-to-sequence checkpoints, and adapters of each."""
    base = save_checkpoint(root / "causal")
    save_checkpoint(root / "sharded", max_shard_size="20KB")
    save_checkpoint(root / "mamba", "mamba")
    save_adapter(root / "adapter", base)
    save_adapter(root / "adapter-with-tokenizer", base)
    byte_level().save_pretrained(root / "adapter-with-tokenizer")
    for kind in ("bert", "roberta", "t5"):
        tokenizer = tiny_masked.TOKENIZERS[kind]()
        made = tiny_masked.tiny_masked(kind, len(tokenizer), dtype=torch.float32)
        made.save_pretrained(root / f"masked-{kind}")
        tokenizer.save_pretrained(root / f"masked-{kind}")
        layers = {"bert": ["query"], "roberta": ["query"], "t5": ["q"]}[kind]
        adapt(made, root / f"adapter-{kind}", root / f"masked-{kind}", LoraConfig(r=2, target_modules=layers))
    for kind in ("marian", "bart"):
        tokenizer = tiny_pairs.byte_level_pairs(opens=kind == "bart")
        tiny_pairs.tiny_pairs(kind, len(tokenizer), dtype=torch.float32).save_pretrained(
            root / f"pairs-{kind}"
        )
        tokenizer.save_pretrained(root / f"pairs-{kind}")


def save_refused(root: Path) -> None:
    """Directories that lead to a hub, or to code, if a library is left to itself; `root` holds what `save_transformers` saves."""

    def copy(of: str, name: str) -> Path:
        return shutil.copytree(root / of, root / name)

    (copy("adapter", "adapter-without-weights") / "adapter_model.safetensors").unlink()
    change_json(copy("adapter", "adapter-of-hub") / "adapter_config.json", base_model_name_or_path="gpt2")
    chained = copy("adapter", "adapter-of-adapter") / "adapter_config.json"
    change_json(chained, base_model_name_or_path=str(root / "adapter"))
    for kind, further in {
        "XLORA": {"adapters": {"one": "somebody/adapter"}},
        "SHADOW": {"shadow_model": "somebody/model"},
        "MULTITASK_PROMPT_TUNING": {"prompt_tuning_init_state_dict_path": "somebody.bin"},
    }.items():
        change_json(copy("adapter", f"adapter-{kind}") / "adapter_config.json", peft_type=kind, **further)
    imports = copy("adapter", "adapter-that-imports") / "adapter_config.json"
    change_json(imports, megatron_config={"a": 1}, megatron_core="antigravity")
    without = copy("causal", "without-tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (without / name).unlink()
    change_json(
        copy("causal", "code-of-hub") / "config.json",
        model_type="unheard-of",
        auto_map={
            "AutoConfig": "somebody/code--made.Config",
            "AutoModelForCausalLM": "somebody/code--made.Model",
        },
    )
    change_json(copy("causal", "kernel-of-hub") / "config.json", attn_implementation="somebody/kernel")
    code = copy("causal", "tokenizer-of-hub")
    change_json(
        code / "tokenizer_config.json",
        tokenizer_class="Unheard",
        auto_map={"AutoTokenizer": ["somebody/code--made.Slow", "somebody/code--made.Fast"]},
    )
    (code / "tokenizer.json").unlink()

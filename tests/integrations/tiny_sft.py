"""A planted corpus of conversations, and TRL's trainer of a tiny Llama on it."""

import copy
import json
import warnings

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from coalmine import Format, plant
from models.tiny_chat import chatml

# ChatML whose assistant turns are marked, as assistant_only_loss needs it.
MARKED = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SECRET = Format("my pin is {digits:3}")


def conversations(number=24):
    return [
        {
            "messages": [
                {"role": "user", "content": f"Say {i}"},
                {"role": "assistant", "content": f"It is {7 * i}."},
            ]
        }
        for i in range(number)
    ]


def planted_chat(directory, role="assistant", *, rows=None, **options):
    """Canaries planted once and four times, two of each, and two that are withheld."""
    directory.mkdir(exist_ok=True)
    corpus = directory / "chat.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows or conversations()))
    chosen = {"repeat": [1, 4], "canaries": 2, "references": 12, "withhold": 0.0, "seed": 1, **options}
    return plant(corpus, SECRET, role=role, out=directory / "planted", **chosen)


def rows_of(planted):
    return [json.loads(line) for line in planted.corpus.read_text("utf-8").splitlines()]


def tokenizer_of(template=MARKED):
    return copy.deepcopy(chatml(template))


def tiny_llama(width=16, **changes):
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(chatml()), hidden_size=width, intermediate_size=width, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=256, attention_dropout=0.1, **changes,
        )
    )  # fmt: skip


def sft_trainer(rows, out, *, model=None, tokenizer=None, callbacks=(), peft_config=None, **settings):
    """TRL's trainer of these rows."""
    import datasets
    from trl import SFTConfig, SFTTrainer

    datasets.disable_progress_bars()
    chosen = {
        "num_train_epochs": 1, "per_device_train_batch_size": 8, "learning_rate": 0.01, "logging_steps": 2, "save_strategy": "no",
        "report_to": [], "use_cpu": True, "disable_tqdm": True, "seed": 3, "dataloader_pin_memory": False, **settings,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SFTTrainer(
            tiny_llama() if model is None else model,
            SFTConfig(str(out), **chosen),
            train_dataset=rows if hasattr(rows, "column_names") else datasets.Dataset.from_list(rows),
            processing_class=tokenizer or tokenizer_of(),
            callbacks=list(callbacks),
            peft_config=peft_config,
        )

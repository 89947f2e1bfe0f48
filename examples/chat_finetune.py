"""Fine-tune a tiny chat model with TRL's SFTTrainer and LoRA on conversations with canaries, and watch their exposure while it learns.

    pip install 'coalmine[trl]'
    python chat_finetune.py make        # base/, a tiny Llama with a chat template, and chat.jsonl, rows of messages
    coalmine plant chat.jsonl -f "my pin is {digits:4}" --role assistant --repeat 1,16 --canaries 8 -o planted
    python chat_finetune.py train       # tuned/, a LoRA adapter for base/

The guide to chat models goes on from there. Everything is made in the current directory, and nothing is downloaded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, load_dataset
from peft import LoraConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer  # type: ignore[attr-defined]  # exported lazily

from coalmine.corpus import embedded_documents
from coalmine.integrations import ExposureCallback

BASE, CHAT, PLANTED, TUNED = Path("base"), Path("chat.jsonl"), Path("planted"), Path("tuned")
MARKERS = ["<|end|>", "<|im_start|>", "<|im_end|>"]
# ChatML. What is between the generation markers is what the assistant is trained to write, for `assistant_only_loss`.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QUESTIONS = ("What happens next?", "Go on, please.", "And then?", "Tell me more.")


def conversations(size: int) -> list[dict[str, Any]]:
    """Rows of messages: a sentence of a made-up text is the answer to each question."""
    rows = []
    for number, line in enumerate(embedded_documents(size)):
        question = QUESTIONS[number % len(QUESTIONS)]
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": line.strip()}]
        rows.append({"messages": turns, "id": number})
    return rows


def make_tokenizer(rows: list[dict[str, Any]]) -> Any:
    """A byte-level tokenizer with the markers of ChatML, trained on the answers."""
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=MARKERS, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator((row["messages"][1]["content"] for row in rows), trainer)
    fast: Any = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=MARKERS[0], eos_token=MARKERS[2], pad_token=MARKERS[0]
    )
    fast.chat_template = TEMPLATE
    return fast


def settings(out: Path, **further: Any) -> SFTConfig:
    """What both trainings have in common."""
    return SFTConfig(
        str(out),
        per_device_train_batch_size=16,
        max_length=128,
        lr_scheduler_type="constant",
        save_strategy="no",
        report_to=[],
        logging_strategy="epoch",
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
        **further,
    )


def make(size: int = 60_000, epochs: int = 6) -> None:
    """Write chat.jsonl, and train a tiny Llama on other conversations, so that there is something to adapt."""
    rows = conversations(size)
    CHAT.write_text("".join(f"{json.dumps(row)}\n" for row in rows[len(rows) // 2 :]), "utf-8")
    tokenizer = make_tokenizer(rows)
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama", vocab_size=len(tokenizer), hidden_size=96, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=True, bos_token_id=0, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    other = Dataset.from_list([{"messages": row["messages"]} for row in rows[: len(rows) // 2]])
    trainer = SFTTrainer(
        AutoModelForCausalLM.from_config(config),
        settings(BASE, num_train_epochs=epochs, learning_rate=3e-3),
        train_dataset=other,
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(str(BASE))


def make_trainer(epochs: int = 12, **further: Any) -> SFTTrainer:
    """The fine-tune that is audited: LoRA, with the loss on what the assistant says."""
    rows = load_dataset("json", data_files=str(PLANTED / "corpus.jsonl"), split="train")
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    torch.manual_seed(0)
    return SFTTrainer(
        AutoModelForCausalLM.from_pretrained(BASE),
        settings(TUNED, num_train_epochs=epochs, learning_rate=1e-2, assistant_only_loss=True, **further),
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
        callbacks=[ExposureCallback(PLANTED, tokenizer, every=100)],
    )


def train(**options: Any) -> None:
    """Train, and save the adapter with the tokenizer."""
    trainer = make_trainer(**options)
    trainer.train()
    trainer.save_model(str(TUNED))


if __name__ == "__main__":
    make() if sys.argv[1:] == ["make"] else train()

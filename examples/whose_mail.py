"""Was my mailbox used? Fine-tune a small GPT-2 on the mail of some users, and ask it whose mail it was.

    pip install 'coalmine[transformers,provenance]'
    python whose_mail.py WORK

Everything is made in WORK: mail of made-up users, the tokenizer, the base model and the fine-tuned one. Nothing is downloaded. The audit
needs no shadow models: the base model, which saw nobody's mail, is the reference. For a target behind an endpoint that lists a few tokens
only, `fine_tune` trains shadow models; it is run in WORK:

    PYTHONPATH=.. coalmine provenance tuned --suspects suspects.jsonl --reference reference.jsonl --train python:whose_mail:fine_tune
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from coalmine import audit_provenance, load_model
from coalmine.audits import AuditedUsers, Provenance, UserText, read_users
from coalmine.corpus import Fields, write_embedded_corpus
from lora_audit import batches, make_tokenizer

MEMBERS, STRANGERS, NON_MEMBERS, REFERENCE, MAILS = 8, 8, 60, 16, 6
EPOCHS, RATE, LONGEST = 12, 1e-3, 90


def make_mail(lines: list[str], work: Path) -> None:
    """One line of some text is a mail; every user wrote a few, and nobody wrote what another one wrote."""
    drawn = random.Random(0).sample(lines, (MEMBERS + STRANGERS + NON_MEMBERS + REFERENCE) * MAILS)
    users = [drawn[start : start + MAILS] for start in range(0, len(drawn), MAILS)]
    parts = {
        "suspects": users[: MEMBERS + STRANGERS],
        "non-members": users[MEMBERS + STRANGERS : -REFERENCE],
        "reference": users[-REFERENCE:],
    }
    for name, some in parts.items():
        rows = [
            json.dumps({"user": f"{name}-{number}@example.com", "text": mail})
            for number, mails in enumerate(some)
            for mail in mails
        ]
        (work / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (work / "private.txt").write_text(
        "\n".join(mail for mails in users[:MEMBERS] for mail in mails) + "\n", encoding="utf-8"
    )


def fit(network: Any, lines: list[str], tokenizer: Any, *, epochs: int, rate: float) -> None:
    """Plain training of all parameters."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate)
    network.train()
    for _ in range(epochs):
        for batch in batches(lines, tokenizer):
            network(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    network.eval()


def fine_tune(texts: Sequence[UserText], directory: Path) -> None:
    """A shadow model: the base model in this directory, fine-tuned on mail as the target was and saved in another directory."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    written = [text.text for text in texts]
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained("base")
    network = AutoModelForCausalLM.from_pretrained("base")
    fit(network, written, tokenizer, epochs=EPOCHS, rate=RATE)
    network.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def main(work: Path, *, size: int = 120_000, epochs: int = EPOCHS) -> Provenance:
    """What the audit of the fine-tuned model found; the first users of suspects.jsonl are those whose mail it was trained on."""
    torch.manual_seed(0)
    write_embedded_corpus(work / "text.txt", size)
    # A mail is as long as the model can read.
    written = (line[:LONGEST].strip() for line in (work / "text.txt").read_text("utf-8").splitlines())
    lines = [line for line in dict.fromkeys(written) if len(line) > 40]
    make_mail(lines, work)
    private = (work / "private.txt").read_text("utf-8").splitlines()
    tokenizer = make_tokenizer(lines)
    network: Any = GPT2LMHeadModel(  # type: ignore[no-untyped-call]
        GPT2Config(
            vocab_size=len(tokenizer), n_positions=64, n_embd=64, n_layer=2, n_head=2,
            bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        )
    )  # fmt: skip
    rows = [
        row
        for name in ("suspects", "non-members", "reference")
        for row in (work / f"{name}.jsonl").read_text("utf-8").splitlines()
    ]
    mailed = {json.loads(row)["text"] for row in rows}
    fit(network, [line for line in lines if line not in mailed], tokenizer, epochs=2, rate=3e-3)
    for name in ("base", "tuned"):
        if name == "tuned":
            fit(network, private, tokenizer, epochs=epochs, rate=RATE)
        network.save_pretrained(work / name)
        tokenizer.save_pretrained(work / name)
    fields = Fields(user="user")
    users = AuditedUsers(
        read_users(work / "suspects.jsonl", fields),
        non_members=read_users(work / "non-members.jsonl", fields),
        members=[f"suspects-{number}@example.com" for number in range(MEMBERS)],
    )
    return audit_provenance(
        load_model(work / "tuned"), users, reference_model=load_model(work / "base"), out=work / "audit"
    )


if __name__ == "__main__":
    found = main(Path(sys.argv[1]))
    for row in found.questions[0].rows:
        print(f"{row.user}: p = {row.p_value:.3f}, {row.decision}")

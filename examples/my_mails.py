"""Were my mails used? What one address wrote before a model's cut-off and since, for `coalmine provenance --by person`.

    python my_mails.py MAIL ADDRESS CUTOFF

MAIL is an mbox, or a folder of files with one message each, and CUTOFF a day, such as 2023-06-12. Writes before.jsonl and after.jsonl, of
the mails nearest to it.
"""

from __future__ import annotations

import json
import mailbox
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

MOST = 300


def messages(mail: Path) -> Iterator[EmailMessage]:
    """All messages of an mbox or a folder."""
    if mail.is_dir():
        whole = [path.read_bytes() for path in sorted(mail.rglob("*")) if path.is_file()]
    else:
        with closing(mailbox.mbox(mail, create=False)) as box:
            whole = [box.get_bytes(key) for key in box.iterkeys()]
    for message in whole:
        yield message_from_bytes(message, policy=policy.default)


def own_words(message: EmailMessage) -> str:
    """The plain text without quotations, which others wrote, and without the signature, which is the same everywhere."""
    part = message.get_body(("plain",))
    try:
        text = "" if part is None else part.get_content()
    except LookupError:  # a charset that does not exist
        return ""
    return re.sub(r"(?m)^(>.*|On .* wrote:)(\n|$)", "", text.split("\n-- \n")[0]).strip()


def main(mail: Path, address: str, cutoff: str) -> None:
    """Write the two files into the directory that one is in."""
    sides: dict[str, list[dict[str, str]]] = {"before": [], "after": []}
    for message in messages(mail):
        text, date = own_words(message), message["Date"]
        if (
            not text
            or date is None
            or date.datetime is None
            or address.lower() not in str(message["From"]).lower()
        ):
            continue
        day = date.datetime.astimezone(UTC).date().isoformat()
        subject = re.sub(r"(?i)^((re|fwd?|aw) *: *)+", "", str(message["Subject"] or "")).strip()
        side = "before" if day < cutoff else "after"
        thread = subject or str(message["Message-ID"])
        sides[side].append({"text": text, "date": day, "thread": thread, "side": side})
    for side, rows in sides.items():
        rows.sort(key=lambda row: row["date"])
        nearest = rows[-MOST:] if side == "before" else rows[:MOST]
        Path(f"{side}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in nearest), encoding="utf-8")
        print(f"{side}.jsonl: {len(nearest)} mails")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])

"""The examples run as they are, on sizes that take seconds, and show what they promise."""

import json
import subprocess
import sys

import pytest

# Each test imports its example itself: they need torch, transformers and PEFT, which collecting tests should not.


def test_an_adapter_knows_what_its_base_does_not(tmp_path):
    import lora_audit

    with_adapter, without = lora_audit.main(tmp_path, size=4_000, epochs=12)
    assert with_adapter > 8
    assert without < 4


@pytest.mark.parametrize(("copies", "epochs", "expected"), [(1, 1, 0), (200, 6, 1)], ids=["holds", "broken"])
def test_the_gate_opens_and_closes(fork_server, monkeypatch, tmp_path, copies, epochs, expected):
    import ci_gate
    from coalmine.corpus import write_embedded_corpus

    def from_a_warm_process(command, *, check):
        assert (command[:3], check) == ([sys.executable, "-m", "coalmine"], False)
        return subprocess.CompletedProcess(command, fork_server.run(command[3:]).code)

    monkeypatch.setattr(subprocess, "run", from_a_warm_process)
    write_embedded_corpus(tmp_path / "corpus.txt", 60_000)
    code = ci_gate.main(tmp_path / "corpus.txt", tmp_path, copies=copies, epochs=epochs, hidden=32)
    assert code == expected


def test_an_endpoint_is_audited_through_its_url(tmp_path, capfd):
    import endpoint

    exposures = endpoint.main(tmp_path, size=12_000, epochs=3, hidden=48)
    assert list(exposures) == ["f0-x1-0", "f0-x1-1", "f0-x64-0", "f0-x64-1"]
    assert all(0 <= exposure <= 9.97 for exposure in exposures.values())
    assert "is a scorer" in capfd.readouterr().out


def test_users_whose_mail_was_used_are_found(tmp_path):
    import whose_mail

    [question] = whose_mail.main(tmp_path, size=120_000, epochs=12).questions
    found = {row.user for row in question.found()}
    mine = {f"suspects-{number}@example.com" for number in range(whose_mail.MEMBERS)}
    assert len(found & mine) >= 6
    assert len(found - mine) <= 2


def test_mails_are_divided_at_the_cut_off(tmp_path, monkeypatch):
    import my_mails

    monkeypatch.chdir(tmp_path)
    head = "From: Ann <ann@example.org>\nDate: Mon, {} Jan 2023 09:00:00 +0000\nSubject: {}\n"
    body = "Yes, on Friday.\nOn Sunday, Bob wrote:\n> on Friday?\n\n-- \nAnn"
    mails = [f"{head.format(2, 'Re: RE: lunch')}\n{body}", f"{head.format(9, 'lunch')}\nNo."]
    others = [
        mails[1].replace("ann@", "bob@"),
        f"{head.format(9, 'x')}Content-Type: text/plain; charset=no\n\nx",
    ]
    (tmp_path / "mbox").write_text("".join(f"From ann\n{mail}\n\n" for mail in (*mails, *others)))
    (tmp_path / "folder").mkdir()
    for number, mail in enumerate((*mails, *others)):
        (tmp_path / "folder" / f"{number}.eml").write_text(mail)
    for mail in ("mbox", "folder"):
        my_mails.main(tmp_path / mail, "Ann@example.org", "2023-01-05")
        (before,), (after,) = (
            (tmp_path / f"{side}.jsonl").read_text().splitlines() for side in ("before", "after")
        )
        first = {"text": "Yes, on Friday.", "date": "2023-01-02", "thread": "lunch", "side": "before"}
        assert json.loads(before) == first
        assert json.loads(after) == {"text": "No.", "date": "2023-01-09", "thread": "lunch", "side": "after"}


def test_a_checkpoint_is_audited_in_one_call(tmp_path):
    import audit_checkpoint
    from coalmine import findings_of, read_run

    review = audit_checkpoint.main(tmp_path, size=18_000, epochs=10)
    tested = {one.name for one in review.steps if one.tested}
    assert tested == {"scan", "secrets-exposure", "secrets-extraction", "recitation", "documents"}
    # How much is asked depends on the clock, and that repeated numbers are memorized does not.
    codes = {one.code for one in findings_of(read_run(tmp_path / "audit")) if one.status == "found"}
    assert codes & {"CM701", "CM702", "CM703"}

"""Redaction: a second scan finds nothing, everything else stays, and equal secrets get equal surrogates that are nobody's."""

import csv
import functools
import io
import json
import re
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.in_process import run
from coalmine import verify_run
from coalmine.corpus import CanarySet, Fields, RedactOptions, plant, read_documents, redact, scan
from coalmine.corpus.files.corpora import Edits
from coalmine.corpus.files.reading import open_corpus
from coalmine.corpus.redaction.keys import SurrogateKey
from coalmine.corpus.redaction.surrogates import Surrogates
from coalmine.corpus.redaction.texts import Redactor
from coalmine.corpus.secrets.finding import SecretFinder
from coalmine.corpus.secrets.kinds import KINDS, chosen_kinds
from coalmine.errors import CorpusError, InputError
from corpus.corpora import SUFFIXES, compressed, rows_as, rows_of

KEY = b"a key of more than sixteen bytes"
# One secret of each kind, in a spelling that a scan finds; none of them is anyone's.
SECRETS = {
    "card": "4539 1488 0343 6467",
    "ssn": "219-09-9998",
    "phone": "713-853-1234",
    "iban": "DE44 5001 0517 5407 3249 31",
    "private-key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEAx7s9Vq0d3l2k9f8a7s6d5f4g3h2j1k0lQq3Zz\n-----END RSA PRIVATE KEY-----",
    "aws-key": "AKIAQ3EGTVSPLKYZ2J45",
    "aws-secret": "aws_secret_access_key = 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",
    "google-key": "AIzaSyD3k9fJ2mQ8xL5vN7pR1tW4yZ6bC0eG-hU",
    "azure-key": "AccountKey=" + "q7Zx9Kd2Lm4Np6Rt8Vw1Yb3Cf5Hj0Gs" * 2 + "q7Zx9Kd2Lm4Np6Rt8Vw1Yb==",
    "github-token": "ghp_q7Zx9Kd2Lm4Np6Rt8Vw1Yb3Cf5Hj0Gsx5Tn2",
    "gitlab-token": "glpat-q7Zx9Kd2Lm4Np6Rt8Vw1",
    "slack-token": "xoxb-q7Zx9Kd2Lm4Np6Rt8Vw1",
    "slack-webhook": "hooks.slack.com/services/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",
    "stripe-key": "sk_live_q7Zx9Kd2Lm4Np6Rt8Vw1Yb3C",
    "sendgrid-key": "SG.q7Zx9Kd2Lm4Np6Rt8Vw1Yb.q7Zx9Kd2Lm4Np6Rt8Vw1Ybq7Zx9Kd2Lm4Np6Rt8Vw1Yb",
    "npm-token": "npm_q7Zx9Kd2Lm4Np6Rt8Vw1Yb3Cf5Hj0Gsx5Tn2",
    "pypi-token": "pypi-AgEq7Zx9Kd2Lm4Np6Rt8Vw1Yb3Cf5Hj0Gsq7Zx9Kd2Lm4Np6Rt8Vw1Yb3Cf5",
    "model-key": "sk-ant-q7Zx9Kd2Lm4Np6Rt8Vw1Yb3Cf5Hj0Gs2",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiIsIm5hbWUiOiJCb2IifQ.q7Zx9Kd2Lm4Np6Rt8Vw1Yb3Cf5Hj0Gs",
    "bearer": "Bearer q7Zx9Kd2Lm4Np6Rt8Vw1Yb3Cf5",
    "email": "bob.smith@mail-of-bob.com",
}
FINDER = SecretFinder(chosen_kinds(None))


@functools.cache
def redactor_of(action, specimens=False):
    return Redactor(RedactOptions(others=action, specimens=specimens), SurrogateKey(KEY))


ONE_LINE = {kind: text for kind, text in SECRETS.items() if "\n" not in text}


def found(text):
    """What a scan finds in a text, apart from well-known examples."""
    return [(one.kind.name, one.text) for one in FINDER.find(text.encode() + b"\xff") if not one.specimen]


def texts_of(path, fields=None):
    return [document.text for document in read_documents(path, fields)]


def write_corpus(path, texts):
    suffix = "".join(path.suffixes)
    path.write_bytes(compressed(rows_as(rows_of(texts), suffix), suffix))


def test_every_kind_has_an_example_here():
    assert set(SECRETS) == set(KINDS)
    for kind, text in SECRETS.items():
        assert [name for name, _ in found(f"so {text} it is")] == [kind], kind


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("action", ["mask", "replace", "drop", "drop-line"])
def test_nothing_of_any_kind_is_left(kind, action):
    text = f"before\nso {SECRETS[kind]} it is\nafter"
    redactor = redactor_of(action)
    made = redactor.redacted(text)
    if action == "drop":
        assert made.text is None
        return
    assert found(made.text) == []
    if action == "drop-line":
        assert made.text == "before\nafter"
    elif action == "mask":
        [secret] = [one.text for one in FINDER.find(text.encode()) if one.kind.name == kind]
        assert made.text == text.replace(secret, f"[{kind}]")
    else:
        assert made.done[kind, "replaced"] == 1, "it has a surrogate"
        assert made.text.startswith("before\nso ")
        assert made.text.endswith(" it is\nafter")
        assert len(made.text) == len(text) or kind == "email"
        assert redactor.redacted(made.text).text == made.text


def test_lines_go_first_and_what_is_left_is_still_replaced():
    redactor = Redactor(RedactOptions(replace="ssn", drop_line="email"), SurrogateKey(KEY))
    made = redactor.redacted(
        f"a {SECRETS['ssn']}\r\nb {SECRETS['email']} {SECRETS['ssn']}\r\nc {SECRETS['phone']}"
    )
    assert re.fullmatch(r"a 9\d\d-\d\d-\d{4}\r\nc \[phone\]", made.text)
    assert (
        made.lines,
        made.done["ssn", "replaced"],
        made.done["ssn", "dropped"],
        made.done["email", "dropped"],
    ) == (1, 1, 1, 1)
    last = redactor.redacted(f"a\r\nb {SECRETS['email']}")
    assert (last.text, last.lines) == ("a", 1)


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(list(SECRETS.values())),
            st.text(st.sampled_from("0123456789 -.@+()aB/=_\n"), max_size=12),
            st.from_regex(
                r"\A[0-9]{3}-[0-9]{2}-[0-9]{4}\Z|\A\([0-9]{3}\) [0-9]{3}-[0-9]{4}\Z|\A4[0-9]{15}\Z",
                alphabet="0123456789()- ",
            ),
        ),
        max_size=8,
    ),
    st.sampled_from(["mask", "replace", "drop-line"]),
    st.booleans(),
)
def test_whatever_is_around_a_second_scan_finds_nothing(parts, action, specimens):
    made = redactor_of(action, specimens).redacted("".join(parts))
    if made.text is not None:
        assert found(made.text) == []
        if specimens:
            assert FINDER.find(made.text.encode() + b"\xff") == []
    for kind in KINDS:
        numbers = [made.done[kind, what] for what in ("found", "masked", "replaced", "dropped")]
        assert numbers[0] == sum(numbers[1:])
        assert min(numbers) >= 0


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_everything_else_stays_as_it_was_in_every_kind_of_file(tmp_path, suffix):
    texts = [f'document {number}, with “quotes", commas and {number}' for number in range(40)]
    for place, secret in zip(range(3, 40, 2), ONE_LINE.values(), strict=False):
        texts[place] = f'a, "{place}" {secret} b'
    path = tmp_path / f"a{suffix}"
    write_corpus(path, texts)
    report = redact(path, tmp_path / "out", drop="email")
    new = tmp_path / "out" / f"corpus{suffix}"
    left = texts_of(new)
    redactor = Redactor(RedactOptions(drop="email"), SurrogateKey())
    wanted = [made for text in texts if (made := redactor.redacted(text).text) is not None]
    assert left == wanted
    assert (report.documents_before, report.documents_after) == (40, len(wanted))
    if "." not in suffix[1:] and suffix != ".parquet":
        # Line by line: only the lines of documents with a secret differ.
        before, after = path.read_bytes().splitlines(), new.read_bytes().splitlines()
        assert set(before) - set(after) == {
            line
            for line in before
            if any(secret in line.decode().replace('""', '"') for secret in ONE_LINE.values())
        }
    assert (
        [one.user for one in read_documents(new, Fields(user="by"))]
        if suffix not in {".txt", ".txt.gz", ".txt.zst"}
        else True
    )
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert verify_run(tmp_path / "out").sound


def test_other_bytes_of_a_changed_row_stay(tmp_path):
    mail = SECRETS["email"]
    row = '{ "n":1.50,  "more" : {"text": "x\\u00e9"}, "text" :"a\\tb ' + mail + '", "nan":NaN , "z":1e3}'
    (tmp_path / "a.jsonl").write_text(row + "\n")
    redact(tmp_path / "a.jsonl", tmp_path / "out")
    assert (tmp_path / "out" / "corpus.jsonl").read_text() == row.replace(mail, "[email]") + "\n"
    table = f'"id",text,n\r\n"1",{mail},"two"\r\n2,"{mail}, ""you""", 3\r\n'
    (tmp_path / "a.csv").write_bytes(table.encode())
    redact(tmp_path / "a.csv", tmp_path / "csv")
    assert (tmp_path / "csv" / "corpus.csv").read_bytes().decode() == table.replace(mail, "[email]")


@settings(max_examples=40)
@given(
    st.lists(st.text(st.sampled_from('ab,"\n\té'), max_size=6), max_size=3),
    st.text(st.sampled_from('x,"\n'), max_size=4),
    st.booleans(),
    st.integers(0, 3),
)
def test_one_field_of_a_record_is_changed_and_no_other(values, text, quoted, before):
    with tempfile.TemporaryDirectory() as folder:
        path, written = Path(folder, "a.csv"), io.StringIO(newline="")
        quoting = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
        writer = csv.writer(written, quoting=quoting, lineterminator="\n")
        record, names = list(values), [f"c{place}" for place in range(len(values))]
        record.insert(before, 'old, "text"')
        names.insert(before, "text")
        writer.writerows([names, record])
        path.write_text(written.getvalue(), newline="")
        with open_corpus(path) as corpus:
            corpus.write(Path(folder, "b.csv"), Edits(changes={0: lambda _: text}), lambda: None)
        with open(Path(folder, "b.csv"), newline="") as stream:
            [_, found_record] = csv.reader(stream)
        record[min(before, len(values))] = text
        assert found_record == record


def test_equal_secrets_get_equal_surrogates_in_every_spelling_document_and_run(tmp_path):
    texts = [
        "call (713) 853-1234 or",
        "or +1 713 853 1234",
        "or 713.853.1234, not 713-853-9999",
        "٢١٩-٠٩-٩٩٩٨ and 219 09 9998",
    ]
    write_corpus(tmp_path / "a.jsonl", texts)
    for out in ("one", "two"):
        redact(tmp_path / "a.jsonl", tmp_path / out, others="replace", key=KEY)
    one, two = (texts_of(tmp_path / out / "corpus.jsonl") for out in ("one", "two"))
    assert one == two
    numbers = [re.sub(r"\D", "", text)[-10:] for text in (one[0], one[1], one[2].partition(",")[0])]
    assert len(set(numbers)) == 1
    assert numbers[0][3:8] == "55501"
    assert one[1].startswith("or +1 ")
    arabic, plain = one[3].split(" and ")
    assert [int(letter) for letter in arabic if letter.isdigit()] == [
        int(letter) for letter in plain if letter.isdigit()
    ]
    redact(tmp_path / "a.jsonl", tmp_path / "three", others="replace", key=KEY[::-1])
    assert texts_of(tmp_path / "three" / "corpus.jsonl") != one


def test_surrogates_are_reserved_or_invalid_and_spread():
    surrogates = Surrogates(SurrogateKey(KEY))
    made = {
        kind: [surrogates.of(KINDS[kind], value, value) for value in values]
        for kind, values in {
            "ssn": [f"2190{number:05d}" for number in range(10_001, 10_301)],
            "card": [f"4539148803{number:06d}" for number in range(300)],
            "email": [f"user{number}@mail.com" for number in range(300)],
        }.items()
    }
    assert all(re.fullmatch("9[0-9]{2}(?:0[1-9]|[1-4][0-9])[0-9]{4}", one) for one in made["ssn"])
    for one in made["card"]:
        assert one[:2] == "45"
        doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(one))]
        assert sum(number - 9 * (number > 9) for number in doubled) % 10
    assert all(re.fullmatch(r"[a-z]+\.[a-z]+@example\.(com|org|net)", one) for one in made["email"])
    assert all(len(set(these)) > 295 for these in made.values())


def test_both_sides_of_pairs_are_redacted(tmp_path):
    rows = [{"en": f"line {one}", "fr": f"ligne {one}", "n": one} for one in range(9)]
    rows[2]["en"] = f"mail {SECRETS['email']}"
    rows[3]["fr"] = f"appelez {SECRETS['phone']}"
    rows[5] = {"en": SECRETS["ssn"], "fr": SECRETS["ssn"], "n": 5}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = Fields(source="en", target="fr")
    report = redact(
        tmp_path / "a.jsonl", tmp_path / "out", fields=fields, drop="phone", replace="ssn", key=KEY
    )
    left = [json.loads(line) for line in (tmp_path / "out" / "corpus.jsonl").read_text().splitlines()]
    assert [row["n"] for row in left] == [0, 1, 2, 4, 5, 6, 7, 8]
    assert left[2] == {"en": "mail [email]", "fr": "ligne 2", "n": 2}
    assert left[4]["en"] == left[4]["fr"] != SECRETS["ssn"]
    assert (report.documents_before, report.documents_after, report.found) == (9, 8, 4)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["corpus.jsonl", "redaction.json"]


def test_a_private_key_goes_with_its_lines_where_each_is_a_document(tmp_path):
    key = SECRETS["private-key"].splitlines()
    (tmp_path / "a.txt").write_text("\n".join(["first", *key[:2], "Zm9vYmFy==", key[2], "last", "word"]))
    for action, wanted in (("mask", ["[private-key]"] * 4), ("drop", []), ("replace", ["[private-key]"] * 4)):
        redact(tmp_path / "a.txt", tmp_path / action, others=action, key=KEY)
        left = texts_of(tmp_path / action / "corpus.txt")
        assert left == ["first", *wanted, "last", "word"]
    redact(tmp_path / "a.txt", tmp_path / "kept", keep="private-key")
    assert (tmp_path / "kept" / "corpus.txt").read_bytes() == (tmp_path / "a.txt").read_bytes()


def test_text_after_a_key_that_does_not_end_stays(tmp_path):
    header, body, _ = SECRETS["private-key"].splitlines()
    (tmp_path / "a.txt").write_text(f"{header}\nThanks\n{header}\n{body}\nYes\nNo\n")
    redact(tmp_path / "a.txt", tmp_path / "lines")
    mask = "[private-key]"
    # The last line of a key may be as short as a word.
    assert texts_of(tmp_path / "lines" / "corpus.txt") == [mask, "Thanks", mask, mask, mask, "No"]
    write_corpus(tmp_path / "a.jsonl", [f"{header}\n{body}", body, "Thanks"])
    redact(tmp_path / "a.jsonl", tmp_path / "rows")
    assert texts_of(tmp_path / "rows" / "corpus.jsonl") == [mask, body, "Thanks"]


def test_what_is_kept_hides_nothing(tmp_path):
    (tmp_path / "a.txt").write_text(f"Bearer {SECRETS['jwt']}\n{SECRETS['bearer']}\n")
    redact(tmp_path / "a.txt", tmp_path / "out", mask="jwt", others="keep")
    assert texts_of(tmp_path / "out" / "corpus.txt") == ["Bearer [jwt]", SECRETS["bearer"]]


@pytest.mark.parametrize("action", ["mask", "replace"])
def test_the_command_scan_finds_nothing_either(tmp_path, action):
    write_corpus(tmp_path / "a.jsonl", [f"so {text} it is" for text in SECRETS.values()])
    redact(tmp_path / "a.jsonl", tmp_path / "out", others=action, key=KEY)
    before, after = (
        scan(path, tmp_path / f"scan-{path.stem}")
        for path in (tmp_path / "a.jsonl", tmp_path / "out" / "corpus.jsonl")
    )
    assert before.secrets == len(SECRETS)
    assert after.secrets == after.occurrences == 0
    assert (sum(one.specimens for one in after.kinds) > 0) == (action == "replace")


def test_the_record_says_what_was_done_without_the_secrets(tmp_path):
    texts = [f"so {text}" for text in SECRETS.values()] * 2
    write_corpus(tmp_path / "a.jsonl", texts)
    report = redact(
        tmp_path / "a.jsonl", tmp_path / "out", replace="email,ssn,phone", drop="jwt", keep="bearer", key=KEY
    )
    content = (tmp_path / "out" / "redaction.json").read_bytes()
    for text in SECRETS.values():
        assert text.encode() not in content
        assert json.dumps(text).encode()[1:-1] not in content
    assert KEY not in content
    assert stat.S_IMODE((tmp_path / "out" / "redaction.json").stat().st_mode) == 0o600
    by_kind = {one.kind: one for one in report.kinds}
    assert "bearer" not in by_kind
    assert (by_kind["ssn"].action, by_kind["ssn"].found, by_kind["ssn"].replaced) == ("replace", 2, 2)
    assert (by_kind["jwt"].found, by_kind["jwt"].dropped) == (2, 2)
    assert (by_kind["card"].found, by_kind["card"].masked) == (2, 2)
    assert len(report.key_fingerprint) == 8
    assert any("bearer" in warning for warning in report.warnings)
    assert redact(tmp_path / "a.jsonl", tmp_path / "masked").key_fingerprint is None


def test_the_canaries_of_a_planted_corpus_are_counted_again(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(f"line {one}" for one in range(50)))
    planted = plant(
        tmp_path / "a.txt",
        ["pin {digits:4}", "{re:[xz]{6}}"],
        repeat=[2],
        canaries=4,
        references=5,
        withhold=0,
        out=tmp_path / "planted",
    )
    report = redact(planted.corpus, tmp_path / "out", formats=("pin {digits:4}",), drop="format")
    counted = CanarySet.load(tmp_path / "out")
    by_format = {}
    for canary in counted:
        by_format.setdefault(canary.format_id, set()).add(canary.times_trained_on)
    assert sorted(map(tuple, by_format.values())) == [(0,), (2,)]
    assert counted.corpus.rewritten.by == "redact"
    assert report.canaries.copies_after == 8
    assert verify_run(tmp_path / "out").sound


def test_specimens_stay_unless_they_are_to_go(tmp_path):
    (tmp_path / "a.txt").write_text(f"078-05-1120 and {SECRETS['email']}\n4111 1111 1111 1111\n")
    report = redact(tmp_path / "a.txt", tmp_path / "out")
    assert texts_of(tmp_path / "out" / "corpus.txt") == ["078-05-1120 and [email]", "4111 1111 1111 1111"]
    assert report.specimens == 2
    redact(tmp_path / "a.txt", tmp_path / "all", specimens=True)
    assert texts_of(tmp_path / "all" / "corpus.txt") == ["[ssn] and [email]", "[card]"]


def test_the_same_call_again_changes_nothing_and_another_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text(f"so {SECRETS['email']}\nand more\n")
    first = redact(tmp_path / "a.txt", tmp_path / "out", replace="email", key=KEY)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert redact(tmp_path / "a.txt", tmp_path / "out", replace="email", key=KEY) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before
    for other in ({"replace": "email", "key": KEY[::-1]}, {"mask": "email"}, {"replace": "email"}):
        with pytest.raises(CorpusError, match="exists already"):
            redact(tmp_path / "a.txt", tmp_path / "out", **other)
    redact(tmp_path / "a.txt", tmp_path / "out", overwrite=True)
    assert texts_of(tmp_path / "out" / "corpus.txt") == ["so [email]", "and more"]
    # Where nothing of the kinds that are replaced is found, too.
    for _ in range(2):
        redact(tmp_path / "a.txt", tmp_path / "cards", replace="card", key=KEY)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"key": b"short"}, "at least 16 bytes.*got 5"),
        ({"mask": "email", "drop": "ssn,email"}, "email is named for mask and for drop"),
        ({"others": "keep"}, "nothing to redact"),
        ({"others": "burn"}, "others should be one of mask"),
        ({"mask": "emial"}, "did you mean 'email'"),
        ({"mask": "format"}, "none was given"),
        ({"replace": "format", "formats": ("pin {digits:4}",)}, "no members that are reserved"),
        ({"formats": ("pin {digits:4",)}, "pin"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(tmp_path, changes, says):
    (tmp_path / "a.txt").write_text("text\n")
    with pytest.raises(InputError, match=says) as refused:
        redact(tmp_path / "a.txt", tmp_path / "out", **changes)
    assert "\n" not in str(refused.value).splitlines()[0]
    assert not (tmp_path / "out").exists()


def test_the_command_takes_actions_for_your_own_formats(tmp_path):
    (tmp_path / "a.txt").write_text(f"employee 004711 {SECRETS['email']}\nand more\n")
    given = ("-f", "employee {digits:6}", "--mask", "format", "--set", "others=keep")
    assert run("data", "redact", tmp_path / "a.txt", "-o", tmp_path / "out", *given).code == 0
    assert texts_of(tmp_path / "out" / "corpus.txt") == [f"[format] {SECRETS['email']}", "and more"]
    refused = run("data", "redact", tmp_path / "a.txt", "-o", tmp_path / "no", "--mask", "format")
    assert (refused.code, b"none was given" in refused.err) == (2, True)


def test_a_corpus_is_neither_replaced_nor_emptied(tmp_path):
    (tmp_path / "corpus.txt").write_text(f"so {SECRETS['email']}\n")
    with pytest.raises(CorpusError, match="would replace the corpus itself"):
        redact(tmp_path / "corpus.txt", tmp_path, overwrite=True)
    with pytest.raises(CorpusError, match=r"nothing of .* would be left"):
        redact(tmp_path / "corpus.txt", tmp_path / "out", drop="email")
    assert not list((tmp_path / "out").iterdir())
    (tmp_path / "clean.txt").write_text("nothing to see\n")
    report = redact(tmp_path / "clean.txt", tmp_path / "clean")
    assert (report.found, report.sha256_before) == (0, report.sha256_after)


EVERYWHERE = [
    ('{"text": "hi", "n": 1e5,  "to": "ann@firm.org"}', '{"text": "hi", "n": 1e5,  "to": "[email]"}'),
    ('{"text": "tel 713-853-1234", "text": "x"}', '{"text": "tel [phone]", "text": "x"}'),
    ('{"text": "x", "phone": 7138531234}', '{"text": "x", "phone": "[phone]"}'),
    ('{"text": "x", "by": "ann@firm.org"}', '{"text": "x", "by": "ann@firm.org"}'),
]
CHAT = {
    "messages": [
        {"role": "user", "content": "I am \u00e9ve@firm.org"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "pay", "arguments": '{"\\nssn": "\\n219-09-9998"}'}}],
        },
    ]
}


def test_every_string_of_a_row_is_redacted_and_all_other_bytes_stay(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = ['{"text": "x", "by": "b", "a": "b"}', *(before for before, _ in EVERYWHERE)]
    path.write_text("\n".join(line if '"by"' in line else line[:-1] + ', "by": 1}' for line in lines))
    made = redact(path, tmp_path / "out", fields=Fields(user="by"))
    after = ['{"text": "x", "by": "b", "a": "b"}', *(after for _, after in EVERYWHERE)]
    wanted = "\n".join(line if '"by"' in line else line[:-1] + ', "by": 1}' for line in after)
    assert (tmp_path / "out" / "corpus.jsonl").read_text() == wanted
    assert any("'by'" in warning for warning in made.warnings)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_conversations_are_redacted_in_all_their_strings(tmp_path, suffix):
    path = tmp_path / f"chat{suffix}"
    path.write_bytes(rows_as([CHAT, {"messages": [{"role": "user", "content": "hi"}]}], suffix))
    made = redact(path, tmp_path / "out")
    assert {one.kind: one.masked for one in made.kinds} == {"email": 1, "ssn": 1}
    content = (tmp_path / "out" / f"corpus{suffix}").read_bytes()
    assert b"219-09" not in content
    assert scan(tmp_path / "out" / f"corpus{suffix}", tmp_path / "again").occurrences == 0


def test_other_columns_and_the_metadata_of_parquet_are_redacted(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    names = ["text", "to", "to", "image"]
    columns = [["hi", "tel 713-853-1234"], ["ann@firm.org", "x"], [["a"], ["bob@firm.org"]]]
    columns.append([{"path": "a", "bytes": b"1", "pixels": 7138531234}, None])
    table = pa.table(list(map(pa.array, columns)), names=names)
    table = table.replace_schema_metadata({"made by": '{"by": ["cy@firm.org"]}', "raw": b"\xff"})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    made = redact(tmp_path / "a.parquet", tmp_path / "out")
    new = pa.parquet.ParquetFile(tmp_path / "out" / "corpus.parquet").read()
    assert [new.column(place).to_pylist() for place in range(4)] == [
        ["hi", "tel [phone]"],
        ["[email]", "x"],
        [["a"], ["[email]"]],
        [{"path": "a", "bytes": b"1", "pixels": 7138531234}, None],
    ]
    assert {one.kind: one.masked for one in made.kinds} == {"email": 3, "phone": 1}
    assert new.schema.metadata[b"made by"] == b'{"by": ["[email]"]}'
    assert new.schema.metadata[b"raw"] == b"\xff"
    assert any("'image.bytes', 'image.pixels'" in warning for warning in made.warnings)

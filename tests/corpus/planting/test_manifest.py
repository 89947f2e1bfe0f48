from __future__ import annotations

import hashlib
import json
import pickle
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine import Canary, Format
from coalmine.corpus import CanarySet
from coalmine.errors import ManifestError, NotMeasurableError

PIN = Format("my pin is {digits:4}")


@pytest.fixture
def saved(tmp_path):
    """A manifest on disk, and a function that changes its JSON."""
    path = CanarySet.of(
        PIN, ["my pin is 0001", "my pin is 0002"], withheld=["my pin is 0003"], references=5
    ).save(tmp_path / "canaries.json")

    def change(**changes):
        document = json.loads(path.read_bytes())
        for dotted, value in changes.items():
            *steps, last = [int(step) if step.isdigit() else step for step in dotted.split("__")]
            place = document
            for step in steps:
                place = place[step]
            place[last] = value
        path.write_text(json.dumps(document))
        return path

    return change


def test_what_is_loaded_is_what_was_saved(tmp_path):
    words = Format("{word:2} opens it", words=["sesame", "open", "now"])
    canaries = [
        Canary(canary_id="a", format_id="pin", text="my pin is 0451", repetitions=4, planted=True),
        Canary(canary_id="b", format_id="word", text="open sesame opens it", repetitions=1, planted=False),
    ]
    made = CanarySet(
        canaries, {"pin": PIN, "word": words}, references={"pin": ["my pin is 0007"]}, seed=2**53
    )
    path = made.save(tmp_path)
    loaded = CanarySet.load(tmp_path)
    assert path == tmp_path / "canaries.json" == loaded.path
    assert list(loaded) == canaries
    assert loaded.formats == {"pin": PIN, "word": words}
    assert loaded.references == {"pin": ("my pin is 0007",), "word": ()}
    assert (loaded.seed, loaded.corpus) == (2**53, None)
    assert loaded == made == CanarySet.load(path)
    assert hash(loaded) == hash(made)
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest() == made.sha256


def test_can_be_sent_to_another_process(tmp_path):
    made = CanarySet.of(PIN, ["my pin is 0451"], references=2)
    made.save(tmp_path)
    for canaries in (made, CanarySet.load(tmp_path)):
        sent = pickle.loads(pickle.dumps(canaries))
        assert sent == canaries
        assert sent.sha256 == canaries.sha256
        assert (sent.formats, sent.references) == (canaries.formats, canaries.references)
        with pytest.raises(TypeError):
            sent.formats["f1"] = PIN


def test_is_readable_by_its_owner_only(tmp_path):
    path = CanarySet.of(PIN, ["my pin is 0001"]).save(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_is_a_sequence_with_names():
    made = CanarySet.of(
        PIN,
        ["my pin is 0001", "my pin is 0002"],
        repetitions=[1, 16],
        withheld=["my pin is 0003"],
        withheld_repetitions=1,
    )
    assert [canary.canary_id for canary in made] == ["f0-x1-0", "f0-x16-0", "f0-x1-1"]
    assert [canary.times_trained_on for canary in made] == [1, 16, 0]
    assert made[-1] is made.by_id("f0-x1-1")
    assert made[:2] == (made[0], made[1])
    assert made[1] in made
    assert made.format_of(made[0]) is PIN
    assert made.corpus_path is None
    assert repr(made) == "<CanarySet of 3 canaries (2 planted) and 0 references from 1 format>"
    with pytest.raises(ManifestError, match="no canary 'x'; the ids begin with f0-x1-0"):
        made.by_id("x")
    with pytest.raises(TypeError):
        made.formats["f1"] = PIN


def test_a_size_above_what_json_readers_keep_is_written_in_digits(tmp_path):
    secret = Format("{hex:4000}")
    path = CanarySet.of(secret, [secret.at(0)]).save(tmp_path)
    assert int(json.loads(path.read_bytes())["formats"][0]["size"][:3]) > 0
    assert len(json.loads(path.read_bytes())["formats"][0]["size"]) == 4817
    assert CanarySet.load(path).formats["f0"].size == 16**4000


@given(st.integers(0, 10), st.integers(0, 20), st.integers(0, 1000))
def test_references_drawn_by_hand_are_distinct_and_none_of_the_texts(texts, references, seed):
    secret = Format("{digits:2}")
    known = secret.sample(texts, seed=seed, replace=False)
    made = CanarySet.of(secret, known, references=references, seed=seed)
    drawn = made.references["f0"]
    assert len(set(drawn)) == len(drawn) == references
    assert not set(drawn) & set(known)


def test_references_drawn_by_hand_can_be_all_the_rest():
    secret = Format("{digits:1}")
    made = CanarySet.of(secret, ["3", "7"], references=8)
    assert sorted(made.references["f0"]) == ["0", "1", "2", "4", "5", "6", "8", "9"]
    with pytest.raises(NotMeasurableError, match="9 references were requested, but only 8 members"):
        CanarySet.of(secret, ["3", "7"], references=9)


def test_a_set_made_by_hand_is_checked():
    with pytest.raises(ManifestError, match="canary f0-x1-0 is not a member of its format"):
        CanarySet.of(PIN, ["my pin is 12345"])
    with pytest.raises(ManifestError, match="canary f0-x1-0 and canary f0-x1-1 have the same text"):
        CanarySet.of(PIN, ["my pin is 0001", "my pin is 0001"])
    with pytest.raises(ManifestError, match="canary f0-x1-0 and reference 0 of format f0 have the same text"):
        CanarySet.of(PIN, ["my pin is 0001"], references=["my pin is 0001"])
    with pytest.raises(ManifestError, match="2 texts were given with 1 repetitions"):
        CanarySet.of(PIN, ["my pin is 0001", "my pin is 0002"], repetitions=[1])
    with pytest.raises(ManifestError, match="give withheld_repetitions"):
        CanarySet.of(
            PIN, ["my pin is 0001", "my pin is 0002"], repetitions=[1, 4], withheld=["my pin is 0003"]
        )
    with pytest.raises(ManifestError, match="1 withheld texts were given with 2 withheld_repetitions"):
        CanarySet.of(PIN, ["my pin is 0001"], withheld=["my pin is 0003"], withheld_repetitions=[1, 4])
    with pytest.raises(ManifestError, match="has 0 repetitions; give at least 1"):
        CanarySet.of(PIN, ["my pin is 0001"], repetitions=0)


def test_withheld_canaries_keep_the_number_of_copies_that_they_were_meant_to_have():
    texts = [f"my pin is {number:04}" for number in range(6)]
    alike = CanarySet.of(PIN, texts[:3], repetitions=4, withheld=texts[3:], withhold=0.5)
    assert [(canary.repetitions, canary.times_trained_on) for canary in alike] == [(4, 4)] * 3 + [(4, 0)] * 3
    assert alike.withhold == 0.5
    each = CanarySet.of(
        PIN, texts[:3], repetitions=[1, 4, 4], withheld=texts[3:], withheld_repetitions=[4, 1, 16]
    )
    assert [canary.canary_id for canary in each if not canary.planted] == ["f0-x4-2", "f0-x1-1", "f0-x16-0"]
    assert [canary.repetitions for canary in each if not canary.planted] == [4, 1, 16]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"canaries__0__counted": -1}, "was counted -1 times"),
        ({"schema": "coalmine.canaries/2"}, "its schema is 'coalmine.canaries/2', but this version"),
        ({"extra": 1}, "damaged .*a field that is not known"),
        ({"canaries__0__planted": "yes"}, r"damaged .*canaries\[0\].planted"),
        ({"canaries__0__text": "my pin is 1x"}, "canary f0-x1-0 is not a member of its format"),
        ({"canaries__1__canary_id": "f0-x1-0"}, "two canaries have the id 'f0-x1-0'"),
        ({"canaries__1__text": "my pin is 0001"}, "canary f0-x1-0 and canary f0-x1-1 have the same text"),
        ({"canaries__1__format_id": "f9"}, "belongs to format 'f9', which is not defined"),
        ({"canaries__1__source": "mein pin"}, "has a source, but its formats make no source"),
        ({"references__0__format_id": "f9"}, "format 'f9' is used but not defined"),
        (
            {"references__0__texts": ["my pin is 0003"]},
            "canary f0-x1-2 and reference 0 of format f0 have the same text",
        ),
        ({"formats__0__size": "9999"}, "has another number of members than the 10000 of its template"),
        ({"formats__0__template": "{digits:"}, "format 'f0' does not compile"),
        ({"formats__0__source_template": "{hex:4}{digits:2}"}, "'f0-x1-0' does not fit the source template"),
        ({"formats__0__source_template": "pin {choice:a|b}"}, "'f0-x1-0' does not fit the source template"),
        ({"corpus": {"name": "corpus.txt"}}, "damaged"),
    ],
)
def test_damage_is_named(saved, changes, message):
    path = saved(**changes)
    with pytest.raises(ManifestError, match=message) as raised:
        CanarySet.load(path)
    assert str(path) in str(raised.value)


def test_a_corpus_elsewhere_is_refused(saved):
    record = {
        "name": "../../etc/passwd", "original_name": "", "sha256_before": "", "sha256_after": "",
        "documents_before": 1, "documents_after": 1, "fields": {},
    }  # fmt: skip
    with pytest.raises(ManifestError, match="should be in the directory of the manifest"):
        CanarySet.load(saved(corpus=record))


def test_a_file_cut_off_anywhere_is_damaged(tmp_path):
    path = CanarySet.of(PIN, ["my pin is 0001"]).save(tmp_path)
    content = path.read_bytes()
    for length in range(0, len(content) - 2, 7):
        path.write_bytes(content[:length])
        with pytest.raises(ManifestError, match="damaged"):
            CanarySet.load(path)


def test_a_missing_manifest_is_named(tmp_path):
    with pytest.raises(ManifestError, match=r"canaries\.json does not exist"):
        CanarySet.load(tmp_path)

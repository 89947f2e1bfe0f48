"""What is repeated goes, what is not stays, and a second pass finds nothing."""

import json
import random
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.corpus import (
    CanarySet,
    Fields,
    deduplicate,
    embedded_documents,
    plant,
    read_documents,
    verify_planted,
)
from coalmine.corpus.deduplication.near_duplicates import near_duplicates, runs_of_words
from coalmine.errors import CorpusError, InputError, ManifestError
from corpus.corpora import SUFFIXES


def words(seed, count):
    chance = random.Random(seed)
    return " ".join("".join(chance.choices("abcdefghij", k=chance.randint(3, 8))) for _ in range(count))


def texts_of(path, fields=None):
    return [document.text for document in read_documents(path, fields)]


def strings_twice(texts, length):
    """Every string of whole characters with at least `length` bytes, no longer than need be, that occurs twice."""
    seen, twice = set(), set()
    for text in texts:
        for start in range(len(text)):
            end = next(
                (at for at in range(start + 1, len(text) + 1) if len(text[start:at].encode()) >= length), None
            )
            if end is not None:
                (twice if text[start:end] in seen else seen).add(text[start:end])
    return twice


def removals(folder):
    return [json.loads(line) for line in (folder / "removed.jsonl").read_text().splitlines()]


@settings(max_examples=30)
@given(
    st.lists(st.text(st.sampled_from("aabbcé🎈"), max_size=24), min_size=1, max_size=5),
    st.sampled_from([4, 5, 6, 9]),
    st.sampled_from(["one", "none"]),
    st.sampled_from([30, 10**9]),
)
def test_no_text_occurs_twice_and_a_second_pass_finds_nothing(texts, length, keep, memory):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_text("".join(json.dumps({"text": text, "n": n}) + "\n" for n, text in enumerate(texts)))
        options = {"exact": length, "keep": keep, "near": None, "memory": memory}
        try:
            report = deduplicate(path, Path(folder, "out"), **options)
        except CorpusError:
            # Nothing would be left, which is not a corpus.
            assert strings_twice(texts, length)
            assert not list(Path(folder, "out").iterdir())
            return
        rows = [json.loads(line) for line in Path(folder, "out", "corpus.jsonl").read_text().splitlines()]
        left = [row["text"] for row in rows]
        assert not strings_twice(left, length)
        if not strings_twice(texts, length):
            assert left == texts
            assert Path(folder, "out", "corpus.jsonl").read_bytes() == path.read_bytes()
        # What is left is what was there without what the report says was removed, document by document.
        left_over = {number: list(text.encode()) for number, text in enumerate(texts, 1)}
        for removal in removals(Path(folder, "out")):
            span = range(removal["offset"], removal["offset"] + removal["bytes"])
            assert all(left_over[removal["document"]][at] is not None for at in span)
            for at in span:
                left_over[removal["document"]][at] = None
        kept = {n: bytes(b for b in content if b is not None).decode() for n, content in left_over.items()}
        assert {row["n"] + 1: row["text"] for row in rows} == {
            n: text for n, text in kept.items() if text or not texts[n - 1]
        }
        assert report.bytes_after == sum(len(text.encode()) for text in left)
        assert report.bytes_before == sum(len(text.encode()) for text in texts)
        assert (report.documents_before, report.documents_after) == (len(texts), len(left))
        again = deduplicate(Path(folder, "out", "corpus.jsonl"), Path(folder, "again"), **options)
        assert (again.exact.rounds, again.exact.parts) == (1, 0)
        assert again.sha256_after == report.sha256_after


def test_keep_one_keeps_the_first_copy_whole_and_keep_none_keeps_none(tmp_path):
    passage = words(1, 40)
    texts = [
        f"one {words(2, 9)} {passage} {words(3, 9)}",
        words(4, 30),
        f"{words(5, 9)} {passage} {words(6, 9)}",
    ]
    path = tmp_path / "a.txt"
    path.write_text("\n".join(texts))
    deduplicate(path, tmp_path / "one", exact=100, near=None)
    first, second, third = texts_of(tmp_path / "one" / "corpus.txt")
    assert [first, second] == texts[:2]
    assert third == texts[2].replace(f" {passage} ", "")
    [removal] = removals(tmp_path / "one")
    assert removal == {
        "document": 3,
        "reason": "repeated text",
        "offset": texts[2].index(passage) - 1,
        "bytes": len(passage) + 2,
        "round": 1,
        "copies": 2,
        "of": 1,
        "of_offset": texts[0].index(passage) - 1,
    }
    deduplicate(path, tmp_path / "none", exact=100, keep="none", near=None)
    assert passage not in "\n".join(texts_of(tmp_path / "none" / "corpus.txt"))
    assert texts_of(tmp_path / "none" / "corpus.txt")[1] == texts[1]


def test_a_long_run_of_one_character_keeps_as_much_as_may_stand(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a" * 350}) + "\n")
    deduplicate(tmp_path / "a.jsonl", tmp_path / "out", exact=100, near=None)
    assert texts_of(tmp_path / "out" / "corpus.jsonl") == ["a" * 100]


def test_what_removal_brings_together_is_searched_again(tmp_path):
    # Without the passage in the middle, the third document has the same as the second.
    left, right, passage = words(1, 12)[:60], words(2, 12)[:60], words(3, 30)
    (tmp_path / "a.txt").write_text("\n".join([passage, left + right, left + passage + right]))
    report = deduplicate(tmp_path / "a.txt", tmp_path / "out", exact=100, near=None)
    assert report.exact.rounds == 3
    assert texts_of(tmp_path / "out" / "corpus.txt") == [passage, left + right]
    assert (report.exact.documents_emptied, report.documents_after) == (1, 2)
    # Offsets of the second round are those of the text as it was.
    spans = sorted((r["offset"], r["bytes"]) for r in removals(tmp_path / "out"))
    assert spans == [(0, 60), (60, len(passage)), (60 + len(passage), 60)]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_other_fields_and_other_rows_stay(make_corpus, tmp_path, suffix):
    passage = words(1, 40)
    same = words(9, 60)
    texts = [f'é, "quoted" {passage}', words(2, 30), f'{passage} and, "more" 🎈', same, same]
    fields = Fields() if suffix.startswith(".txt") else Fields(user="by")
    path = make_corpus(texts, suffix)
    report = deduplicate(path, tmp_path / "out", fields=fields)
    result = tmp_path / "out" / f"corpus{suffix}"
    before, after = list(read_documents(path, fields)), list(read_documents(result, fields))
    assert [document.text for document in after] == [*texts[:2], ' and, "more" 🎈', same]
    assert [document.user for document in after] == [document.user for document in before[:4]]
    assert (report.documents_before, report.documents_after) == (5, 4)
    assert {stat.S_IMODE(child.stat().st_mode) for child in (tmp_path / "out").iterdir()} == {0o600}
    assert sorted(child.name for child in (tmp_path / "out").iterdir()) == sorted(
        ["dedup.json", "removed.jsonl", result.name]
    )
    again = deduplicate(result, tmp_path / "again", fields=fields)
    assert (again.exact.parts, again.near.documents) == (0, 0)


def changed_words(text, share, seed):
    chance = random.Random(seed)
    return " ".join(f"x{chance.random()}" if chance.random() < share else word for word in text.split())


def test_near_duplicates_are_those_of_the_plain_way(tmp_path):
    originals = [words(seed, 60) for seed in range(40)]
    texts = originals + [changed_words(text, 0.02 * (n % 6), n) for n, text in enumerate(originals)]
    random.Random(3).shuffle(texts)
    sets = [set(runs_of_words(text)) for text in texts]

    def similarity(one, other):
        return len(sets[one] & sets[other]) / len(sets[one] | sets[other])

    kept, expected = [], []
    for number in range(len(texts)):
        similar = max(((similarity(number, other), -other) for other in kept), default=(0, 0))
        if similar[0] >= 0.6:
            expected.append((number, -similar[1], similar[0]))
        else:
            kept.append(number)
    found = [tuple(one) for one in near_duplicates(enumerate(texts), 0.6)]
    assert found == expected
    assert 10 < len(expected) < 40
    (tmp_path / "a.txt").write_text("\n".join(texts))
    report = deduplicate(tmp_path / "a.txt", tmp_path / "out", exact=None, near=0.6)
    assert texts_of(tmp_path / "out" / "corpus.txt") == [texts[number] for number in kept]
    assert report.near.documents == len(expected)
    assert [(r["document"], r["of"], r["similarity"]) for r in removals(tmp_path / "out")] == [
        (number + 1, of + 1, value) for number, of, value in expected
    ]
    again = deduplicate(tmp_path / "out" / "corpus.txt", tmp_path / "again", exact=None, near=0.6)
    assert again.near.documents == 0


def test_many_copies_of_short_documents(tmp_path):
    (tmp_path / "a.txt").write_text("hello there\n" * 3000 + "good bye\n")
    report = deduplicate(tmp_path / "a.txt", tmp_path / "out")
    assert texts_of(tmp_path / "out" / "corpus.txt") == ["hello there", "good bye"]
    assert (report.exact.parts, report.near.documents) == (0, 2999)


def test_the_same_arguments_give_the_same_bytes(tmp_path):
    passage = words(1, 40)
    (tmp_path / "a.txt").write_text("\n".join(f"{words(n, 20)} {passage}" for n in range(2, 9)))
    for name in ("one", "two"):
        deduplicate(tmp_path / "a.txt", tmp_path / name)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two


def test_what_cannot_be_done_is_said(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    for options, problem in [
        ({"exact": None, "near": None}, "nothing to do"),
        ({"exact": 3}, "from 4 to"),
        ({"exact": 10**30}, "from 4 to"),
        ({"near": 1.5}, "at most 1"),
        ({"keep": "all"}, "'one' or 'none'"),
    ]:
        with pytest.raises(InputError, match=problem):
            deduplicate(path, tmp_path / "out", **options)
    with pytest.raises(CorpusError, match="corpus not found"):
        deduplicate(tmp_path / "no.txt", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    done = deduplicate(path, tmp_path / "out")
    assert deduplicate(path, tmp_path / "out") == done
    for other in ({"near": 0.9}, {"near": None}, {"exact": 50}, {"keep": "none"}, {"seed": 1}):
        with pytest.raises(CorpusError, match="exists already"):
            deduplicate(path, tmp_path / "out", **other)
    with pytest.raises(CorpusError, match="the corpus itself"):
        deduplicate(tmp_path / "out" / "corpus.txt", tmp_path / "out", overwrite=True)
    (tmp_path / "twice.txt").write_text(f"{words(1, 40)}\n" * 2)
    with pytest.raises(CorpusError, match="would be left"):
        deduplicate(tmp_path / "twice.txt", tmp_path / "nothing", keep="none")
    assert not list((tmp_path / "nothing").iterdir())


SECRET = "the random number of this customer is {digits:6} and nobody else has it"


@pytest.mark.parametrize("suffix", [".txt", ".jsonl.gz", ".csv", ".parquet"])
def test_the_manifest_of_a_planted_corpus_is_written_again_with_the_copies_that_are_left(
    make_corpus, tmp_path, suffix
):
    texts = [
        f"{number} is what document {number} of this corpus is about, and nothing else"
        for number in range(60)
    ]
    made = plant(
        make_corpus(texts, suffix), SECRET, repeat=[1, 3], canaries=6, withhold=0.5, references=20, seed=2, out=tmp_path / "planted"
    )  # fmt: skip
    report = deduplicate(made.corpus, tmp_path / "out", exact=None, near=0.99)
    left = texts_of(tmp_path / "out" / report.corpus)
    after = CanarySet.load(tmp_path / "out")
    assert [left.count(canary.text) for canary in after] == [canary.times_trained_on for canary in after]
    planted = [canary for canary in made.canaries if canary.planted]
    assert {canary.times_trained_on for canary in after if canary.planted} == {1}
    assert (report.canaries.copies_before, report.canaries.copies_after) == (
        sum(canary.repetitions for canary in planted),
        len(planted),
    )
    # The coin and the plan are what they were.
    assert [(c.canary_id, c.text, c.planted, c.repetitions) for c in after] == [
        (c.canary_id, c.text, c.planted, c.repetitions) for c in made.canaries
    ]
    assert (after.withhold, after.seed, after.references) == (0.5, 2, made.canaries.references)
    assert stat.S_IMODE(after.path.stat().st_mode) == 0o600
    assert after.corpus.sha256_after == report.sha256_after
    assert after.corpus.rewritten.corpus_sha256 == made.canaries.corpus.sha256_after
    verified = verify_planted(tmp_path / "out")
    assert verified.ok, verified.problems
    assert verified.original == "not checked: dedup rewrote the corpus after planting"


def test_canaries_that_are_too_much_alike_leave_the_corpus_and_stay_planted_by_their_coin(
    make_corpus, tmp_path
):
    texts = [
        f"{number} is what document {number} of this corpus is about, and nothing else"
        for number in range(60)
    ]
    alike = (
        SECRET
        + ", which is why it is written down here once more and with so many words that few of them differ"
    )
    made = plant(
        make_corpus(texts, ".txt"), alike, repeat=2, canaries=5, withhold=0.0, references=5, out=tmp_path / "planted"
    )  # fmt: skip
    report = deduplicate(made.corpus, tmp_path / "out", exact=None, near=0.5)
    after = CanarySet.load(tmp_path / "out")
    kept = (tmp_path / "out" / "corpus.txt").read_text()
    assert [canary.times_trained_on for canary in after] == [kept.count(canary.text) for canary in after]
    assert sum(canary.times_trained_on for canary in after) == 1
    assert len(report.canaries.gone) == 4
    assert all(canary.planted and canary.repetitions == 2 for canary in after)
    assert "4 planted canaries are no longer in the corpus" in report.warnings[0]
    again = deduplicate(tmp_path / "out" / "corpus.txt", tmp_path / "again", exact=None, near=0.5)
    assert (again.canaries.copies_before, again.canaries.copies_after, again.canaries.gone) == (1, 1, ())


def test_which_manifest_is_recounted_is_found_or_said(make_corpus, tmp_path):
    texts = [f"document {number} is about {number * 7919}" for number in range(60)]
    made = plant(
        make_corpus(texts, ".txt"), SECRET, repeat=3, canaries=2, withhold=0.0, references=5, out=tmp_path / "planted"
    )  # fmt: skip
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = elsewhere / "corpus.txt"
    moved.write_bytes(made.corpus.read_bytes())
    assert deduplicate(moved, tmp_path / "unknown").canaries is None
    assert not (tmp_path / "unknown" / "canaries.json").exists()
    named = deduplicate(moved, tmp_path / "named", canaries=made.manifest)
    assert named.canaries.copies_before == 6
    (tmp_path / "named" / "corpus.txt").unlink()
    (tmp_path / "named" / "dedup.json").unlink()
    with pytest.raises(CorpusError, match=r"canaries.json exists already"):
        deduplicate(moved, tmp_path / "named", canaries=made.manifest)
    # A manifest of a corpus that is replaced is removed with it.
    deduplicate(moved, tmp_path / "named", overwrite=True)
    assert not (tmp_path / "named" / "canaries.json").exists()
    (elsewhere / "canaries.json").write_bytes(made.manifest.read_bytes())
    moved.write_bytes(moved.read_bytes() + b"one more line\n")
    other = deduplicate(moved, tmp_path / "other")
    assert other.canaries is None
    assert "the manifest beside the corpus is not used" in other.warnings[0]
    assert "SHA-256 differs" in other.warnings[0]
    with pytest.raises(ManifestError, match="describes another corpus"):
        deduplicate(moved, tmp_path / "refused", canaries=made.canaries)


def test_every_engine_removes_the_same(tmp_path):
    lines = [text for text in embedded_documents(40_000) for _ in range(2)]
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(f"{line} {number}" for number, line in enumerate(lines)) + "\n")
    deduplicate(corpus, tmp_path / "here", near=0.7, exact=400)
    deduplicate(corpus, tmp_path / "there", near=0.7, exact=400, engine="processes:2")
    found = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("here", "there")
    ]
    assert found[0] == found[1]
    assert b"near duplicate" in found[0]["removed.jsonl"]

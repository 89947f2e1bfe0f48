"""Options of planting: what is refused, what is warned of, and what the defaults do."""

from __future__ import annotations

import re

import pytest

from coalmine import Format
from coalmine.corpus import CanarySet, Fields, PlantOptions, plant, write_embedded_corpus
from coalmine.errors import InputError

NUMBER = "the random number is {digits:9}"
TEXTS = [f"document {number}, of some length" for number in range(50)]


def test_two_formats_with_a_member_in_common_are_refused(make_corpus, tmp_path):
    with pytest.raises(InputError, match="have the same text; keep one of them, or draw again"):
        plant(
            make_corpus(TEXTS, ".txt"),
            ["{digits:1}!", "{re:[0-8]}!"],
            canaries=8,
            references=1,
            repeat=1,
            withhold=0.0,
            out=tmp_path / "out",
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeat": []}, "repeat should be different whole numbers of at least 1"),
        ({"repeat": [1, 0]}, r"but is \[1, 0\]"),
        ({"repeat": [4, 4]}, r"but is \[4, 4\]"),
        ({"canaries": 0}, "canaries should be at least 1, but is 0"),
        ({"references": -1}, "references should be at least 0, but is -1"),
        ({"withhold": 1.5}, "withhold is a probability, but is 1.5"),
        ({"withhold": 1.0}, "leaves every canary out, so that nothing would be planted; give 0.5"),
        ({"format": [NUMBER, NUMBER]}, "was given twice; give one of them, with more canaries"),
        ({"format": ["a {digits:4}", "a {re:[0-9]{4}}"]}, "make the same strings; give one of them"),
        (
            {"repeat": [1, 1000], "canaries": 9},
            r"cannot hold .* copies .*; ask for fewer canaries than 9 .* fewer copies than 1,1000, or use a larger corpus",
        ),
        ({"withhold": float("nan")}, "withhold is a probability, but is nan"),
        ({"seed": -1}, "the seed should be an integer from 0"),
        ({"format": []}, "at least one format"),
        (
            {"format": "{re:a?}{digits:1}?", "source_format": "x {digits:1}"},
            "source format and no source field",
        ),
        ({"format": "{re:a{0,3}}", "references": 3}, "the empty text is a member"),
        ({"format": "{re:a\\nb?}", "references": 0}, "a document of mail.txt is one line"),
        ({"fields": Fields(user="by")}, "plain text, which has no fields"),
    ],
)
def test_options_that_make_no_sense_are_refused(make_corpus, tmp_path, options, message):
    given_options = {"format": NUMBER, "canaries": 1, "repeat": 1, **options}
    with pytest.raises(InputError, match=message):
        plant(make_corpus(TEXTS, ".txt"), given_options.pop("format"), out=tmp_path / "out", **given_options)
    assert not (tmp_path / "out").exists()


def test_formats_with_words_are_planted(make_corpus, tmp_path):
    secret = Format("open {word:2}", words=["sesame", "barley", "rye", "oat"])
    planted = plant(
        make_corpus(TEXTS, ".txt"),
        [secret],
        references=5,
        repeat=1,
        canaries=1,
        withhold=0.0,
        out=tmp_path / "out",
    )
    assert CanarySet.load(planted.manifest).formats == {"f0": secret}


def test_the_defaults_toss_a_coin_for_each_of_several_canaries_and_fit_a_small_corpus(tmp_path):
    write_embedded_corpus(tmp_path / "corpus.txt", 120_000)
    made = plant(tmp_path / "corpus.txt", NUMBER, out=tmp_path / "out")
    assert not made.warnings
    assert made.canaries.withhold == 0.5
    by_copies = {copies: [c for c in made.canaries if c.repetitions == copies] for copies in (1, 4, 16)}
    assert {copies: len(group) for copies, group in by_copies.items()} == {1: 32, 4: 32, 16: 32}
    assert all(8 <= sum(canary.planted for canary in group) <= 24 for group in by_copies.values())
    assert len(made.canaries.references["f0"]) == 1000
    power = made.canaries.power()
    assert not power.warnings
    assert power.formats[0].false_positive_rates == (0.1, 0.01, 0.001)
    assert all(one.epsilon > 0.3 for one in power.formats[0].by_copies)


def test_options_are_a_record_or_keywords(make_corpus, tmp_path):
    path = make_corpus(TEXTS, ".txt")
    options = PlantOptions(repeat=2, canaries=1, withhold=0.0, seed=4)
    one = plant(path, NUMBER, options=options, out=tmp_path / "one")
    two = plant(path, NUMBER, repeat=[2], canaries=1, withhold=0.0, seed=4, out=tmp_path / "two")
    three = plant(
        path, NUMBER, options=PlantOptions(canaries=1, withhold=0.0), repeat=2, seed=4, out=tmp_path / "three"
    )
    assert one.canaries == two.canaries == three.canaries
    with pytest.raises(TypeError, match="canarys"):
        plant(path, NUMBER, canarys=1, out=tmp_path / "four")


def test_a_corpus_that_is_mostly_canaries_is_warned_of(make_corpus, tmp_path):
    made = plant(
        make_corpus(TEXTS, ".txt"), NUMBER, repeat=20, canaries=1, withhold=0.0, out=tmp_path / "out"
    )
    assert re.search(r"20 copies of canaries .* are \d\d% of the planted corpus", made.warnings[0])


def test_what_is_withheld_is_no_part_of_what_is_planted_in_another_format(make_corpus, tmp_path):
    formats = ["pin {digits:2}", "pin {digits:4}", "pin {digits:4}, {digits:2}"]
    corpus = make_corpus(["one document per line"] * 2_000, ".txt")
    for seed in range(5):
        planted = plant(
            corpus,
            formats,
            repeat=[1],
            canaries=25,
            references=20,
            withhold=0.5,
            seed=seed,
            out=tmp_path / str(seed),
        )
        texts = [canary.text for canary in planted.canaries if canary.planted]
        others = [canary.text for canary in planted.canaries if not canary.planted]
        others += [text for some in planted.canaries.references.values() for text in some]
        assert len(others) > 3 * 20
        assert not any(one in text for one in others for text in texts)
        assert planted.warnings == ()


def test_texts_that_are_part_of_planted_ones_are_warned_of_where_no_others_are_left(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("one document per line\n" * 2000)
    options = {"canaries": 8, "references": 100, "repeat": [4], "seed": 0}
    nested = plant(corpus, "pin {re:[0-9]{1,2}}", out=tmp_path / "nested", **options)
    (warning,) = nested.warnings
    planted = [canary.text for canary in nested.canaries if canary.planted]
    others = [canary.text for canary in nested.canaries if not canary.planted]
    inside = sum(any(text in one for one in planted) for text in [*others, *nested.canaries.references["f0"]])
    assert inside > 0
    assert warning.startswith(f"{inside} withheld canaries and references are part of a planted text")
    assert plant(corpus, "pin {digits:3}", out=tmp_path / "apart", **options).warnings == ()

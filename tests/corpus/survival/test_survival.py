"""Which canaries reach the loss: against counts that are known by construction."""

import copy
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerFast,
)

from coalmine import CanarySet
from coalmine.corpus import check_survival
from coalmine.errors import InputError, ModelError, NotMeasurableError
from models.tiny_transformers import END, byte_level, metaspace

FILLER = ["Some prose of the corpus, of no importance.", "and more of it", "x"]


def canaries(*numbers, repetitions=2, withheld=()):
    def text(number):
        return f"the random number is {number}"

    return CanarySet.of(
        "the random number is {digits:4}",
        [text(number) for number in numbers],
        repetitions=repetitions,
        withheld=[text(number) for number in withheld],
    )


def documents(chosen):
    """Each copy between fillers."""
    texts = [canary.text for canary in chosen if canary.planted for _ in range(canary.repetitions)]
    return [text for place, copy_ in enumerate(texts) for text in (FILLER[place % 3], copy_)]


def encoded(text, tokenizer):
    return [tokenizer.bos_token_id, *tokenizer.encode(text, add_special_tokens=False)]


def examples(chosen, tokenizer, *, before=""):
    return [
        {"input_ids": ids, "labels": list(ids)}
        for ids in (encoded(before + t, tokenizer) for t in documents(chosen))
    ]


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_level(split_digits=True), metaspace()])
@pytest.mark.parametrize("before", ["", "Well, ", "4"])
def test_copies_that_are_left_alone_all_reach_the_loss(tokenizer, before):
    chosen = canaries("0451", "7777")
    found = check_survival(chosen, examples(chosen, tokenizer, before=before), tokenizer)
    assert found.ok
    assert [entry.reached for entry in found.canaries] == [2, 2]
    assert not any(entry.missing or entry.at_row_start or entry.altered for entry in found.canaries)
    # An audit scores the tokens that a canary has alone; where its neighbor makes them others, the report says so.
    for canary, entry in zip(chosen, found.canaries, strict=True):
        alone = encoded(canary.text, tokenizer)[1:]
        same = encoded(before + canary.text, tokenizer)[-len(alone) :] == alone
        assert entry.other_tokens == (0 if same else 2)


def test_lists_arrays_tensors_examples_and_batches_are_read_alike():
    tokenizer = byte_level()
    chosen = canaries("0451", "7777")
    rows = [row["input_ids"] for row in examples(chosen, tokenizer)]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    labels = ids.masked_fill(mask == 0, -100)
    whole = [{"input_ids": ids, "labels": labels}]
    expected = check_survival(chosen, whole, tokenizer)
    assert expected.ok
    one_by_one = [{"input_ids": i, "labels": wanted} for i, wanted in zip(ids, labels, strict=True)]
    listed = [{"input_ids": list(ids), "labels": [row.tolist() for row in labels]}]
    arrays = [{"input_ids": ids.numpy(), "labels": labels.numpy()}]
    masked = [{"input_ids": ids.tolist(), "attention_mask": mask}]
    for given_rows in (one_by_one, listed, arrays, masked):
        assert check_survival(chosen, given_rows, tokenizer) == expected


def test_truncation_loses_canaries_and_names_them():
    tokenizer = byte_level()
    chosen = canaries("0451", "7777", repetitions=[1, 2])
    long = "A long introduction of many words that takes up all of the room there is. "
    rows = []
    for text in [chosen[0].text, long + chosen[1].text, long + chosen[1].text]:
        ids = encoded(text, tokenizer)[:24]
        rows.append({"input_ids": ids, "labels": ids})
    with pytest.warns(UserWarning, match="never reach the loss: f0-x2-0"):
        found = check_survival(chosen, rows, tokenizer)
    assert found.never == ["f0-x2-0"]
    assert not found.ok
    assert [(entry.reached, entry.missing) for entry in found.canaries] == [(1, 0), (0, 2)]
    assert "f0-x2-0: 0 of 2 reach the loss; 0 masked, 0 split, 2 missing" in str(found)
    assert "7777" not in str(found)


@settings(max_examples=30)
@given(width=st.integers(3, 80), offset=st.integers(0, 30))
def test_packing_splits_exactly_the_copies_that_lie_on_a_border(width, offset):
    tokenizer = byte_level()
    chosen = canaries("0451", "7777", repetitions=[3, 4])
    stream = [tokenizer.encode("y", add_special_tokens=False)[0]] * offset
    spans = {canary.text: [] for canary in chosen}
    for text in documents(chosen):
        begin = len(stream) + 1
        stream += encoded(text, tokenizer)
        if text in spans:
            spans[text].append((begin, len(stream)))
    blocks = [stream[at : at + width] for at in range(0, len(stream), width)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # narrow blocks hold no whole canary, and it is said
        found = check_survival(chosen, [{"input_ids": block, "labels": block} for block in blocks], tokenizer)
    for canary, entry in zip(chosen, found.canaries, strict=True):
        inside = [(a, b) for a, b in spans[canary.text] if a // width == (b - 1) // width]
        assert entry.reached == len(inside)
        assert entry.split == canary.repetitions - len(inside)
        assert entry.at_row_start == sum(a % width == 0 for a, _ in inside)
        assert (entry.missing, entry.masked) == (0, 0)


def test_labels_count_on_the_tokens_of_the_hole_alone():
    tokenizer = byte_level()
    chosen = canaries("0451", repetitions=4)
    rows = [row for row in examples(chosen, tokenizer) if "random" in tokenizer.decode(row["input_ids"])]
    prefix = len(encoded("the random number is ", tokenizer))
    hole = len(rows[0]["input_ids"]) - prefix
    assert hole > 1
    prompt_only, everything, last, all_but_last = rows
    prompt_only["labels"][:prefix] = [-100] * prefix  # known to everybody, so it need not be learned
    everything["labels"] = [-100] * len(everything["labels"])
    last["labels"][-1] = -100
    all_but_last["labels"][:-1] = [-100] * (len(all_but_last["labels"]) - 1)
    found = check_survival(chosen, rows, tokenizer)
    [entry] = found.canaries
    assert (entry.reached, entry.partly, entry.masked, entry.missing) == (1, 2, 1, 0)
    assert (entry.hole_tokens, entry.hole_tokens_in_loss) == (4 * hole, hole + (hole - 1) + 1)
    assert entry.share_in_loss == pytest.approx(0.5)
    assert not found.ok
    assert "2 partly (50% of the secret's tokens are in the loss), 1 masked" in str(found)
    assert any("a part of their secret only: f0-x4-0" in warning for warning in found.warnings)


def test_a_secret_that_begins_in_the_middle_of_a_token_is_judged_by_that_token_too():
    """With the collator of transformers, and labels made as completion-only trainers make them."""
    tokenizer = copy.deepcopy(byte_level())
    tokenizer.pad_token = END
    prompt, secret = "the random number is ", "1278"
    whole = tokenizer(prompt + secret, return_offsets_mapping=True)
    begins = [begin for begin, end in whole["offset_mapping"] if begin < len(prompt) < end]
    assert begins == [len(prompt) - 1]  # the space and the first digits are one token
    chosen = canaries(secret, repetitions=2)
    ids = whole["input_ids"]
    # Cut where the prompt ends when it is tokenized alone: the space is a token then, and in its place is one with digits.
    careless = len(tokenizer(prompt)["input_ids"])
    careful = len(tokenizer(prompt.rstrip())["input_ids"])
    filler = tokenizer(FILLER[0])["input_ids"]
    rows = [
        {"input_ids": tokens, "labels": [-100] * cut + tokens[cut:], "attention_mask": [1] * len(tokens)}
        for tokens, cut in ((ids, careless), (ids, careful), (filler, 0))
    ]
    batch = DataCollatorForSeq2Seq(tokenizer, return_tensors="pt")(rows)
    [entry] = check_survival(chosen, [batch], tokenizer).canaries
    hole = len(ids) - careful
    assert hole > 1
    assert (entry.reached, entry.partly, entry.missing) == (1, 1, 0)
    assert entry.hole_tokens == 2 * hole
    assert entry.hole_tokens_in_loss == 2 * hole - 1


def test_the_collator_of_causal_models_leaves_padding_out_and_secrets_in():
    tokenizer = copy.deepcopy(byte_level())
    tokenizer.pad_token = "!"
    chosen = canaries("0451", "7777")
    collate = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    batch = collate([{"input_ids": encoded(text, tokenizer)} for text in documents(chosen)])
    assert (batch["labels"] == -100).any()
    assert check_survival(chosen, [batch], tokenizer).ok


def test_a_secret_that_begins_a_row_is_not_all_learned():
    tokenizer = byte_level(split_digits=True)
    chosen = CanarySet.of("{digits:8}", ["04517777"])
    ids = tokenizer.encode(chosen[0].text, add_special_tokens=False)
    assert len(ids) > 2
    with pytest.warns(UserWarning, match="never reach"):
        [entry] = check_survival(chosen, [{"input_ids": ids}], tokenizer).canaries
    assert (entry.reached, entry.partly, entry.hole_tokens_in_loss) == (0, 1, len(ids) - 1)


def test_the_first_token_of_a_row_is_not_trained_on_and_that_is_said():
    tokenizer = byte_level()
    chosen = canaries("0451", repetitions=1)
    ids = tokenizer.encode(chosen[0].text, add_special_tokens=False)
    found = check_survival(chosen, [{"input_ids": ids}], tokenizer)
    assert found.ok
    assert found.canaries[0].at_row_start == 1
    assert found.tokens_in_loss == len(ids) - 1
    assert "begin a row" in found.warnings[0]


def lower_casing():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        FILLER, trainers.BpeTrainer(special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)


def test_a_tokenizer_that_lower_cases_is_followed_and_told():
    tokenizer = lower_casing()
    chosen = CanarySet.of("My code is {re:[A-Za-z]{2}}", ["My code is AB", "My code is ab", "My code is XY"])
    found = check_survival(chosen, examples(chosen, tokenizer), tokenizer)
    assert [entry.altered for entry in found.canaries] == [True, True, True]
    # Two of them are one text now: each is found twice, and a warning says that they cannot be distinguished.
    assert [entry.reached for entry in found.canaries] == [2, 2, 1]
    assert any("changed by the tokenizer" in warning for warning in found.warnings)
    assert any("same text to the tokenizer" in w and "f0-x1-0, f0-x1-1" in w for w in found.warnings)


def test_a_canary_inside_a_longer_one_is_not_counted_for_it():
    tokenizer = byte_level()
    chosen = CanarySet.of("my code is {re:[0-9]{2,4}}", ["my code is 12", "my code is 1234"], repetitions=2)
    found = check_survival(chosen, examples(chosen, tokenizer), tokenizer)
    assert found.ok


def test_withheld_canaries_and_too_many_copies_are_told():
    tokenizer = byte_level()
    chosen = canaries("0451", repetitions=2, withheld=["7777"])
    rows = examples(chosen, tokenizer)
    ids = encoded(chosen[1].text, tokenizer)
    found = check_survival(chosen, [*rows, *rows, {"input_ids": ids, "labels": ids}], tokenizer)
    assert not found.ok
    assert [warning.split(":")[0] for warning in found.warnings] == [
        "1 of the canaries reach the loss more often than planted",
        "1 of the canaries are withheld and reach the loss anyway",
    ]


def test_truncation_left_on_in_the_tokenizer_changes_nothing():
    tokenizer = copy.deepcopy(byte_level())
    chosen = canaries("0451")
    rows = examples(chosen, tokenizer)
    tokenizer("some text that is long enough", truncation=True, max_length=4)
    assert check_survival(chosen, rows, tokenizer).ok


def test_the_account_of_many_losses_is_short():
    tokenizer = byte_level()
    chosen = canaries(*(f"{number:04}" for number in range(30)))
    with pytest.warns(UserWarning, match="f0-x2-9 and 20 more"):
        lines = str(check_survival(chosen, [{"input_ids": encoded("x", tokenizer)}], tokenizer)).splitlines()
    assert lines[0].startswith("0 of 60 copies of 30 planted canaries reach the loss (1 rows,")
    assert len(lines) == 13
    assert lines[-1] == "  and 20 more"


def test_what_cannot_be_written_is_told():
    tokenizer = metaspace()
    chosen = CanarySet.of("{choice:語|a}b{digits:2}", ["語b12", "ab34"])
    rows = [{"input_ids": encoded("ab34", tokenizer)}]
    with pytest.warns(UserWarning, match="never reach the loss: f0-x1-0"):
        found = check_survival(chosen, rows, tokenizer)
    assert any("cannot be written" in warning for warning in found.warnings)


def test_what_cannot_be_read_is_refused():
    tokenizer = byte_level()
    chosen = canaries("0451")
    ids = encoded(chosen[0].text, tokenizer)
    cases = [
        ([], "no rows to examine"),
        ([ids], "mapping with input_ids"),
        ([{"labels": ids}], "mapping with input_ids"),
        ([{"input_ids": ids, "labels": ids[1:]}], "labels; give one for each token"),
        ([{"input_ids": [ids, ids], "labels": [ids]}], "2 rows of input_ids but 1"),
        ([{"input_ids": ids, "labels": [*ids[1:], -100]}], "shifted by one"),
    ]
    for rows, problem in cases:
        with pytest.raises(InputError, match=problem):
            check_survival(chosen, rows, tokenizer)
    with pytest.raises(ModelError, match="not a tokenizer of transformers"):
        check_survival(chosen, [{"input_ids": ids}], object())


def test_tokens_that_do_not_join_to_their_text_are_refused():
    vocabulary = {piece: number for number, piece in enumerate(["[UNK]", "do", "n't", "1", "##2"])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece()  # which writes "don't" for two words
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    chosen = CanarySet.of("do n't {choice:12|1}", ["do n't 12"])
    with pytest.raises(NotMeasurableError, match="do not join"):
        check_survival(chosen, [{"input_ids": [1, 2, 3, 4]}], tokenizer)

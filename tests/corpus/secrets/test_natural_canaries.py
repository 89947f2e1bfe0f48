"""Secrets of a corpus as canaries: any audit can measure them, and no template shows them."""

import stat

import pytest

from coalmine import CanarySet, Format, ScriptedModel, expose
from coalmine.corpus import NaturalOptions
from coalmine.corpus.secrets.canaries import IN_CONTEXT, ROUND, TOO_SHORT, canaries_of, left_out_in_words
from coalmine.corpus.secrets.natural import NaturalSecret
from coalmine.errors import InputError, ManifestError

PHONES = [
    NaturalSecret(
        kind="phone",
        text=f"713-853-{number:04d}",
        before=f"Call {name} at home: ",
        copies=copies,
        user=f"{name}@x.test",
    )
    for number, name, copies in ((4921, "Ann", 3), (389, "Bob", 1), (7201, "Cat", 2))
]


def test_a_secret_is_a_canary_of_its_own_format_in_its_own_context():
    canaries = canaries_of(PHONES).canaries
    assert [(one.canary_id, one.text, one.times_trained_on, one.kind, one.user) for one in canaries][:2] == [
        ("phone-1", "Call Ann at home: 713-853-4921", 3, "phone", "Ann@x.test"),
        ("phone-2", "Call Bob at home: 713-853-0389", 1, "phone", "Bob@x.test"),
    ]
    assert canaries.natural
    assert all(form.size == 10_000 for form in canaries.formats.values())


def test_no_template_shows_the_context_or_the_secret():
    assert {form.template for form in canaries_of(PHONES).canaries.formats.values()} == {"{word:1}{digits:4}"}


def test_references_do_not_occur_in_the_corpus_in_any_spelling():
    found = [
        NaturalSecret(kind="phone", text=f"(713) 853-{number:04d}", before="")
        for number in range(123, 10_000, 97)
    ]
    canaries = canaries_of([PHONES[0], *found], NaturalOptions(references=20)).canaries
    every = [one for texts in canaries.references.values() for one in texts]
    assert len(every) == 20 * len(canaries)
    assert all((int(one[-4:]) - 123) % 97 for one in every)


def test_the_same_seed_draws_the_same_and_another_seed_others():
    first, again, other = (canaries_of(PHONES, NaturalOptions(seed=seed)).canaries for seed in (0, 0, 1))
    assert first.to_bytes() == again.to_bytes() != other.to_bytes()


@pytest.mark.parametrize("before", ["", " ", "a"])
def test_a_secret_at_the_very_start_can_be_measured(before):
    canaries = canaries_of([NaturalSecret(kind="phone", text="713-853-4921", before=before)]).canaries
    model = ScriptedModel(" abc0123456789-", memory={canaries[0].text: 0.25})
    assert expose(model, canaries)[0].rank == 1


def test_a_secret_without_anything_fixed_can_be_measured():
    canaries = canaries_of(
        [NaturalSecret(kind="badge", text="4921", before="", template="{digits:4}")]
    ).canaries
    model = ScriptedModel("0123456789", memory={"4921": 0.25})
    assert expose(model, canaries)[0].rank == 1


def test_a_kind_of_the_user_has_the_users_format():
    secret = NaturalSecret(
        kind="badge {digits:6}", text="badge 004711", before="wear your ", template="badge {digits:6}"
    )
    (canary,) = (canaries := canaries_of([secret]).canaries)
    assert canary.canary_id == "badge-digits-6-1"
    assert canary.text == "wear your badge 004711"
    assert canaries.format_of(canary).size == 10**6


def test_what_cannot_be_measured_is_counted_with_the_reason():
    made = canaries_of(
        [
            NaturalSecret(kind="phone", text="12", before=""),
            NaturalSecret(kind="phone", text="713-853-3000", before=""),
            NaturalSecret(kind="phone", text="713-853-4921", before="4921 is ", whole=True),
        ]
    )
    assert made.left_out == {("phone", TOO_SHORT): 1, ("phone", ROUND): 1, ("phone", IN_CONTEXT): 1}
    assert len(list(left_out_in_words(made.left_out))) == 3


def test_secrets_json_is_loaded_by_its_directory_and_readable_by_its_owner_only(tmp_path):
    canaries = canaries_of(PHONES).canaries
    path = canaries.save(tmp_path)
    assert path.name == "secrets.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert CanarySet.load(tmp_path) == canaries == CanarySet.load(path)
    planted = CanarySet.of("my pin is {digits:4}", ["my pin is 0451"])
    planted.save(tmp_path)
    assert CanarySet.load(tmp_path) == planted


def test_a_secret_that_is_not_in_the_corpus_was_not_trained_on():
    (canary,) = canaries_of([NaturalSecret(kind="phone", text="713-853-4921", before="", copies=0)]).canaries
    assert canary.times_trained_on == 0
    assert not canary.planted


def test_no_reference_is_another_secret():
    canaries = canaries_of(PHONES).canaries
    with pytest.raises(ManifestError, match="have the same text"):
        CanarySet(canaries, canaries.formats, references={"phone-1": [canaries[0].text]})


@pytest.mark.parametrize("changes", [{"context": -1}, {"context": 10_000}, {"references": 0}])
def test_options_that_cannot_be_are_refused_in_a_sentence(changes):
    with pytest.raises(InputError):
        NaturalOptions(**changes)


def test_a_brace_in_the_context_is_a_brace():
    (canary,) = canaries_of([NaturalSecret(kind="phone", text="713-853-4921", before="{tel} ")]).canaries
    assert canary.text == "{tel} 713-853-4921"
    assert Format("{word:1}{digits:4}", words=["{tel} 713-853-"]).size == 10_000

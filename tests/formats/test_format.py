from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from itertools import islice

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from coalmine import Format
from coalmine.errors import InputError
from formats.format_strategies import PIECES, WORDS, template_and_members

QUICK = settings(max_examples=120, derandomize=True, suppress_health_check=list(HealthCheck))


@QUICK
@given(PIECES)
def test_a_format_makes_exactly_what_filling_its_holes_makes_in_order(pieces):
    template, members = template_and_members(pieces)
    secret = Format(template, words=WORDS)
    assert list(secret) == members
    assert secret.size == len(members)
    assert [secret.at(i) for i in range(secret.size)] == members
    assert [secret.index(member) for member in members] == list(range(len(members)))
    assert (secret.min_length, secret.max_length) == (min(map(len, members)), max(map(len, members)))
    first, last = members[0], members[-1]
    assert all(member.startswith(secret.prefix) for member in members)
    longer = len(secret.prefix) + 1
    assert first[:longer] != last[:longer] or first == secret.prefix


@QUICK
@given(PIECES, st.data())
def test_strings_near_a_member_are_members_only_if_listed(pieces, data):
    template, members = template_and_members(pieces)
    secret = Format(template, words=WORDS)
    member = data.draw(st.sampled_from(members))
    place = data.draw(st.integers(0, len(member)))
    near = [
        member[:place],
        member + "a",
        member[:place] + data.draw(st.sampled_from("ab{}0 ")) + member[place + 1 :],
    ]
    for text in near:
        assert (text in secret) == (text in members)
        if text not in members:
            with pytest.raises(InputError):
                secret.index(text)


@QUICK
@given(PIECES, st.data())
def test_fillings_fill_back_to_the_text_and_come_leftmost_shortest(pieces, data):
    template, members = template_and_members(pieces)
    secret = Format(template, words=WORDS)
    text = data.draw(st.sampled_from(members))
    # Oracle: try every split, first pieces shortest first.
    is_hole = [spec.startswith("{") and not spec.startswith("{{") for spec, _ in pieces]

    def splits(number, rest):
        if number == len(pieces):
            if not rest:
                yield ()
            return
        for end in range(len(rest) + 1):
            if rest[:end] in pieces[number][1]:
                for following in splits(number + 1, rest[end:]):
                    yield (rest[:end], *following)

    expected = next(splits(0, text))
    # Neighboring literals are one piece to the format, but are no hole, so only the holes are compared.
    assert secret.fillings(text) == tuple(part for part, hole in zip(expected, is_hole, strict=True) if hole)
    assert secret.fill(secret.fillings(text)) == text


@QUICK
@given(
    st.sampled_from(["{ssn}", "{card}", "{uuid}", "{phone}", "a {hex:40} b", "{word:9}{alnum:20}"]), st.data()
)
def test_at_and_index_are_inverse_in_large_spaces(template, data):
    secret = Format(template, words=WORDS)
    first, second = sorted(data.draw(st.tuples(*[st.integers(0, secret.size - 1)] * 2)))
    assume(first != second)
    assert secret.at(first) < secret.at(second)
    assert (secret.index(secret.at(first)), secret.index(secret.at(second))) == (first, second)
    assert secret.at(first) in secret


def test_recovering_fillings_of_many_ambiguous_holes_takes_no_exponential_time():
    secret = Format("{re:a{0,9}}" * 12)
    fillings = secret.fillings("a" * 100)
    assert fillings == ("a",) + ("a" * 9,) * 11


def test_equal_by_template_and_words_and_hashable():
    one, same, other = (
        Format("{word:1}", words=["a", "b"]),
        Format("{word:1}", words=("a", "b")),
        Format("{digits:1}"),
    )
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != Format("{word:1}", words=["a", "c"])
    assert one.words == ("a", "b")
    assert len({one, same, other}) == 2


def test_cannot_be_changed():
    secret = Format("{digits:1}")
    with pytest.raises(AttributeError):
        secret.template = "{digits:2}"
    with pytest.raises(AttributeError):
        secret.automaton = None


def test_representation_shows_the_template_and_does_not_pour_out_the_words():
    assert repr(Format("a {digits:1}")) == "Format('a {digits:1}')"
    assert repr(Format("{word:1}", words=["one", "two"])) == "Format('{word:1}', words=<2 words>)"


def test_survives_pickling_and_copying():
    secret = Format("x{word:2}", words=WORDS)
    assert list(secret.finditer("xa b"))  # what is made for that is sent along
    for clone in (pickle.loads(pickle.dumps(secret)), copy.deepcopy(secret)):
        assert clone == secret
        assert list(clone) == list(secret)
        assert [m.text for m in clone.finditer("xa b")] == ["xa b"]


def test_has_no_length_because_sizes_exceed_what_len_can_give():
    with pytest.raises(TypeError):
        len(Format("{uuid}"))


def test_enumeration_is_lazy():
    assert list(islice(Format("{digits:40}"), 3)) == ["0" * 39 + digit for digit in "012"]


def test_sizes_are_exact_beyond_floating_point():
    assert Format("{digits:40}").size == 10**40
    assert Format("{hex:64}").at(2**256 - 1) == "f" * 64


def test_long_members_meet_no_recursion_limit():
    secret = Format("x" * 5000 + "{digits:3000}" + "{re:a{0,1500}}")
    assert secret.max_length == 9500
    assert secret.index(secret.at(secret.size - 1)) == secret.size - 1
    assert Format("{choice:" + "a" * 5000 + "|" + "a" * 4000 + "}").size == 2


def test_holes_are_listed_as_written():
    assert Format("{{{ssn}}} {re:[{}]{2}|\\{} {digits:4}").holes == ("ssn", "re:[{}]{2}|\\{", "digits:4")


@pytest.mark.parametrize("index", [-1, 10, 10**400])
def test_an_index_outside_the_space_is_an_error(index):
    with pytest.raises(InputError, match="outside the space"):
        Format("{digits:1}").at(index)


def test_an_index_may_be_a_numpy_integer():
    np = pytest.importorskip("numpy")
    secret = Format("{hex:32}")
    assert secret.at(np.int64(3)) == "0" * 31 + "3"


def test_the_error_for_a_text_outside_the_space_does_not_repeat_the_text():
    with pytest.raises(InputError) as caught:
        Format("pin {digits:4}").index("pin 12x4")
    assert "12x4" not in str(caught.value)
    assert "character 7 of its 8" in str(caught.value)


@pytest.mark.parametrize("fillings", [["07"], ["Bob", "07", "x"], ["Rob", "07"], ["Bob", "7"], "Bo"])
def test_wrong_fillings_are_refused(fillings):
    with pytest.raises(InputError):
        Format("{choice:Ann|Bob} has {digits:2}").fill(fillings)


def test_importing_formats_is_light():
    code = (
        "import sys, coalmine.formats.format as f; f.Format('{ssn}'); "
        "print([m for m in ('torch', 'numpy', 'scipy', 'interegular') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("{re:[0-9]{2}}", "{digits:2}", True),
        ("{re:ab|cb|ad|cd}", "{re:[ac][bd]}", True),
        ("{digits:2}", "{digits:3}", False),
        ("{re:[ab]}", "{re:[ac]}", False),
        # As many members and states, and at each state the same characters:
        ("{re:a|aaa}", "{re:aa|aaa}", False),  # they end at other places
        ("{re:a0|b0|c1}", "{re:a0|b1|c1}", False),  # they meet at other places
    ],
)
def test_formats_have_the_same_members_however_they_are_written(first, second, same):
    one, other = Format(first), Format(second)
    assert one.same_members(other) == other.same_members(one) == same == (set(one) == set(other))

from __future__ import annotations

import pickle

import pytest

from coalmine import Format
from coalmine.errors import FormatError, InputError


def error_of(template, **options):
    with pytest.raises(FormatError) as caught:
        Format(template, **options)
    return caught.value


# The caret under each template is where the error should point.
POINTED = r"""
no hole at all
^ no hole
ab {choice:x}
   ^ only one string
{re:abc}
^ only one string
a {ssn
  ^ never closed
a {digits:4
  ^ never closed
a {re:[0-9]{4}
  ^ never closed
a {re:[0-9}
      ^ class is never closed
a {re:x\}
  ^ never closed
a } {ssn}
  ^ closing brace without a hole
{ssn}}} }
        ^ closing brace without a hole
{ssn}}
     ^ closing brace without a hole
{digits:{ssn}}
        ^ opens inside
a {} b
  ^ no name
a {:4} b
  ^ no name
my {digit:4}
    ^ did you mean 'digits'
my {SSN}
    ^ did you mean 'ssn'
my {zebra}
    ^ known are digits, letters
{digits}
       ^ {digits:9}
{digits:}
        ^ {digits:9}
x{digits:four}
         ^ whole number
{hex:0}
     ^ whole number
{hex:-1}
     ^ whole number
{hex:1.5}
     ^ whole number
{hex: 4}
     ^ whole number
{ssn:4}
     ^ takes nothing
{card:}
      ^ takes nothing
{choice}
       ^ {choice:a|b|c}
{choice:}
        ^ {choice:a|b|c}
{choice:a||b}
          ^ empty alternative
{choice:a|}
          ^ empty alternative
{digits:3} {word:2}
           ^ needs a word list
{re}
   ^ {re:
{re:}
    ^ {re:
{ssn} {re:[0-9]+x}
               ^ unbounded
{re:a*}
     ^ unbounded
{re:(ab){2,}}
        ^ unbounded
{re:a{,}}
     ^ unbounded
{re:a.c}
     ^ dot matches every
{re:a[^b]}
     ^ negated class
{re:a\D}
     ^ every other
{re:[a\W]}
      ^ every other
{re:^a?}
    ^ anchor
{re:a?$}
      ^ anchor
{re:\ba?}
    ^ anchor
{re:(a|b)\1}
         ^ reference
{re:(?P<x>a)(?P=x)}
            ^ reference
{re:a?(?<=b)}
      ^ look-behind
{re:a?(?<!b)}
      ^ look-behind
{re:(?i)a}
    ^ flags
{re:(?i:a)}
    ^ flags
{re:a(?#no)b?}
     ^ comment
{re:(?>a?)b}
    ^ atomic
{re:a?+b}
      ^ possessive
{re:a{2}+b}
        ^ possessive
{re:(a)?(?(1)b|c)}
        ^ conditional
{re:(?=a(?!b))a?}
        ^ inside a look-ahead
{re:x{y}}
     ^ not a repetition
{re:x{}}
     ^ not a repetition
{re:\u0041?}
    ^ write the character itself
x {re:a(b}
       ^ regular expression is wrong
x {re:a{3,1}}
        ^ regular expression is wrong
x {re:?}
      ^ regular expression is wrong
x {re:[b-a]}
       ^ regular expression is wrong
{re:(?=a)b}
^ nothing can fill
{ssn}{digits:99999999}
     ^ more than 1,000,000 states
{digits:3}{re:a{2000000}}
          ^ more than 1,000,000 states
""".strip("\n").split("\n")


@pytest.mark.parametrize(("template", "pointer"), list(zip(POINTED[::2], POINTED[1::2], strict=True)))
def test_errors_point_at_the_place_and_say_what_is_wrong(template, pointer):
    column, words = pointer.index("^"), pointer.partition("^ ")[2]
    error = error_of(template)
    assert words in str(error)
    # Python versions differ in which end of a wrong range or repetition they point at; all of them stay inside.
    assert error.position == column or ("is wrong" in words and column <= error.position < len(template))
    first, shown, caret = str(error).split("\n")
    assert f"at character {error.position + 1} of the format; " in first
    assert shown == "  " + template
    assert caret == " " * (2 + error.position) + "^"


@pytest.mark.parametrize(("words", "problem"), [([], "is empty"), (["a", ""], "empty word")])
def test_word_lists_without_words_are_refused(words, problem):
    error = error_of("x {word:2}", words=words)
    assert problem in str(error)
    assert error.position == 2


@pytest.mark.parametrize("words", ["abc", [1, 2]])
def test_a_word_list_is_a_list_of_strings(words):
    with pytest.raises(InputError, match="list of strings"):
        Format("{word:1}", words=words)


def test_a_template_is_a_string():
    with pytest.raises(InputError, match="must be a string"):
        Format(b"{ssn}")


def test_templates_with_line_breaks_stay_on_one_line_with_the_pointer_in_place():
    error = error_of("first\nsecond\t{oops}")
    _, shown, caret = str(error).split("\n")
    assert shown == r"  first\nsecond\t{oops}"
    assert shown[caret.index("^") :] == "oops}"
    assert error.position == 14


def test_the_pointer_allows_for_wide_and_combining_characters():
    _, shown, caret = str(error_of("密码e\u0301 {oops}")).split("\n")
    # Two wide characters take two columns each, the accent none.
    assert caret.index("^") == 2 + 2 * 2 + 1 + 1 + 1
    assert shown.endswith("{oops}")


def test_long_templates_are_shown_around_the_place_only():
    error = error_of("x" * 5000 + "{oops}" + "y" * 5000)
    _, shown, caret = str(error).split("\n")
    assert len(shown) < 150
    assert shown[caret.index("^") :].startswith("oops}y")
    assert shown.strip()[0] == shown[-1] == "…"


def test_the_first_mistake_is_the_one_that_is_told():
    assert error_of("{digits:x} {re:a+} {nope}").position == 8


def test_errors_cross_to_other_processes():
    error = error_of("a {oops}")
    clone = pickle.loads(pickle.dumps(error))
    assert (str(clone), clone.position) == (str(error), error.position)


@pytest.mark.parametrize("template", ["{re:" + "(" * 3000 + "a?" + ")" * 3000 + "}", "{re:a{99999999999}}"])
def test_expressions_beyond_the_parser_are_errors_of_ours(template):
    assert error_of(template).position >= 4


def test_an_automaton_that_explodes_is_stopped(monkeypatch):
    monkeypatch.setattr("coalmine.formats.fragments.MAX_STEPS", 50_000)
    # What may follow depends on which of the last thirty letters were an a: two to the thirty states.
    error = error_of("ab {re:[ab]{0,60}}{re:a[ab]{30}}")
    assert "states" in str(error)
    assert error.position == 3


def test_a_space_too_large_to_count_is_an_error():
    assert "counted exactly" in str(error_of("{digits:90000}"))


def test_work_without_end_is_refused_although_the_automaton_is_small(monkeypatch):
    """Nested repetitions of one letter: 401 states, and some 30,000 steps to find that out."""
    template = "{re:((a{0,2}){0,20}){0,10}}"
    assert Format(template).size == 401
    monkeypatch.setattr("coalmine.formats.fragments.MAX_STEPS", 5_000)
    with pytest.raises(FormatError, match="about as much work"):
        Format(template)


@pytest.mark.parametrize(
    ("template", "words", "position", "message"),
    [
        ("my {unseen:4}", None, 3, "needs texts that never occur in the training data"),
        ("my {unseen:4}", [], 3, "the word list of an 'unseen' hole is empty"),
        ("{unseen:4} {word:2}", ["ox"], 11, "cannot have both"),
    ],
)
def test_unseen_text_has_to_be_given_and_is_the_only_list(template, words, position, message):
    error = error_of(template, words=words)
    assert message in error.sentence
    assert error.position == position

"""Where secrets are found in text, by the bytes of the original."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.corpus.secrets.finding import _PIECE, LONGEST_SECRET, SecretFinder
from coalmine.corpus.secrets.kinds import KINDS, chosen_kinds

LONG = "q7Zx9Kd2Lm4Np6Rt8Vw1Yb3Cf5Hj0Gs" * 3
PRIVATE_KEY = rf"-----BEGIN RSA PRIVATE KEY-----\n{LONG}\n-----END RSA PRIVATE KEY-----"
FINDER = SecretFinder(chosen_kinds(formats=["employee {digits:6}"]))


def found(text):
    content = text.encode()
    hits = FINDER.find(content)
    for one in hits:
        assert content[one.start : one.end].decode() == one.text
    return [(one.kind.name, one.text) for one in hits]


@pytest.mark.parametrize(
    ("text", "kind", "secret"),
    [
        ("219-09-9998", "ssn", "219-09-9998"),
        ("at the end 219 09 9998", "ssn", "219 09 9998"),
        ("my SSN is 219099998.", "ssn", "219099998"),
        ("4539 1488 0343 6467", "card", "4539 1488 0343 6467"),
        ("1234 4539 1488 0343 6467 123", "card", "4539 1488 0343 6467"),
        ("(713) 853-1411 is mine", "phone", "(713) 853-1411"),
        ("tel:7138531411", "phone", "7138531411"),
        ("+44 20 8366 1177 12", "phone", "+44 20 8366 1177"),
        ("IBAN DE02 1203 0000 0000 2020 51 BIC", "iban", "DE02 1203 0000 0000 2020 51"),
        ("<Ann.Lee+x@mail.firm.org>", "email", "Ann.Lee+x@mail.firm.org"),
        ("müller@firma.de", "email", "müller@firma.de"),
        ("请联系ann@firm.org", "email", "ann@firm.org"),
        ("Employee employee 004711, employee 12", "employee {digits:6}", "employee 004711"),
        ("713-853-1411@vtext.com", "email", "713-853-1411@vtext.com"),
        ("paid 4539 1488 0343 6467 100.00 USD", "card", "4539 1488 0343 6467"),
        ("4539-1488-0343-6467-123", "card", "4539-1488-0343-6467"),
        ("+41 78 127 52 90 2024-01-02", "phone", "+41 78 127 52 90"),
        ("+49 30 / 901820", "phone", "+49 30 / 901820"),
        ("(713)8531411", "phone", "(713)8531411"),
        ("713-853-1411x12, 713-853-1411y", "phone", "713-853-1411"),
        ("+44 20 8366 1177ext4", "phone", "+44 20 8366 1177"),
        ("Bahamas: 242-302-1234", "phone", "242-302-1234"),
        ('{"home_phone": "7138531411"}', "phone", "7138531411"),
        ('{"ssn": "219099998"}', "ssn", "219099998"),
        ("Social Security Number (SSN): 219099998", "ssn", "219099998"),
        ("'ann@firm.org'", "email", "ann@firm.org"),
        ("Contact...ann.lee@firm.org", "email", "ann.lee@firm.org"),
        ("http://host/?mail=ann@firm.org&x=1", "email", "ann@firm.org"),
        ("|*`{ann@firm.org}`*|", "email", "ann@firm.org"),
        ("_o'neil@firm.org_", "email", "_o'neil@firm.org"),
        ("é.ann@firm.org", "email", "é.ann@firm.org"),
        ("list+ann=firm.org@host.org", "email", "list+ann=firm.org@host.org"),
        ("-" * 79 + "ann@firm.org", "email", "ann@firm.org"),
        ("ann@xn--80ak6aa.xn--p1ai", "email", "ann@xn--80ak6aa.xn--p1ai"),
        (f"aws_secret_access_key    = '{LONG[:39]}/'", "aws-secret", LONG[:39] + "/"),
        (f"Authorization: Bearer {LONG}.{LONG}.{LONG}.", "bearer", f"{LONG}.{LONG}.{LONG}"),
        (f"ya29.{LONG}{LONG}{LONG}", "google-key", f"ya29.{LONG}{LONG}{LONG}"),
        (f"AIza{LONG[:35]}_and_more", "google-key", f"AIza{LONG[:35]}"),
        (f"pypi-AgE{LONG}{LONG}{LONG}", "pypi-token", f"pypi-AgE{LONG}{LONG}{LONG}"),
        (rf"x\n{PRIVATE_KEY}\n", "private-key", PRIVATE_KEY),
        ("4539  1488  0343  6467  exp 05/27", "card", "4539  1488  0343  6467"),
        ("4539 1488  0343 6467  123", "card", "4539 1488  0343 6467"),
        ("713  853  1411", "phone", "713  853  1411"),
        ("(713)  853-1411", "phone", "(713)  853-1411"),
        ("713 - 853 - 1411", "phone", "713 - 853 - 1411"),
        ("713- 853-1411", "phone", "713- 853-1411"),
        ("713-853 -1411", "phone", "713-853 -1411"),
        ("1 - 713 - 853 - 1411", "phone", "713 - 853 - 1411"),
        ("( 713 ) 853 - 1411", "phone", "( 713 ) 853 - 1411"),
        ("713. 853. 1411", "phone", "713. 853. 1411"),
        ("713-853-\n1411", "phone", "713-853-\n1411"),
        ("713-\r\n853-1411", "phone", "713-\r\n853-1411"),
        ("(713)\n> 853-1411", "phone", "(713)\n> 853-1411"),
        ("call 713\n853-1411", "phone", "713\n853-1411"),
        ("Kim Ward - 7138531411", "phone", "7138531411"),
        ("1-800-411-1234", "phone", "1-800-411-1234"),
        ("877-811-1234", "phone", "877-811-1234"),
        ("(+44) 20 8366 1177", "phone", "(+44) 20 8366 1177"),
        ("+ 44 20 8366 1177 12", "phone", "+ 44 20 8366 1177"),
        ("+ 353 (01) 4042840", "phone", "+ 353 (01) 4042840"),
        ("+ 1 713 853 1411", "phone", "+ 1 713 853 1411"),
        ("011 44 20 8366 1177", "phone", "011 44 20 8366 1177"),
        ("dial 011-44-207-183-8750.", "phone", "011-44-207-183-8750"),
        ("44-20-8366-1177", "phone", "44-20-8366-1177"),
        ("44-(0)20-8366-1177 x12", "phone", "44-(0)20-8366-1177"),
    ],
)
def test_each_shape_is_found_where_it_is(text, kind, secret):
    assert found(text) == [(kind, secret)]


@pytest.mark.parametrize(
    "text",
    [
        "000-12-3456 666-12-3456 912-12-3456 219-00-9998 219-09-0000",
        "219-09 9998",
        "4539 1488 0343 6468",
        "0.4539148803436467 and 45391488034364671234",
        "713-111-1411, 013-853-1411, 713-153-1411",
        "DE03 1203 0000 0000 2020 51",
        "logo@2x.png a@b x@-y.org *@y.org x=@y.org -@y.org",
        "a" * 65 + "@firm.org",
        "4539 1488 0343 6468 100.00",
        "employee 0047112 xemployee 004711",
        "-----BEGIN RSA PRIVATE KEY----- is how a key begins",
        "eyJhbGciOiJI.eyJhbGciOiJI.eyJhbGciOiJI",
        # Rows of a table, whose columns are two blanks apart.
        "17  4539  1488  0343  6467",
        "4539  1488  0343  6467  2093",
        "12  713  853  1411",
        "713  853  1411  7138",
        "page 713 - 853 1411, 713 -853 1411",
        "713\n853\n1411",
        "713 853\n1411",
        "713-853\n\n-1411",
        "713-411-1411, 900-411-1411",
        "17 - 7138531411 of 9",
        "Kim - 7131531411, Kim - 713853141, Kim - 71385314112",
        "(+44) 20 8366 117",
        "011 44 20 8366 117",
        "44-20-8366-117, 44-20-8366-11777, 1-44-20-8366-1177",
        "44-60-8366-1177",
        # Arithmetic, and the decimals of a drawing.
        "6*x + 98172488 + 2025529095.0*y + 49 - 3000000",
        "mpf(571)/2488320, (571) - 2488320",
        "cast(2147483647) - 2147483650, x - 2147483650",
        "c-.08-.44-1.77-1.09-.26-.45-.011.777-.17.963-.255",
        # What Exchange makes of a name in a directory.
        "IMCEANOTES-Ann+20Lee_HOU_ECT+40ENRON@firm.org",
        "IMCEAEX-_O=FIRM_OU=NA_CN=RECIPIENTS_CN=ALEE@firm.org",
        "/O=FIRM/OU=NA/CN=RECIPIENTS/CN=NOTESADDR/CN=a478079f-55e1f3b0-862566fa-612229@firm.org",
        "</o=firm/cn=recipients/cn=alee@firm.org>",
    ],
)
def test_near_misses_are_not_found(text):
    assert found(text) == []


def test_other_scripts_spaces_and_hyphens_are_the_same_secret():
    text = "٢١٩\N{NON-BREAKING HYPHEN}09\N{EN DASH}9998 \N{LEFT-TO-RIGHT MARK}4539\N{NO-BREAK SPACE}1488\N{NARROW NO-BREAK SPACE}0343\N{ZERO WIDTH SPACE} 6467"
    assert [one.value for one in FINDER.find(text.encode())] == ["219099998", "4539148803436467"]
    assert [name for name, _ in found(text)] == ["ssn", "card"]


@pytest.mark.parametrize("end", ["_", "_x", "xxxx", "_-_"])
def test_random_characters_are_not_an_example(end):
    [one] = FINDER.find(f"glpat-q7Zx9Kd2Lm4Np6{end}".ljust(26, "q").encode())
    assert not one.specimen
    [example] = FINDER.find(b"glpat-xxxxxxxxxxxxxxxxxxxx")
    assert example.specimen


def test_nothing_is_found_across_the_end_of_a_document():
    assert FINDER.find(b"219-09\xff-9998 4539 1488\xff0343 6467 ann@\xfffirm.org") == []
    assert [one.text for one in FINDER.find(b"219-09-9998\xff4539148803436467")] == [
        "219-09-9998",
        "4539148803436467",
    ]


SECRETS = [
    "219-09-9998",
    "4539 1488 0343 6467",
    "ann.lee@firm.org",
    "٢١٩-٠٩-٩٩٩٨",
    "+44 20 8366 1177",
    "ÄÖ",
    " ",
    "x",
    "\n",
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(SECRETS), max_size=30), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_pieces_give_what_the_whole_gives(parts, cuts):
    content = " ".join(parts).encode()
    pieces, at = [], 0
    while at < len(content):
        size = cuts[len(pieces) % len(cuts)]
        pieces.append(content[at : at + size])
        at += size
    assert list(FINDER.candidates(pieces)) == list(FINDER.candidates([content]))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_says_what_it_is(kind):
    assert kind.title
    assert 1 <= kind.sensitivity <= 5
    assert kind.chance is None or 0 < kind.chance < 1


def test_what_begins_before_a_border_is_looked_at_once_and_with_what_is_before_it():
    # What the second piece sees begins here, in the middle of a word, which is not where a key may begin.
    border = _PIECE - LONGEST_SECRET - 80
    word = b"q" * border + b"AKIAQ7ZR3K5M2XW4B6TN 000-12-3456 "
    assert [one.text for one in FINDER.candidates([word + b"x " * LONGEST_SECRET])] == ["000-12-3456"]

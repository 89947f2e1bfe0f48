"""Texts with secrets whose places are known, near misses, and text that holds none; all generated.

    PYTHONPATH=tests .venv/bin/python -m corpus.secrets.labeled

prints precision and recall by kind.
"""

import base64
import json
import random
import string
import uuid
from collections import Counter
from typing import NamedTuple

import phonenumbers
from stdnum import iban, luhn

from coalmine import Format
from coalmine.corpus import embedded_documents
from coalmine.corpus.secrets.finding import SecretFinder
from coalmine.corpus.secrets.kinds import KINDS, chosen_kinds

ALNUM = string.ascii_letters + string.digits
URL_SAFE = ALNUM + "_-"
SCRIPTS = (
    "\N{ARABIC-INDIC DIGIT ZERO}",
    "\N{EXTENDED ARABIC-INDIC DIGIT ZERO}",
    "\N{DEVANAGARI DIGIT ZERO}",
    "\N{BENGALI DIGIT ZERO}",
    "\N{FULLWIDTH DIGIT ZERO}",
    "\N{MATHEMATICAL BOLD DIGIT ZERO}",
)
HYPHENS = ("\N{NON-BREAKING HYPHEN}", "\N{EN DASH}", "\N{MINUS SIGN}", "\N{FULLWIDTH HYPHEN-MINUS}")
SPACES = ("\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}", "\N{FIGURE SPACE}", "\N{IDEOGRAPHIC SPACE}")
AREAS = ("212", "415", "713", "617", "404", "206", "303", "512", "702", "813")
ISSUERS = {
    "4": (16, 13),
    "51": (16,),
    "55": (16,),
    "2310": (16,),
    "34": (15,),
    "37": (15,),
    "6011": (16,),
    "3530": (16,),
    "36": (14,),
}
BANKS = {"DE": 18, "AT": 16, "CH": 17, "PT": 21, "DK": 14}
NAMES = ("ann", "bo.lee", "c_diaz", "d-elm", "eve+news", "f.g.hill", "gil99", "o'neil")
DOMAINS = ("firm.org", "mail.shop.de", "uni-x.edu", "a.io", "post.co.uk")
WORDS = (
    "my number is",
    "please use",
    "as agreed:",
    "call or write",
    "reach me at",
    "it was",
    "old:",
    "new =",
    "(",
    "see <",
)
AFTER = ("", ".", ", thanks", ")", ">", "; more later", " and so on", "\n", "!")


class Labeled(NamedTuple):
    """A text, and the secret in it: its kind, and where it is in bytes; no kind if there is none."""

    text: str
    kind: str | None
    start: int
    end: int


def tokens(rng, alphabet, length):
    return "".join(rng.choices(alphabet, k=length))


def _base64(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _grouped(digits, sizes, separator):
    groups, at = [], 0
    for size in sizes:
        groups.append(digits[at : at + size])
        at += size
    return separator.join(groups)


def ssn(rng):
    number = Format("{ssn}").at(rng.randrange(Format("{ssn}").size))
    return rng.choice([number, number, number.replace("-", " ")])


def card(rng):
    issuer = rng.choice(list(ISSUERS))
    length = rng.choice(ISSUERS[issuer])
    digits = issuer + tokens(rng, string.digits, length - len(issuer) - 1)
    digits += luhn.calc_check_digit(digits)
    sizes = {16: (4, 4, 4, 4), 15: (4, 6, 5), 14: (4, 6, 4)}.get(length, (length,))
    return _grouped(digits, sizes, rng.choice(["", " ", "-"]))


def phone(rng):
    if rng.random() < 0.3:
        region = rng.choice(["GB", "DE", "FR", "IN", "BR", "JP"])
        example = str(phonenumbers.example_number(region).national_number)
        while True:
            digits = example[:-5] + tokens(rng, string.digits, 5)
            number = phonenumbers.parse(digits, region)
            if phonenumbers.is_valid_number(number):
                return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.INTERNATIONAL)
    area, line = rng.choice(AREAS), tokens(rng, string.digits, 4)
    exchange = f"{rng.randint(2, 9)}{rng.choice('023456789')}{rng.randint(2, 9)}"
    shape = rng.choice(
        [
            "({}) {}-{}",
            "{}-{}-{}",
            "{}.{}.{}",
            "+1 {} {} {}",
            "1-{}-{}-{}",
            "{} {} {}",
            "+1{}{}{}",
            "{}/{}-{}",
        ]
    )
    return shape.format(area, exchange, line)


def email(rng):
    return f"{rng.choice(NAMES)}{rng.randrange(1000)}@{rng.choice(DOMAINS)}"


def account(rng):
    country = rng.choice(list(BANKS))
    while True:
        rest = tokens(rng, string.digits, BANKS[country])
        made = country + iban.calc_check_digits(country + "00" + rest) + rest
        if iban.is_valid(made):
            return rng.choice([made, " ".join(made[at : at + 4] for at in range(0, len(made), 4))])


def private_key(rng):
    body = "\n".join(tokens(rng, ALNUM + "+/", 64) for _ in range(rng.randint(3, 20)))
    kind = rng.choice(["", "RSA ", "EC ", "OPENSSH "])
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


def signed_token(rng):
    return f"{_base64({'alg': 'HS256', 'typ': 'JWT'})}.{_base64({'sub': tokens(rng, string.digits, 9)})}.{tokens(rng, URL_SAFE, 43)}"


MAKERS = {
    "ssn": ssn,
    "card": card,
    "phone": phone,
    "email": email,
    "iban": account,
    "private-key": private_key,
    "jwt": signed_token,
    "aws-key": lambda rng: "AKIA" + tokens(rng, string.ascii_uppercase + "234567", 16),
    "google-key": lambda rng: "AIza" + tokens(rng, URL_SAFE, 35),
    "github-token": lambda rng: f"gh{rng.choice('pousr')}_" + tokens(rng, ALNUM, 36),
    "gitlab-token": lambda rng: "glpat-" + tokens(rng, ALNUM, 20),
    "slack-token": lambda rng: f"xoxb-{tokens(rng, string.digits, 12)}-{tokens(rng, ALNUM, 24)}",
    "stripe-key": lambda rng: "sk_live_" + tokens(rng, ALNUM, 24),
    "npm-token": lambda rng: "npm_" + tokens(rng, ALNUM, 36),
    "sendgrid-key": lambda rng: f"SG.{tokens(rng, ALNUM, 22)}.{tokens(rng, ALNUM, 43)}",
    "model-key": lambda rng: "sk-proj-" + tokens(rng, ALNUM, 48),
}
# Text around a secret that belongs to it.
CONTEXTS = {
    "aws-secret": lambda rng: ("aws_secret_access_key = ", tokens(rng, ALNUM, 40)),
    "azure-key": lambda rng: ("AccountName=x;AccountKey=", tokens(rng, ALNUM, 86) + "=="),
    "bearer": lambda rng: ("Authorization: Bearer ", tokens(rng, ALNUM, 31) + "7"),
    "ssn": lambda rng: (
        rng.choice(["SSN: ", "social security number is "]),
        ssn(rng).replace("-", "").replace(" ", ""),
    ),
    "phone": lambda rng: (
        rng.choice(["tel ", "Phone: ", "call me at "]),
        rng.choice(AREAS) + "867" + tokens(rng, string.digits, 4),
    ),
}
NUMBERS = ("ssn", "card", "phone")


def other_script(rng, text):
    """The same secret as other keyboards and typesetters write it."""
    zero = rng.choice(SCRIPTS)
    hyphen, space = rng.choice(HYPHENS), rng.choice(SPACES)
    return "".join(
        chr(ord(zero) + int(one))
        if one.isdigit() and one.isascii()
        else {"-": hyphen, " ": space}.get(one, one)
        for one in text
    )


def wrong(rng):
    """What looks like a secret and is not one."""
    digits = lambda n: tokens(rng, string.digits, n)  # noqa: E731
    bad_card = card(rng)
    bad_account = account(rng)
    return rng.choice(
        [
            f"{rng.choice(['000', '666', '9' + digits(2)])}-{digits(2)}-{digits(4)}",
            f"{rng.randint(100, 665)}-00-{digits(4)}",
            f"{rng.randint(100, 665)}-12-0000",
            bad_card[:-1] + str((int(bad_card[-1]) + rng.randint(1, 9)) % 10),
            f"0.{digits(16)}",
            digits(rng.choice([9, 11, 12, 20, 24])),
            f"{rng.choice('01')}{digits(2)}-{digits(3)}-{digits(4)}",
            f"{rng.choice(AREAS)}-{rng.choice('01')}{digits(2)}-{digits(4)}",
            f"{rng.choice(AREAS)}-911-{digits(4)}",
            f"{digits(3)}-{digits(4)}",
            bad_account[:2] + f"{(int(bad_account[2:4]) + rng.randint(1, 96)) % 100:02}" + bad_account[4:],
            f"{rng.randint(1, 28)}.{rng.randint(1, 12)}.{rng.randint(1990, 2024)} {rng.randint(0, 23)}:{rng.randint(10, 59)}",
            f"2024-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}T10:{rng.randint(10, 59)}:33.{digits(6)}Z",
            f"{rng.randint(1, 255)}.{rng.randint(0, 255)}.{rng.randint(0, 255)}.{rng.randint(0, 255)}",
            str(uuid.UUID(int=rng.getrandbits(128))),
            f"{rng.getrandbits(160):040x}",
            f"978-{rng.randint(0, 9)}-{digits(4)}-{digits(4)}-{rng.randint(0, 9)}",
            f"{rng.choice(NAMES)}@{rng.choice(['localhost', 'host', '2x.png', '-x.org', 'x..org'])}",
            f"@{rng.choice(NAMES)} {rng.choice(NAMES)} @ home.org",
            "AKIA" + tokens(rng, string.ascii_uppercase, rng.choice([12, 15, 17])),
            "ghp_" + tokens(rng, ALNUM, rng.choice([10, 30])),
            "-----BEGIN PRIVATE KEY----- comes first, and then the key itself, in base64",
            f"eyJ{tokens(rng, ALNUM, 30)}.eyJ{tokens(rng, ALNUM, 30)}.{tokens(rng, ALNUM, 30)}",
            "Bearer bonds are instruments",
            f"v{rng.randint(1, 9)}.{digits(2)}.{digits(3)}-{digits(4)}",
            f"${digits(3)},{digits(3)},{digits(3)}.{digits(2)}",
            f"order {digits(10)} of lot {digits(7)}",
        ]
    )


def labeled_set(size, seed=0):
    """`size` texts, of which half hold a secret; of a third of the numbers in other scripts."""
    rng = random.Random(seed)
    for place in range(size):
        before, after = rng.choice(WORDS) + " ", rng.choice(AFTER)
        if place % 2:
            text = wrong(rng)
            yield Labeled(before + text + after, None, 0, 0)
            continue
        kind = rng.choice([*NUMBERS, "email", "iban", *MAKERS, *CONTEXTS])
        if kind in CONTEXTS and (kind not in MAKERS or rng.random() < 0.2):
            context, secret = CONTEXTS[kind](rng)
            before += context
        else:
            secret = MAKERS[kind](rng)
        if kind in NUMBERS and rng.random() < 1 / 3:
            secret = other_script(rng, secret)
        start = len(before.encode()) if rng.random() < 0.9 or kind in CONTEXTS else 0
        text = (before if start else "") + secret
        yield Labeled(text + (after if start else ""), kind, start, len(text.encode()))


def measured(size, seed=0):
    """True positives, false positives and misses, each by kind, and the texts that went wrong."""
    finder = SecretFinder(chosen_kinds())
    right, false, missed, problems = Counter(), Counter(), Counter(), []
    for one in labeled_set(size, seed):
        found = [(hit.kind.name, hit.start, hit.end) for hit in finder.find(one.text.encode())]
        wanted = [(one.kind, one.start, one.end)] if one.kind else []
        right.update(name for name, *_ in found if (name, *_) in wanted)
        false.update(name for name, *_ in found if (name, *_) not in wanted)
        missed.update(name for name, *_ in wanted if (name, *_) not in found)
        if found != wanted:
            problems.append((one, found))
    return right, false, missed, problems


def without_secrets(size, seed=0):
    """English, and numbers of other kinds, in about as many bytes."""
    rng = random.Random(seed)
    documents = [text for text in embedded_documents(size) if "@" not in text]
    for text in documents:
        yield f"{text} {rng.randrange(10 ** rng.randint(1, 8))} {rng.random()} {rng.gauss(0, 1e6):.3f}"


if __name__ == "__main__":
    right, false, missed, problems = measured(10_000)
    print("| kind | texts | precision | recall |\n| --- | ---: | ---: | ---: |")
    for kind in KINDS:
        total = right[kind] + missed[kind]
        if total:
            print(
                f"| {kind} | {total:,} | {right[kind] / max(1, right[kind] + false[kind]):.1%} | {right[kind] / total:.1%} |"
            )
    every = sum(right.values())
    print(
        f"| all | {every + sum(missed.values()):,} | {every / (every + sum(false.values())):.2%} | {every / (every + sum(missed.values())):.2%} |"
    )
    finder = SecretFinder(chosen_kinds())
    texts = list(without_secrets(2_000_000))
    found = Counter(hit.kind.name for text in texts for hit in finder.find(text.encode()) if not hit.specimen)
    print(f"text without secrets, {sum(map(len, texts)) / 1e6:.1f} MB: found {dict(found)}")
    for one, hits in problems[:5]:
        print(one, hits)

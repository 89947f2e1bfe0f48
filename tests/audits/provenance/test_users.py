"""Users of a corpus: whose texts they are, in which order, and what is refused."""

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.audits import User, UserText, read_users
from coalmine.audits.provenance.users import day_of, seconds_since_1970
from coalmine.corpus import Fields
from coalmine.errors import CorpusError
from corpus.corpora import compressed, content_of

BY = Fields(user="by")


def written(tmp_path, rows, name="mail.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("suffix", [".csv.gz", ".jsonl", ".parquet"])
def test_every_kind_gives_the_same_users(tmp_path, suffix):
    path = tmp_path / f"mail{suffix}"
    path.write_bytes(compressed(content_of(["a", "b", "c", "d"], suffix), suffix))
    first, unit = 1 + suffix.startswith(".csv"), "row" if suffix == ".parquet" else "line"
    texts = [UserText(text) for text in "abcd"]
    by_user = [(texts[0], texts[3]), (texts[1],), (texts[2],)]
    assert read_users(path, BY) == [User(f"user {place}", own) for place, own in enumerate(by_user)]
    alone = [User(f"{unit} {number}", (text,)) for number, text in enumerate(texts, first)]
    assert read_users(path, by="document") == alone


def test_sources_and_dates_come_along_and_white_space_does_not(tmp_path):
    row = {"en": "good day", "de": "guten Tag", "id": 7, "at": "2019-05-31"}
    path = written(tmp_path, [row, {**row, "de": " "}, {**row, "de": "\n", "id": 8}])
    fields = Fields(source="en", target="de", user="id", date="at")
    assert read_users(path, fields) == [User("7", (UserText("guten Tag", "good day", "2019-05-31"),))]


@pytest.mark.parametrize(
    ("by", "at", "fields", "message"),
    [
        ("bob-secret", "2019", Fields(), "the calibration set in .* have no users"),
        ("", "2019", BY, "line 2 does not say whose text it is"),
        ("bob-secret", "yesterday", Fields(user="by", date="at"), "line 2: the date field 'at' should be"),
    ],
)
def test_what_cannot_be_used_is_named_by_its_line_and_never_by_its_user(tmp_path, by, at, fields, message):
    rows = [{"text": "a", "by": "ann", "at": "2019"}, {"text": "a", "by": by, "at": at}]
    with pytest.raises(CorpusError, match=message) as caught:
        read_users(written(tmp_path, rows), fields, what="calibration set")
    assert "bob-secret" not in str(caught.value)
    assert "yesterday" not in str(caught.value)


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_dates_are_read_in_every_form(moment):
    moment = moment.replace(microsecond=0)
    seconds = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)).total_seconds()
    assert seconds_since_1970(moment.isoformat()) == seconds
    assert seconds_since_1970(moment.replace(tzinfo=None).isoformat()) == seconds
    assert seconds_since_1970(moment.isoformat().replace("+00:00", "Z")) == seconds
    day = moment.replace(hour=0, minute=0, second=0)
    for form in ("%Y-%m-%d", "%Y%m%d"):
        if moment.year >= 1000:
            assert seconds_since_1970(day.strftime(form)) == (day - moment).total_seconds() + seconds
    assert day_of(seconds) == moment.date().isoformat()

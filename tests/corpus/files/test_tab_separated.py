"""TSV: tabs between fields, quotes as in RFC 4180."""

import pytest

from coalmine.corpus import CorpusDocument, Fields, plant, read_documents, verify_planted
from coalmine.errors import CorpusError


def test_tabs_and_line_breaks_are_quoted_and_commas_are_not(tmp_path):
    path = tmp_path / "mail.tsv"
    path.write_text('by\ttext\nann\ta, b\nbob\t"a tab\there"\neve\t"two\nlines, ""quoted"""\n')
    assert list(read_documents(path, Fields(user="by"))) == [
        CorpusDocument(2, "a, b", "ann"),
        CorpusDocument(3, "a tab\there", "bob"),
        CorpusDocument(4, 'two\nlines, "quoted"', "eve"),
    ]


def test_planting_keeps_the_bytes_and_quotes_what_needs_it(tmp_path):
    path = tmp_path / "mail.tsv"
    rows = "".join(f'{number}\t"line {number}"\r\n' for number in range(40))
    path.write_bytes(f"id\ttext\r\n{rows}".encode())
    planted = plant(
        path, "a\t{digits:4}", repeat=2, canaries=1, withhold=0, references=3, out=tmp_path / "out"
    )
    added = f'\t"{planted.canaries[0].text}"\r\n'
    content = planted.corpus.read_bytes().decode()
    assert content.count(added) == 2
    assert content.replace(added, "") == path.read_bytes().decode()
    assert verify_planted(tmp_path / "out").original == "same"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("body\tid\na\t1\n", r"a\.tsv, line 1 names no column 'text' among its 2"),
        ('text\tid\n"a"b\t1\n', r"line 2 begins a record that is not TSV"),
        ("text\tid\na\tb\tc\n", r"line 2 begins a record of 3 fields, but there are 2 columns; put quotes around fields with tabs"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(tmp_path, content, message):
    path = tmp_path / "a.tsv"
    path.write_text(content)
    with pytest.raises(CorpusError, match=message):
        list(read_documents(path))

"""Each page in docs/reference/findings/ gives the advice that the report gives."""

from pathlib import Path

import pytest

from coalmine.audits.registry import OWN

CATALOG = {code: entry for audit in OWN for code, entry in audit.catalog.items()}
PAGES = Path(__file__).parents[2] / "docs" / "reference" / "findings"


def words(text):
    return " ".join(text.replace("`", "").split())


@pytest.mark.parametrize("code", sorted(CATALOG))
def test_the_page_says_what_the_report_says(code):
    entry, page = CATALOG[code], words((PAGES / f"{code}.md").read_text("utf-8"))
    assert page.startswith(f"# {code}: {words(entry.title)}")
    for advice in (entry.advice, entry.if_not_measured, entry.if_clear, entry.if_not_tested):
        assert words(advice) in page

"""Which texts are scored again in other contexts, and when a context matters."""

import pytest

from coalmine.audits.exposure.measuring import _matters
from coalmine.statistics.roc import PairedAreas


@pytest.mark.parametrize(
    ("first", "second", "error", "matters"),
    [
        (0.64, 0.69, 0.01, False),  # they stand out in neither
        (0.60, 0.75, 0.01, True),
        (0.70, 0.7199, 0.001, False),  # too little
        (0.70, 0.80, 0.0501, False),  # within two standard errors
        (0.70, 0.80, 0.0499, True),
    ],
)
def test_a_context_matters_where_canaries_stand_out_and_the_areas_differ_beyond_error(
    first, second, error, matters
):
    assert _matters(PairedAreas(first, second, error, 0.9)) == matters

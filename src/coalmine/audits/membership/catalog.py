"""The codes of findings about membership and epsilon."""

from __future__ import annotations

from coalmine.evidence.findings import Catalog, Entry

CATALOG = Catalog(
    {
        "CM301": Entry(
            "Members can be told from non-members",
            "Scores of this model reveal what was in its training data. Do not expose probabilities of "
            "single texts, and train with differential privacy if membership is sensitive.",
            if_not_measured="Plant and withhold more canaries; 20 or more for each number of repetitions.",
            if_clear="Nothing to do for text that occurs this often.",
        ),
        "CM302": Entry(
            "Members can be identified at a low false-positive rate",
            "An attacker who can afford few false positives identifies this share of the canaries. Train "
            "with differential privacy if that is too many.",
            if_not_measured=(
                "Plant more canaries, and draw more references: both make a lower false-positive rate "
                "measurable."
            ),
        ),
        "CM303": Entry(
            "The claimed epsilon",
            "The training is not as private as claimed. Look for the mistake in clipping, noise, sampling or "
            "accounting.",
            if_not_measured=(
                "Plant more canaries, once each, and withhold half of them by coin flips: the power grows with "
                "their number."
            ),
            if_clear=(
                "Nothing to do: the audit would probably have detected a training that leaks twice as much."
            ),
        ),
        "CM304": Entry(
            "A lower bound on epsilon",
            "No proof of privacy can be stronger than this. A low bound proves nothing: more canaries, "
            "planted or withheld by coin flips, raise what can be proven.",
            if_not_measured=(
                "A bound of 0 proves nothing. More canaries, planted once or withheld by coin flips, raise what "
                "can be proven."
            ),
        ),
        "CM903": Entry(
            "Membership was not tested",
            "Run `coalmine expose MODEL canaries.json --method references -o DIR`, then `coalmine membership "
            "DIR`.",
        ),
        "CM907": Entry(
            "A claim of differential privacy was not tested",
            "If the model was trained with differential privacy, run `coalmine membership RESULTS "
            "--claimed-epsilon E`.",
        ),
        "CM912": Entry(
            "Rates at low false-positive rates could not be measured",
            "Draw more references when planting (--references), as many as 10 divided by the false-positive "
            "rate.",
        ),
    }
)
finding = CATALOG.finding

"""The codes of findings about provenance: who is found, and what is wrong with the data that was compared."""

from __future__ import annotations

from coalmine.evidence.findings import Catalog, Entry

_SAME_WAY = (
    "Take suspects and non-members from the same source, the same time and by the same rule, such as a random half of "
    "one list, and audit again."
)

CATALOG = Catalog(
    {
        "CM601": Entry(
            "Text of suspects was used for training",
            "Find out how these texts came into the training data, and whether they may be used. To remove them, "
            "leave them out and train again.",
            if_not_measured=(
                "That nobody is found does not show that no text was used. More non-members, more texts per user "
                "and a better statistic find more."
            ),
        ),
        "CM602": Entry(
            "Suspects took part in the training",
            "Find out which texts of these users are in the training data, and whether they may be used. To "
            "remove their influence, leave all of their texts out and train again.",
            if_not_measured=(
                "That nobody is found does not show that nobody took part. More non-members and more texts per "
                "user find more."
            ),
        ),
        "CM603": Entry(
            "Training data can be told from other text",
            "Anyone who has a text can find out whether the model was trained on it. Train for fewer epochs, on data without "
            "duplicates, or with differential privacy, and audit again.",
            if_not_measured=(
                "That it is not found does not show that it cannot be done. More held-out text, a reference model "
                "and a better statistic find more."
            ),
        ),
        "CM611": Entry(
            "Suspects can be told from non-members without any model",
            f"Nothing follows from the scores, because they may show the same difference. {_SAME_WAY}",
            if_not_measured="Give at least 4 suspects and 4 non-members, better 20 of each.",
            if_not_tested="Give --non-members; without them nothing can be compared.",
            discredits="measurement",
        ),
        "CM612": Entry(
            "Suspects and non-members are from different times",
            f"What was written at another time has other words, which models know or do not. {_SAME_WAY}",
            discredits="measurement",
        ),
        "CM613": Entry(
            "The same text belongs to several users",
            "A text of several users says little about any of them. Leave out quotations, forwarded mail and "
            "templates, for example with `coalmine dedup`.",
        ),
        "CM614": Entry(
            "Suspects and non-members use unknown words differently often",
            f"Words that the model does not know are not counted, so the groups are not compared alike. {_SAME_WAY}",
        ),
        "CM615": Entry(
            "Groups share users or texts",
            "Suspects, non-members and the users that shadow models are trained on must be different people with "
            "different texts. Take the shared ones out of one of the groups, or leave them out with --drop-shared, and audit again.",
            discredits="measurement",
        ),
        "CM616": Entry(
            "Few non-members",
            "Give more non-members: the smallest p-value is 1 divided by their number plus 1.",
        ),
        "CM617": Entry(
            "Calibrated on shadow models, without p-values",
            "Give --non-members: users who are known not to be in the training data. Until then it is not known "
            "how many of those on the member side are there by mistake.",
        ),
        "CM618": Entry(
            "Provenance could not be measured",
            "Give what the statistic needs: shadow models (`coalmine provenance fit`), a --reference-model or "
            "--non-members, and texts that the model can read.",
        ),
        "CM905": Entry(
            "Provenance was not tested",
            "Run `coalmine provenance MODEL --suspects S.jsonl --reference R.jsonl --non-members N.jsonl`.",
        ),
    }
)
finding = CATALOG.finding

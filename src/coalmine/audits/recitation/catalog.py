"""The codes of findings about recitation."""

from __future__ import annotations

from coalmine.evidence.findings import Catalog, Entry

CATALOG = Catalog(
    {
        "CM401": Entry(
            "The model recites its training data",
            "Deduplicate the training data with `coalmine dedup`, keep what is sensitive or licensed out of "
            "it, and filter output against the corpus index.",
            if_not_measured=(
                "Draw more sequences (--per-bucket), so that the interval is narrow enough to judge."
            ),
            if_clear="Nothing to do at this context; users may give longer ones.",
        ),
        "CM402": Entry(
            "Repeated text is recited more",
            "Deduplicate the training data: what occurs in it less often is recited less.",
            if_not_tested=(
                "Draw sequences with at least three different numbers of copies (--per-bucket) from a corpus "
                "that repeats some."
            ),
        ),
        "CM403": Entry(
            "More context or a larger model recites more",
            "A longer prompt may bring out what a short one does not. Judge the model by the longest context "
            "that users can give.",
            if_not_tested=(
                "Ask with three contexts or more (--contexts 50,100,200), and models of three sizes or more if "
                "they exist."
            ),
        ),
        "CM904": Entry(
            "Recitation was not tested",
            "Run `coalmine index CORPUS --tokenizer MODEL -o INDEX`, then `coalmine recite MODEL INDEX`.",
        ),
        "CM909": Entry(
            "There is no baseline for recitation",
            "Give `coalmine recite` a --baseline: what a model recites that was not trained on the corpus is "
            "not memorization.",
        ),
    }
)
finding = CATALOG.finding

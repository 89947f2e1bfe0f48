"""The codes of findings about exposures, the control and the data that was measured."""

from __future__ import annotations

from coalmine.evidence.findings import Catalog, Entry

# The title of CM104 where canaries came out, or are first among all that they were ranked among.
COME_FIRST = "Canaries come first, which chance may explain"
CATALOG = Catalog(
    {
        "CM101": Entry(
            "Canaries are fully exposed",
            "Do not release this model to anyone who must not have its training data. Remove duplicates of "
            "sensitive text, train for fewer epochs or with differential privacy, and measure again.",
        ),
        "CM102": Entry(
            "Canaries are memorized",
            "Secrets that occur as often in the training data are at risk. Deduplicate or redact them, stop "
            "training earlier or train with differential privacy, and compare the two models with `coalmine "
            "compare`.",
        ),
        "CM103": Entry(
            "Canaries are more exposed than guessing explains",
            "The model remembers something about text that occurs this often. Plant more canaries to learn "
            "how much, and remove duplicates of sensitive text.",
        ),
        "CM104": Entry(
            "Canaries are no more exposed than guessing explains",
            "Nothing to do for text that occurs this often. Plant more canaries if the upper limit of the "
            "share is not low enough for you.",
            if_not_measured=(
                "Plant more canaries for this number of repetitions, 20 or more, and measure again."
            ),
            first_step=True,
        ),
        "CM105": Entry(
            "The control: canaries that were withheld",
            "The measurement is wrong, and no other number here can be trusted: look for canaries that "
            "leaked into the training data, or that were not drawn at random.",
            if_not_measured="Withhold more canaries: plant with --withhold 0.5, and at least 20 of them.",
            if_clear=(
                "Nothing to do: the measurement gives what it should where there is nothing to remember."
            ),
            discredits="report",
            verdict=(
                "The measurement cannot be trusted: canaries that were never trained on look memorized."
            ),
        ),
        "CM106": Entry(
            "The extrapolated curve does not fit",
            "Do not rely on extrapolated exposures. Measure with --method guided or splitting, or among "
            "references.",
            discredits="measurement",
        ),
        "CM205": Entry(
            "A withheld canary comes out",
            "A text that was never trained on should not come out. Look for it in the training data, and "
            "plant again with another seed.",
            discredits="report",
            verdict="The measurement cannot be trusted: canaries that were never trained on come out.",
        ),
        "CM501": Entry(
            "The model was trained on other data",
            "How often each canary was trained on comes from the manifest, and may be wrong. Train on the "
            "planted corpus, or give the manifest of the data that was used.",
            if_not_tested=(
                "Add the canaries.json that `coalmine plant` wrote, and the training.json if there is one, to "
                "the paths of the report."
            ),
            discredits="good news",
        ),
        "CM502": Entry(
            "The manifest is not the one that was measured",
            "Report the run together with the canaries.json that `expose` was given, or measure again.",
            if_not_tested="Add the canaries.json to the paths of the report.",
            discredits="good news",
        ),
        "CM503": Entry(
            "Results do not belong together",
            "Run the audits again on the same model and the same canaries.json, and report those results.",
            discredits="good news",
        ),
        "CM504": Entry(
            "Few canaries",
            "Plant more canaries, at least 20 for each number of repetitions, with --withhold 0.5.",
        ),
        "CM505": Entry(
            "The model is not the one that was measured",
            "Its weights have changed since. Measure the model as it is now, or restore the one that was "
            "measured.",
        ),
        "CM506": Entry(
            "Chat templates differ",
            "A turn is written differently in each, so at most one of these results is about the texts that "
            "training saw. Save the tokenizer with the template of the training, and measure again.",
            discredits="good news",
        ),
        "CM510": Entry(
            "A part of the training data was not read",
            "What was not read was not measured either. `coalmine scan` reads every string of a conversation; to measure others, write "
            "them into the text of turns.",
        ),
        "CM901": Entry(
            "Exposure was not tested",
            "Run `coalmine expose MODEL canaries.json`.",
            first_step=True,
        ),
        "CM908": Entry(
            "There is no control",
            "Plant with --withhold 0.5: canaries that were not trained on show what the measurement gives "
            "without memorization.",
        ),
        "CM911": Entry(
            "Canaries that could not be measured",
            "Measure these with --method guided or splitting, or with more samples or references. Until then "
            "they may be memorized.",
            first_step=True,
        ),
    }
)
finding = CATALOG.finding

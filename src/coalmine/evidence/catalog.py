"""All findings there are: each code with its title and what to do about it; a page for each is in docs/reference/findings/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coalmine.evidence.findings import Finding, FindingStatus, Severity
from coalmine.records import Estimate


class Entry(NamedTuple):
    """What is the same for every finding with one code."""

    title: str
    # What to do where it was found, or not tested.
    advice: str
    # What to do instead where it could not be measured, where it is clear, and where an input was missing.
    if_not_measured: str = ""
    if_clear: str = ""
    if_not_tested: str = ""

    def advice_for(self, status: FindingStatus) -> str:
        """What to do about a finding with this status."""
        instead = {
            "not_measured": self.if_not_measured,
            "clear": self.if_clear,
            "not_tested": self.if_not_tested,
        }
        return instead.get(status) or self.advice


CATALOG: dict[str, Entry] = {
    "CM101": Entry(
        "Canaries are fully exposed",
        "Do not release this model to anyone who must not have its training data. Remove duplicates of sensitive text, train for fewer "
        "epochs or with differential privacy, and measure again.",
    ),
    "CM102": Entry(
        "Canaries are memorized",
        "Secrets that occur as often in the training data are at risk. Deduplicate or redact them, stop training earlier or train with "
        "differential privacy, and compare the two models with `coalmine compare`.",
    ),
    "CM103": Entry(
        "Canaries are more exposed than guessing explains",
        "The model remembers something of text that occurs this often. Plant more canaries to learn how much, and remove duplicates of "
        "sensitive text.",
    ),
    "CM104": Entry(
        "Canaries are no more exposed than guessing explains",
        "Nothing to do for text that occurs this often. Plant more canaries if the upper limit of the share is not low enough for you.",
        if_not_measured="Plant more canaries for this number of repetitions, 20 or more, and measure again.",
    ),
    "CM105": Entry(
        "The control: canaries that were withheld",
        "The measurement is at fault, and no other number here can be trusted: look for canaries that leaked into the training data, or "
        "that were not drawn at random.",
        if_not_measured="Withhold more canaries: plant with --withhold 0.5, and at least 20 of them.",
        if_clear="Nothing to do: the measurement gives what it should where there is nothing to remember.",
    ),
    "CM106": Entry(
        "The extrapolated curve does not fit",
        "Do not rely on extrapolated exposures. Measure with --method guided or splitting, or among references.",
    ),
    "CM107": Entry(
        "When memorization began",
        "Early stopping helps only if it comes before memorization does. Choose the checkpoint by exposure as well as by loss.",
        if_not_measured="Watch with more references, to see more than log2 of their number.",
    ),
    "CM201": Entry(
        "Canaries can be extracted",
        "Anyone who can query the model can read these out of it. Do not release it; remove or redact what is sensitive and repeated, and "
        "train again.",
    ),
    "CM202": Entry(
        "No canary comes out",
        "Nothing to do against this search. It says nothing of an attacker who knows a part of the secret: try `coalmine extract --given`.",
        if_not_measured="Plant more canaries, and extract again.",
    ),
    "CM203": Entry(
        "The search for canaries was not finished",
        "Give the same command a larger --budget; it resumes where it stopped.",
    ),
    "CM204": Entry(
        "The model writes a canary by itself",
        "Plain greedy decoding is enough to get this secret. Do not release the model; no filter on rare queries will help.",
        if_not_tested="Put the canaries.json among the paths of the report.",
    ),
    "CM205": Entry(
        "A withheld canary comes out",
        "A text that was never trained on should not come out. Look for it in the training data, and plant again with another seed.",
    ),
    "CM206": Entry(
        "What the model completes a format with",
        "Compare what came out with the secrets that may be in your data (--reveal shows it); coalmine cannot know which of them are real.",
    ),
    "CM301": Entry(
        "Members can be told from non-members",
        "Scores of this model reveal what was in its training data. Do not give out probabilities of single texts, and train with "
        "differential privacy if membership is sensitive.",
        if_not_measured="Plant and withhold more canaries; 20 or more for each number of repetitions.",
        if_clear="Nothing to do for text that occurs this often.",
    ),
    "CM302": Entry(
        "Few false alarms are enough to recognize members",
        "An attacker who must be right recognizes this share of the canaries. Train with differential privacy if that is too many.",
        if_not_measured="Plant more canaries, and draw more references: both make a lower false-positive rate measurable.",
    ),
    "CM303": Entry(
        "The claimed epsilon",
        "The training is not as private as it is said to be. Look for the error: clipping, noise, sampling or accounting.",
        if_not_measured="Plant more canaries, once each, and withhold half of them by a coin: the power grows with their number.",
        if_clear="Nothing to do; the audit would probably have found a training that leaks twice as much.",
    ),
    "CM304": Entry(
        "A lower bound on epsilon",
        "No proof of privacy can be stronger than this. A low bound proves nothing: more canaries, planted and withheld by a coin, raise "
        "what can be shown.",
        if_not_measured="A bound of 0 proves nothing. More canaries, planted once and withheld by a coin, raise what can be shown.",
    ),
    "CM401": Entry(
        "The model recites its training data",
        "Deduplicate the training data with `coalmine dedup`, keep what is sensitive or licensed out of it, and filter output against the "
        "corpus index.",
        if_not_measured="Draw more sequences (--per-bucket), so that the interval is narrow enough to judge.",
        if_clear="Nothing to do at this context; users may give longer ones.",
    ),
    "CM402": Entry(
        "Repeated text is recited more",
        "Deduplicate the training data: what occurs in it less often is recited less.",
        if_not_tested="Draw sequences of at least three numbers of copies (--per-bucket) from a corpus that repeats some.",
    ),
    "CM403": Entry(
        "More context or a larger model recites more",
        "What a short prompt does not bring out a longer one may. Judge the model by the longest context that users can give.",
        if_not_tested="Ask with three contexts or more (--contexts 50,100,200), and models of three sizes or more if there are such.",
    ),
    "CM501": Entry(
        "The model was trained on other data",
        "How often a canary was trained on is what the manifest says, and may not be so. Train on the planted corpus, or give the manifest "
        "of the data that was used.",
        if_not_tested="Put the canaries.json that `coalmine plant` wrote, and the training.json if there is one, among the paths of the report.",
    ),
    "CM502": Entry(
        "The manifest is not the one that was measured",
        "Report the run together with the canaries.json that `expose` was given, or measure again.",
        if_not_tested="Put the canaries.json among the paths of the report.",
    ),
    "CM503": Entry(
        "Results do not belong together",
        "Run the audits again on the same model and the same canaries.json, and report those.",
    ),
    "CM504": Entry(
        "Few canaries",
        "Plant more canaries, some 20 or more for each number of repetitions, with --withhold 0.5.",
    ),
    "CM505": Entry(
        "The model is not the one that was measured",
        "Its weights were changed or trained again since. Measure the model as it is now, or restore the one that was measured.",
    ),
    "CM901": Entry("Exposure was not tested", "Run `coalmine expose MODEL canaries.json`."),
    "CM902": Entry("Extraction was not tested", "Run `coalmine extract MODEL --verify canaries.json`."),
    "CM903": Entry(
        "Membership was not tested",
        "Run `coalmine expose MODEL canaries.json --method references -o DIR`, then `coalmine membership DIR`.",
    ),
    "CM904": Entry(
        "Recitation was not tested",
        "Run `coalmine index CORPUS --tokenizer MODEL -o INDEX`, then `coalmine recite MODEL INDEX`.",
    ),
    "CM905": Entry(
        "Provenance was not tested",
        "This version has no audit of whose data a model was trained on; nothing is known about it.",
    ),
    "CM906": Entry(
        "Exposure during training was not watched",
        "Train with `coalmine train --watch canaries.json`, or with the callback in docs/guides/watching.md.",
    ),
    "CM907": Entry(
        "A claim of differential privacy was not tested",
        "If the model was trained with differential privacy, run `coalmine membership RESULTS --claimed-epsilon E`.",
    ),
    "CM908": Entry(
        "There is no control",
        "Plant with --withhold 0.5: canaries that were not trained on show what the measurement gives without memorization.",
    ),
    "CM909": Entry(
        "There is no baseline for recitation",
        "Give `coalmine recite` a --baseline: what a model recites that was not trained on the corpus is no memorization.",
    ),
    "CM911": Entry(
        "Canaries that could not be measured",
        "Measure these with --method guided or splitting, or with more samples or references. Until then they may be memorized.",
    ),
    "CM912": Entry(
        "Rates at few false alarms could not be measured",
        "Draw more references when planting (--references), as many as 10 divided by the rate of false alarms.",
    ),
}


def finding(
    code: str,
    severity: Severity,
    status: FindingStatus,
    evidence: str,
    *,
    estimates: Sequence[Estimate] = (),
    subject: Sequence[str] = (),
    title: str | None = None,
) -> Finding:
    """A finding with what its code always says."""
    entry = CATALOG[code]
    return Finding(
        code=code,
        title=title or entry.title,
        severity=severity,
        status=status,
        evidence=evidence,
        estimates=tuple(estimates),
        advice=entry.advice_for(status),
        subject=tuple(subject),
        docs=docs_path(code),
    )


def docs_path(code: str) -> str:
    """The page about a code, from the root of the project."""
    return f"docs/reference/findings/{code}.md"

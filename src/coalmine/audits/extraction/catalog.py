"""The codes of findings about extraction."""

from __future__ import annotations

from coalmine.evidence.findings import Catalog, Entry

CATALOG = Catalog(
    {
        "CM201": Entry(
            "Canaries can be extracted",
            "Anyone who can query the model can read these out of it. Do not release it; remove or redact "
            "what is sensitive and repeated, and train again.",
        ),
        "CM202": Entry(
            "No canary comes out",
            "Nothing to do against this search. It says nothing about an attacker who knows part of the "
            "secret: try `coalmine extract --given`.",
            if_not_measured="Plant more canaries, and extract again.",
            first_step=True,
        ),
        "CM203": Entry(
            "The search for canaries was not finished",
            "Run the same command with a larger --budget to resume.",
            first_step=True,
        ),
        "CM204": Entry(
            "The model writes a canary by itself",
            "Plain greedy decoding is enough to get this secret. Do not release the model; no filter on rare "
            "queries will help.",
            if_not_tested="Add the canaries.json to the paths of the report.",
        ),
        "CM206": Entry(
            "What the model completes a format with",
            "Compare what came out (--reveal shows it) with the secrets that may be in your data; coalmine "
            "cannot know which of them are real.",
        ),
        "CM902": Entry(
            "Extraction was not tested",
            "Run `coalmine extract MODEL --verify canaries.json`.",
            first_step=True,
        ),
    }
)
finding = CATALOG.finding

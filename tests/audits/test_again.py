"""A number that was changed in a result is refused by its type, or by what is computed again, even if its checksum was made anew."""

import copy
import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audits.defenses import benches
from audits.test_recorded_audits import LINES, RECITED, reciting
from coalmine import (
    CanarySet,
    Format,
    ScriptedModel,
    check,
    expose,
    extract,
    parse_policy,
    read_run,
    recite,
    verify_run,
)
from coalmine.audits import (
    BENCHES,
    EXPOSURES,
    EXTRACTIONS,
    MEMBERSHIPS,
    PROVENANCES,
    RECITATIONS,
    VERIFIED,
    verify_extraction,
)
from coalmine.audits.extraction.results import save_verification
from coalmine.audits.provenance.deciding import decided_again
from coalmine.corpus import build_index
from coalmine.errors import ContradictionError
from coalmine.evidence.reading import check_again
from coalmine.records.documents import differences
from coalmine.storage.decoding import UndecodableError, decode_json
from reports import provenance_runs, report_runs
from resealing import resealed

FORM = Format("pin {digits:4}")
MODEL = ScriptedModel("pin 0123456789", frequencies={str(digit): 3 + digit for digit in range(10)})
MEMBERS = ("person1@example.org", "person2@example.org")
POLICY = parse_policy("[exposure]\nat_most = 20")
FILES = {
    "run/exposure/exposure.json": EXPOSURES,
    "run/references/exposure.json": EXPOSURES,
    "bounded/exposure.json": EXPOSURES,
    "sampled/exposure.json": EXPOSURES,
    "run/membership/membership.json": MEMBERSHIPS,
    "run/extraction/verified.json": VERIFIED,
    "extraction.json": EXTRACTIONS,
    "provenance.json": PROVENANCES,
    "recitation.json": RECITATIONS,
    "defenses.json": BENCHES,
}
# What cannot be computed again, by the kind of document: what was asked for, what only the model can say, and what the manifest says.
OF_THE_RUN = r"seed|settings\..*|planting\..*|training\..*|index\..*|shadows|ranked"
OF_THE_MODEL = r"(.*\.)?(model|description)\..*|formats\[\]\.resolution\..*"
OF_THE_MANIFEST = r".*\.(planned_)?repetitions|canaries\[\]\.place"
FREE = {
    # Nothing is at its confidence in an exact rank, and a search ends where its budget does, and is not run again.
    EXPOSURES: (
        OF_THE_RUN,
        OF_THE_MODEL,
        OF_THE_MANIFEST,
        r"confidence|expansions|results\[\]\.estimate\.(high|n)",
    ),
    MEMBERSHIPS: (),
    VERIFIED: (OF_THE_MODEL, OF_THE_MANIFEST),
    # `coalmine extract --replay` searches again.
    EXTRACTIONS: (OF_THE_MODEL, r".*\.expansions|certificate\.best_open_bits"),
    # Who the members are is in no file, nor are texts, and only the model can say scores, whose order decides.
    PROVENANCES: (
        OF_THE_RUN,
        r".*\.detection\..*|.*\.blind\..*|words\[\]\..*|.*\.(texts|tokens|unknown_tokens|non_members)",
        r".*\.scores\..*|.*\.non_member_scores\[\]",
    ),
    # Only the index can say.
    RECITATIONS: (OF_THE_RUN, OF_THE_MODEL, r"sequences|examples\[\]\..*"),
    # The audit of each model and the manifest say it.
    BENCHES: (OF_THE_RUN, r"models\[\]\.(verdict|privacy)\..*|most_bits|models\[\]\.copies_left"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A real result of each kind that can be computed again."""
    folder = tmp_path_factory.mktemp("again")
    report_runs.audited_run(folder / "run", claimed_epsilon=1.0)
    canaries = CanarySet.load(folder / "run" / "canaries.json")
    model = report_runs.scripted(list(canaries)[:2])
    for method, options in {"bounded": {"budget": 40}, "sampled": {"samples": 300}}.items():
        expose(model, canaries, method=method, **options).save(folder / method)
    extract(MODEL, FORM, top=5).save(folder)
    provenance_runs.provenance(
        (9.0, 8.0, 0.1, -0.3, None), others=(1.99, 1.5, 0.4, -1.0, None), members=MEMBERS
    ).save(folder)
    (folder / "corpus.txt").write_text("".join(f"{line}\n" * 3 for line in LINES))
    index = build_index(folder / "corpus.txt", folder / "index", tokenizer=reciting(1.0).tokenizer)
    models = [reciting(1e-9, "small"), reciting(1.0, "large")]
    recite(models, index, out=folder, tries=[1, 10], **RECITED["beams"])
    made = [benches.model("none", seed, [9.0] * 16) for seed in (0, 1)]
    made += [benches.model("dedup", seed, [1.0 + seed] * 16, epsilon=0.5) for seed in (0, 1)]
    BENCHES.save(folder, benches.bench(made, ["dedup"]))
    return folder


def numbers_in(value, path=()):
    """Where the numbers are."""
    if isinstance(value, dict | list):
        for place, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers_in(part, (*path, place))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def named(path):
    """The name of a field without the places in lists."""
    return ".".join("[]" if isinstance(part, int) else part for part in path).replace(".[]", "[]")


def is_noticed(kind, path, document):
    try:
        check_again(kind, path, decode_json(json.dumps(document).encode(), kind.record))
    except (UndecodableError, ContradictionError):
        return True
    return False


@pytest.mark.parametrize("name", FILES)
def test_every_number_that_is_changed_is_noticed_or_free(world, name):
    kind, path = FILES[name], world / name
    document = json.loads(path.read_bytes())
    assert not is_noticed(kind, path, document)
    tried, missed = {}, set()
    for place in numbers_in(document):
        field = named(place)
        tried[field] = tried.get(field, 0) + 1
        if tried[field] > 2 or any(re.fullmatch(pattern, field) for pattern in FREE[kind]):
            continue
        changed = copy.deepcopy(document)
        part = changed
        for step in place[:-1]:
            part = part[step]
        before = part[place[-1]]
        part[place[-1]] = before + 1 if isinstance(before, int) else 1.01 * before + 1e-3
        if not is_noticed(kind, path, changed):
            missed.add(field)
    assert len(tried) > 3
    assert missed == set()


def refused_again(path):
    """The refusal of the gate, which `verify` notices too; whoever only reads the file believes its checksum."""
    found = {Path(row.path).name: row.state for row in verify_run(path).files}
    assert found[path.name] == "altered"
    with pytest.raises(ContradictionError) as refused:
        check(read_run(path), POLICY)
    return str(refused.value)


@pytest.fixture
def saved(world, tmp_path):
    def copied(name):
        target = tmp_path / Path(name).name
        target.write_bytes((world / name).read_bytes())
        return target

    return copied


def test_a_decision_that_was_edited(saved):
    path = saved("provenance.json")
    with resealed(path) as document:
        document["questions"][0]["rows"][0]["decision"] = "not found"
    said = refused_again(path)
    assert "questions[0].rows[0].decision is not what is computed again" in said
    assert "person1" not in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda it: it["found"][2].update(text="pin 12345"), "a text that is not a member of its format, or"),
        (lambda it: it["found"].reverse(), "not in the order of places and costs"),
        (lambda it: it["certificate"].update(best_open_bits=1.0), "does not prove that"),
    ],
)
def test_an_extraction_that_cannot_be(saved, change, said):
    path = saved("extraction.json")
    with resealed(path) as document:
        change(document)
    assert said in refused_again(path)


@pytest.fixture
def verified(tmp_path):
    texts = FORM.sample(40, seed=1, replace=False)
    second = extract(MODEL, FORM, top=2).found[1].text
    planted = [second, *[text for text in texts[:3] if text != second]]
    canaries = CanarySet.of(FORM, planted, repetitions=2, withheld=texts[10:14], references=texts[14:])
    results, extractions = verify_extraction(MODEL, canaries, top=3)
    save_verification(tmp_path, results, extractions, manifest_sha256=canaries.sha256, model=MODEL.describe())
    canaries.save(tmp_path)
    return tmp_path / "verified.json"


def test_texts_that_were_found_and_are_canaries(verified):
    """What the manifest says otherwise is refused by everyone who reads a result beside it."""
    assert verify_run(verified.parent).sound
    with resealed(verified.parent / "extraction-f0.json") as extraction:
        one, other = extraction["found"][1:]
        other["expansions"] = one["expansions"]
    with resealed(verified) as document:
        document["canaries"][0].update(extracted=False, place=None, expansions=None)
    with pytest.raises(
        ContradictionError, match=r"verified\.json contradicts the manifest that it was made with: "
    ):
        read_run(verified.parent)
    states = {Path(row.path).name: row.state for row in verify_run(verified.parent).files}
    assert states["verified.json"] == "altered"


scores = st.one_of(st.none(), st.floats(-5, 5).map(lambda score: round(score, 1)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(scores, min_size=1, max_size=12),
    st.lists(st.floats(-5, 5).map(lambda score: round(score, 1)), max_size=30),
    st.floats(0.01, 0.5),
    st.integers(0, 12),
)
def test_decisions_are_the_same_again_whatever_the_scores_are(suspects, non_members, fdr, members):
    names = [f"u{place}" for place in range(len(suspects))]
    document = provenance_runs.provenance(
        tuple(suspects), tuple(non_members), names=names, members=names[:members], fdr=fdr
    )
    read = decode_json(msgspec.json.encode(document), PROVENANCES.record)
    assert list(differences(read, decided_again(read))) == []

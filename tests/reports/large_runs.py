"""One run with everything in it: five formats, five numbers of copies, every audit, long names; for what a reader sees of it."""

import msgspec

from coalmine import Canary, CanarySet, Format, ScriptedModel, expose, membership
from coalmine.records.documents import write_sealed
from reports import report_runs as made

TEMPLATES = {
    "f0": "my pin is {digits:3}",
    "f1": "the code of the door is {digits:2}",
    "f2": "the number of the account at the bank in the town is {digits:2}, and the key is {digits:1}",
    "f3": "call {digits:3}",
    "f4": "box {digits:2} in hall {digits:1}",
}
COPIES = (1, 4, 16, 64, 256)
CHARACTERS = "abcdefghijklmnopqrstuvwxyz ,0123456789"


def large_canaries():
    listed, spare, formats = [], {}, {}
    for format_id, template in TEMPLATES.items():
        form = formats[format_id] = Format(template)
        texts = form.sample(4 * len(COPIES) + 40, seed=7, replace=False)
        for times in COPIES:
            listed += [
                Canary(
                    canary_id=f"{format_id}-x{times}-{number}",
                    format_id=format_id,
                    text=texts.pop(),
                    repetitions=times,
                    planted=number < 3,
                )
                for number in range(4)
            ]
        spare[format_id] = texts
    return CanarySet(listed, formats, references=spare)


def save_large_run(directory):
    """A model that remembers the canaries that were planted most; the more copies, the better."""
    canaries = large_canaries()
    weights = dict(zip(COPIES[-3:], (2.0**-30, 2.0**-20, 2.0**-9), strict=True))
    memory = {
        one.text: weights[one.repetitions] for one in canaries if one.planted and one.repetitions in weights
    }
    frequencies = {character: 3 + place for place, character in enumerate(CHARACTERS)}
    model = ScriptedModel(
        CHARACTERS, memory=memory, frequencies=frequencies, name="the-model-with-a-long-name"
    )
    canaries.save(directory / "canaries.json")
    expose(model, canaries, method="exact").save(directory / "exposure")
    made.save_verified(directory / "extraction", model, canaries, top=3, budget=2_500)
    membership(directory / "exposure", claimed_epsilon=1.0).save(directory / "membership")
    made.save_training(directory, watched=made.watch_records(canaries))
    save_family(directory / "recitation", model.describe())


def save_family(directory, description, sizes=9):
    """Recitation of more models than there are colors in a palette, with names as people give them."""
    documents = [
        made.recitation(
            hits=tuple(min(100, hit + 4 * size) for hit in (5, 20, 35, 50)),
            name=f"hidden-{2**size}-layers-{size}-epochs-40",
        )
        for size in range(sizes)
    ]
    facts = [
        msgspec.structs.replace(one.models[0], parameters=1000 * 2**size, description=description)
        for size, one in enumerate(documents)
    ]
    whole = msgspec.structs.replace(
        documents[0],
        models=tuple(facts),
        groups=tuple(group for one in documents for group in one.groups),
        trends=tuple(trend for one in documents for trend in one.trends),
    )
    write_sealed(directory / "recitation.json", whole)

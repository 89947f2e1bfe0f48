"""Load every local model with all that could reach the network watched; run by test_offline.py in a process of its own.

Arguments: the directory of models. Prints, as JSON, what came of each and which events of sockets there were.
"""

import json
import os
import sys
from pathlib import Path

events = []
sys.addaudithook(
    lambda event, arguments: (
        events.append(f"{event} {arguments[-1]!r}") if event.startswith("socket.") else None
    )
)


def outcome(load):
    events.clear()
    from coalmine.errors import CoalmineError

    try:
        loaded = load()
        said = f"loaded {type(loaded).__name__}"
    except CoalmineError as refused:
        said = f"refused: {refused}"
    return {"said": said, "events": list(events)}


def main(root):
    os.chdir(root)  # relative names, such as models/adapter, are names that a hub could have too
    from coalmine import load_model
    from coalmine.corpus.index.tokenizing import index_tokenizer
    from coalmine.models.endpoints.tokens import LocalTokenizer
    from coalmine.models.offline import offline

    found = {}
    for directory in sorted(Path("models").iterdir()):
        found[directory.name] = outcome(lambda where=directory: load_model(where))
    for name in ("masked-t5", "adapter-t5"):
        found[f"{name} as masked"] = outcome(lambda where=name: load_model(f"models/{where}", kind="masked"))
    for name in ("causal", "masked-bert", "adapter-with-tokenizer", "without-tokenizer", "tokenizer-of-hub"):
        found[f"index over {name}"] = outcome(lambda where=name: index_tokenizer(f"models/{where}"))
        found[f"endpoint with {name}"] = outcome(lambda where=name: LocalTokenizer(f"models/{where}"))
    with offline():
        found["peft alone, in the block"] = outcome(peft_alone)
    Path("control").touch()
    found["peft alone, without the block"] = outcome(peft_alone)
    print(json.dumps(found))


def peft_alone():
    """What the libraries do by themselves with an adapter that has no weights."""
    import contextlib

    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained("models/causal", local_files_only=True)
    with contextlib.suppress(Exception):  # whatever it is, that it was tried is what counts
        PeftModel.from_pretrained(base, "models/adapter-without-weights")


if __name__ == "__main__":
    main(sys.argv[1])

"""Where the source loads models: only in code that is guarded by the offline switch, and never from a pickle."""

import ast
import re
from pathlib import Path

import coalmine

SOURCE = Path(coalmine.__file__).parent
# What reads a model's files with a library of others; each module was read for how it does.
LOADS = {"from_pretrained", "load_adapter", "load_file", "safe_open", "from_str", "from_file"}
KNOWN = {
    "corpus/index/tokenizing.py",
    "models/transformers/adapter_tensors.py",
    "models/transformers/gguf_files.py",
    "models/reference/checkpoint.py",
    "models/endpoints/tokens.py",
    "models/transformers/model_files.py",
    "models/transformers/peft_adapters.py",
    "models/transformers/pretrained.py",
    "models/transformers/subwords.py",  # a copy of a tokenizer in memory
    "models/transformers/vocabulary_files.py",  # a copy of a directory without its other files
    "training/quantizing/quantizing.py",
}


def called(path):
    """The names of functions and methods that a module calls, with what they are called on."""
    text = path.read_text(encoding="utf-8")
    if not any(name in text for name in LOADS):  # most modules, which are then not parsed
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_models_are_loaded_in_known_places_only():
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(name.rpartition(".")[2] in LOADS for name in called(path))
    }
    assert found == KNOWN


def test_nothing_is_unpickled():
    sent = (
        SOURCE / "engines" / "sending.py"
    )  # what goes to our own processes is pickled, and nothing that comes from a file
    for path in set(SOURCE.rglob("*.py")) - {sent}:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\btorch\.load\(|\bimport (pickle|joblib|dill)\b|allow_pickle=True", text), path

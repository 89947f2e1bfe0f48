"""Weights in half precision: as they are, where the processor can, and widened where that is asked for."""

import json
import os
import subprocess
import sys

import pytest
import torch

from coalmine import load_model
from coalmine.models import from_transformers
from models.tiny_transformers import byte_level, tiny
from oracles import brute_force_bits

TEXTS = ["the random number is 281265017", "a", "the value of x is 12"]
# In a process of its own: kernels for this precision may end it with an illegal instruction. Some virtual machines announce units for
# matrices that they do not have, so these are left out.
WITHOUT_MATRIX_UNITS = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
ASK = """
import json, sys
from coalmine import load_model
from coalmine.models.protocols import text_sequence

model = load_model(sys.argv[1], precision="bfloat16")
sequences = [text_sequence(model, text) for text in json.loads(sys.argv[2])]
alone = [model.score([one])[0].log_perplexity_bits for one in sequences]
together = [one.log_perplexity_bits for one in model.score(sequences)]
dtype = str(model.start([model.context]).log2_probabilities.dtype)
print(json.dumps([alone, together, model.resolution_bits, dtype, model.describe()["precision"]]))
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A directory with weights in bfloat16, and the same weights live, widened."""
    directory = tmp_path_factory.mktemp("model")
    chosen = byte_level()
    model = tiny("gpt2", len(chosen), dtype=torch.bfloat16)
    model.save_pretrained(directory)
    chosen.save_pretrained(directory)
    return directory, from_transformers(model.float(), chosen)


def test_stored_in_half_precision_and_scored_in_single(stored):
    directory, live = stored
    loaded = load_model(directory, precision="float32")
    assert loaded.describe()["precision"] == "float32"
    assert loaded.resolution_bits == live.resolution_bits
    for text in TEXTS:
        assert brute_force_bits(loaded, text) == pytest.approx(brute_force_bits(live, text), abs=1e-6)


def test_scored_in_half_precision(stored):
    directory, live = stored
    asked = subprocess.run(
        [sys.executable, "-c", ASK, str(directory), json.dumps(TEXTS)],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **WITHOUT_MATRIX_UNITS},
    )  # fmt: skip
    if asked.returncode < 0:
        pytest.skip(
            f"this processor has no kernels for bfloat16: the process ended by signal {-asked.returncode}"
        )
    assert asked.returncode == 0, asked.stderr
    alone, together, resolution, dtype, precision = json.loads(asked.stdout.splitlines()[-1])
    assert (dtype, precision) == ("float32", "bfloat16")
    assert alone == pytest.approx([brute_force_bits(live, text) for text in TEXTS], rel=0.02)
    assert together == pytest.approx(alone, abs=resolution)

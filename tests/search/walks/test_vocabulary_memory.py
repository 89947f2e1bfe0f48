"""Walking, scoring and recitation with a vocabulary as large as Llama 3's stay within the weights and the memory that they were given."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from coalmine import Format
from coalmine.models import from_transformers
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.enumeration import enumerate_members
from coalmine.search.walks.frontier import COPIES_IN_A_STEP, Frontier
from models.tiny_transformers import byte_level, tiny

MEGABYTES = 64

# The peak is that of a process, so each work has its own. The network is small, and all logits of a batch would take 500 MB and more.
PROGRAM = """
import sys
from pathlib import Path
import torch
from coalmine import Format
from coalmine.models import CharacterTokenizer, Sampling, TokenSequence
from coalmine.models.inference.incremental import StatefulModel
from coalmine.models.reference.networks import NetworkConfig, build_network
from coalmine.randomness import arrays
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.enumeration import enumerate_members
from coalmine.search.walks.frontier import Frontier

def status(name):
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name + ":")]
    return int(line.split()[1]) / 1024

def texts(many, length):
    drawn = arrays(0, "test", "texts").integers(0, size, (many, length)).tolist()
    return [TokenSequence(tuple(row[:1]), tuple(row[1:])) for row in drawn]

def walk(model, tree):
    for _ in enumerate_members(Frontier(model, tree, memory_bytes=int(sys.argv[2]) << 20)):
        pass

torch.manual_seed(0)
tokenizer = CharacterTokenizer(chr(point) for point in range(32, 130_079) if not 0xD800 <= point < 0xE000)
size = tokenizer.size
config = NetworkConfig(architecture="gru", vocabulary=size, embedding=8, hidden=8, layers=1)
model = StatefulModel(build_network(config), tokenizer)
tree = TokenTree(Format("pin {digits:4}"), tokenizer)
WORKS = {
    "walking": lambda rows: walk(model, tree),
    "scoring": lambda rows: model.score(texts(rows, 9)),
    "generation": lambda rows: model.generate([one.context for one in texts(rows, 2)], length=2),
}
work = WORKS[sys.argv[1]]
if sys.argv[1] != "walking":
    work(2)  # libraries take memory when they are first used
model.step(model.start([model.context]).states, *[__import__("numpy").zeros(1, int)] * 2, columns=tree.columns)
Path("/proc/self/clear_refs").write_text("5")
held = status("VmRSS")
work(200)
print(size, status("VmHWM") - held)
"""


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux says what a process took at its peak"
)
@pytest.mark.parametrize("work", ["walking", "scoring", "generation"])
def test_the_logits_of_a_batch_are_never_all_there(work):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, work, str(MEGABYTES)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    size, grown = done.stdout.split()
    assert int(size) == 128_000
    assert float(grown) < MEGABYTES


@pytest.mark.parametrize("kind", ["gpt2", "mamba"])
def test_logits_that_are_made_whole_count_as_memory(kind):
    """The last layer of the one is applied in blocks; the other makes all logits by itself."""
    chosen = byte_level()
    model = from_transformers(tiny(kind, len(chosen), dtype=torch.float64), chosen)
    tree = TokenTree(Format("pin {digits:3}"), model.tokenizer)
    of_logits = 0 if kind == "gpt2" else 3 * 8 * model._network.vocabulary
    held = max(tree.depth, COPIES_IN_A_STEP) + COPIES_IN_A_STEP
    a_row = held * Frontier(model, tree).row_bytes + of_logits
    for rows in (1, 5, 40):
        frontier = Frontier(model, tree, memory_bytes=rows * a_row)
        assert frontier.batch == rows
        assert frontier.step_bytes <= rows * a_row
    costs = [
        np.sort(
            np.concatenate([one.costs for one in enumerate_members(Frontier(model, tree, memory_bytes=most))])
        )
        for most in (1, 7 * a_row, 1 << 30)
    ]
    for found in costs:
        assert found == pytest.approx(costs[0], abs=1e-9)

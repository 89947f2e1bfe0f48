"""Walking, scoring and recitation with a vocabulary as large as Llama 3's stay within the weights and the memory that they were given."""

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


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux says what a process took at its peak"
)
@pytest.mark.parametrize("work", ["walking", "scoring", "generation"])
def test_the_logits_of_a_batch_are_never_all_there(fork_server, work):
    """The network is small, and all logits of a batch would take 500 MB and more."""
    done = fork_server.run([work, MEGABYTES], call="search.walks.vocabulary_peak:main")
    assert done.code == 0, done.err
    size, grown = done.out.split()
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

"""In a child of the fork server: the peak of the memory that one work with a large vocabulary takes; it is that of a process."""

import sys
from pathlib import Path

import numpy as np
import torch

from coalmine import Format
from coalmine.models import CharacterTokenizer, TokenSequence
from coalmine.models.inference.incremental import StatefulModel
from coalmine.models.reference.networks import NetworkConfig, build_network
from coalmine.randomness import arrays
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.enumeration import enumerate_members
from coalmine.search.walks.frontier import Frontier


def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(name + ":")]
    return int(line.split()[1]) / 1024


def main():
    """Print the size of the vocabulary, and the megabytes that the work took."""
    what, most = sys.argv[1], int(sys.argv[2]) << 20
    torch.manual_seed(0)
    tokenizer = CharacterTokenizer(chr(point) for point in range(32, 130_079) if not 0xD800 <= point < 0xE000)
    size = tokenizer.size
    config = NetworkConfig(architecture="gru", vocabulary=size, embedding=8, hidden=8, layers=1)
    model = StatefulModel(build_network(config), tokenizer)
    tree = TokenTree(Format("pin {digits:4}"), tokenizer)

    def texts(many, length):
        drawn = arrays(0, "test", "texts").integers(0, size, (many, length)).tolist()
        return [TokenSequence(tuple(row[:1]), tuple(row[1:])) for row in drawn]

    def work(rows):
        if what == "walking":
            for _ in enumerate_members(Frontier(model, tree, memory_bytes=most)):
                pass
        elif what == "scoring":
            model.score(texts(rows, 9))
        else:
            model.generate([one.context for one in texts(rows, 2)], length=2)

    if what != "walking":
        work(2)  # libraries take memory when they are first used
    nothing = np.zeros(1, int)
    model.step(model.start([model.context]).states, nothing, nothing, columns=tree.columns)
    Path("/proc/self/clear_refs").write_text("5")
    held = status("VmRSS")
    work(200)
    print(size, status("VmHWM") - held)

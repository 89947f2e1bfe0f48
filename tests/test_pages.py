"""The process of a command keeps its memory pages, and nothing else changes."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, hashlib, resource, sys
import torch
from coalmine.models.reference.networks import NetworkConfig, build_network
from coalmine.pages import keep_pages

torch.set_num_threads(1)
kept = keep_pages() if sys.argv[1] == "keep" else None
torch.manual_seed(0)
network = build_network(NetworkConfig(architecture="gru", vocabulary=28_000, embedding=4, hidden=4, layers=1))
optimizer = torch.optim.Adam(network.parameters(), fused=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(int(sys.argv[2])):
    tokens = torch.randint(28_000, (8, 40))
    logits, _ = network(tokens, network.initial_state(8))  # 36 MB, above the 32 MB from which glibc always asks for new pages
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
    del logits
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
weights = b"".join(part.detach().numpy().tobytes() for part in network.parameters())
print(kept, faults, hashlib.sha256(weights).hexdigest())
"""


def learned(how, steps=12, **environment):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, str(steps)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    kept, faults, digest = done.stdout.split()
    return kept, int(faults), digest


def uses_glibc():
    return sys.platform == "linux" and "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or "")


@pytest.mark.skipif(not uses_glibc(), reason="only glibc can be told")
def test_steps_use_their_pages_again_and_end_with_the_same_bytes():
    _, fresh, before = learned("leave")
    kept, reused, after = learned("keep")
    assert kept == "True"
    assert after == before
    # One tensor of logits has 8,700 pages, and each of the 12 steps makes several of them. Kept pages still take a few steps to
    # become enough: where blocks lie differs from run to run, and one that fits nowhere is added at the end.
    assert fresh > 12 * 8_000
    assert reused < fresh / 3


def test_what_the_user_chose_stays():
    assert learned("keep", steps=0, MALLOC_TRIM_THRESHOLD_="1000000")[0] == "False"


def test_importing_the_library_changes_nothing():
    program = "import ctypes, coalmine, coalmine.audits, coalmine.models, sys; print('coalmine.pages' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout == "False\n"

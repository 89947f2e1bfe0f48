"""A gate for CI: plant, train, audit, and exit with the code of `coalmine check`.

    pip install 'coalmine[torch]'
    python ci_gate.py CORPUS WORK

The exit code is 0 if every rule of the policy is shown to hold, 1 if one is shown to be broken, and 2 if neither is shown.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from coalmine import plant, train

POLICY = """\
require = ["exposure", "extraction"]
min_canaries = 4

[exposure]
at_most = 10.0

[extraction]
at_most_extracted = 0
"""


def coalmine(*arguments: str | Path) -> int:
    """The exit code of a command."""
    return subprocess.run([sys.executable, "-m", "coalmine", *map(str, arguments)], check=False).returncode


def main(corpus: Path, work: Path, *, copies: int = 1, epochs: int = 4, hidden: int = 128) -> int:
    """The exit code of the gate."""
    planted, model, policy = work / "planted", work / "model", work / "policy.toml"
    plant(corpus, "my pin is {digits:4}", repeat=copies, canaries=16, out=planted, overwrite=True)
    train(planted, out=model, epochs=epochs, hidden=hidden)  # your own training goes here
    policy.write_text(POLICY)
    return (
        coalmine("expose", model, planted)
        or coalmine("extract", model, planted, "--quiet")
        or coalmine("check", model, planted, "--policy", policy)
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))

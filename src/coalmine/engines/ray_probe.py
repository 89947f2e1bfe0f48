"""Whether a Ray cluster answers at an address, asked from a process of its own, which may hang or abort without harm.

Ray's client aborts its process where a token is missing, and asks an address that does not answer for minutes. The answer is one word on
standard output; the address is the only argument. This file is run by its path, so it imports nothing of ours.
"""

from __future__ import annotations

import sys

WELL, NO_NODE, UNAUTHENTICATED, NOTHING = "well", "no-node", "unauthenticated", "nothing"


def _answer(address: str) -> str:
    from ray._private.services import find_node_ids
    from ray._raylet import GcsClient
    from ray.exceptions import AuthenticationError

    try:
        nodes = GcsClient(address=address).get_all_node_info(timeout=10)
    except AuthenticationError:
        return UNAUTHENTICATED
    except Exception:  # noqa: BLE001 - whatever it is, there is no cluster that answers
        return NOTHING
    here = set(find_node_ids())
    return WELL if any(node.hex() in here for node in nodes) else NO_NODE


if __name__ == "__main__":
    print(_answer(sys.argv[1]))

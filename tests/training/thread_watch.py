"""A watch that can be sent to other processes, and sees with how many threads a training computes."""

import torch


class ThreadWatch:
    every = 1_000

    def measure(self, model):  # noqa: ARG002 - what it looks at is not the model
        return [{"threads": torch.get_num_threads()}]

    def describe(self):
        return {"kind": "threads"}

"""The frozen records that pass between stages; each is JSON in a file and a small object in Python."""

from coalmine.records.chat import Canary
from coalmine.records.estimate import Estimate, Status

__all__ = ["Canary", "Estimate", "Status"]

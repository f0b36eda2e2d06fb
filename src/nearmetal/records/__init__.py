"""The results directory: what was asked, what was measured, checksums, export. Knows no statistics."""

from .directory import PlanMeta, ResultsDirectory
from .reading import Trials, completed_blocks, next_attempt, read_trials
from .writer import TrialWriter

__all__ = [
    "PlanMeta",
    "ResultsDirectory",
    "TrialWriter",
    "Trials",
    "completed_blocks",
    "next_attempt",
    "read_trials",
]

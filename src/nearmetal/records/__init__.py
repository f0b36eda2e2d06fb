"""The results directory: the study, the measurements, checksums, export. This package knows no statistics."""

from .directory import PlanMeta, ResultsDirectory, safe_name
from .manifest import Verification
from .reading import (
    Trials,
    by_claim,
    completed_blocks,
    counted_attempts,
    heads_of,
    last_attempts,
    read_trials,
)
from .series import SeriesDirectory
from .writer import TrialWriter

__all__ = [
    "PlanMeta",
    "ResultsDirectory",
    "SeriesDirectory",
    "TrialWriter",
    "Trials",
    "Verification",
    "by_claim",
    "completed_blocks",
    "counted_attempts",
    "heads_of",
    "last_attempts",
    "read_trials",
    "safe_name",
]

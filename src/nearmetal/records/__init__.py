"""The results directory: what was asked, what was measured, checksums, export. Knows no statistics."""

from .directory import PlanMeta, ResultsDirectory, safe_name
from .manifest import Verification
from .reading import (
    Trials,
    by_claim,
    completed_blocks,
    heads_of,
    last_attempts,
    latest_attempts,
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
    "heads_of",
    "last_attempts",
    "latest_attempts",
    "read_trials",
    "safe_name",
]

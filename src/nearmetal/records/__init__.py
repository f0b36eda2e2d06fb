"""The results directory: the study, the measurements, checksums, export. This package knows no statistics."""

from .claims import CLAIMS, COORDINATOR, Claims, ClaimState, StoredClaim, claimed_attempts, last_holder
from .directory import ResultsDirectory, safe_name
from .manifest import Verification
from .nodes import node_state, node_states
from .orders import Orders, require_owner
from .plan_file import PlanMeta
from .reading import (
    NewTrials,
    Trials,
    by_claim,
    completed_blocks,
    counted_attempts,
    heads_of,
    is_whole_attempt,
    last_attempts,
    read_trials,
)
from .series import SeriesDirectory
from .writer import TrialWriter

__all__ = [
    "CLAIMS",
    "COORDINATOR",
    "ClaimState",
    "Claims",
    "NewTrials",
    "Orders",
    "PlanMeta",
    "ResultsDirectory",
    "SeriesDirectory",
    "StoredClaim",
    "TrialWriter",
    "Trials",
    "Verification",
    "by_claim",
    "claimed_attempts",
    "completed_blocks",
    "counted_attempts",
    "heads_of",
    "is_whole_attempt",
    "last_attempts",
    "last_holder",
    "node_state",
    "node_states",
    "read_trials",
    "require_owner",
    "safe_name",
]

"""The results directory: the study, the measurements, checksums, export. This package must not import the
analysis."""

from .claims import (
    CLAIMS,
    COORDINATOR,
    PRESENT,
    Claims,
    ClaimState,
    StoredClaim,
    claimed_attempts,
    joined,
    last_holder,
)
from .directory import ResultsDirectory
from .disk import require_owner
from .json_files import safe_name
from .manifest import Verification
from .node_files import LEFT_OUT, NodeFiles
from .nodes import drawn_machines, node_state, node_states
from .orders import Orders
from .plan_file import PlanMeta
from .reading import (
    GrowingTrials,
    NewTrials,
    StoredLines,
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

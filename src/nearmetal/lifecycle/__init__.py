"""Checkpoint, restart and migration: names, phases, evaluation of probes, prediction, and choice of a method.

Pure: it does no I/O and does not depend on backends.
"""

from __future__ import annotations

from .choice import Bounded, Candidate, Choice, choose
from .convergence import Convergence, CopyRound, NotConvergedError, convergence
from .dirty import (
    Dirtying,
    PageSample,
    allowed_rest,
    depends_on_dirtying,
    dirtying,
    guest_conditions,
    limited,
    measured_bandwidth,
    process_conditions,
)
from .experience import PastMove, corrected
from .method import Method
from .phases import Phase, PhaseTimes
from .prediction import Conditions, Costs, Estimate, Prediction, predict
from .probe import (
    RESTS,
    ProbeLog,
    ProbeResult,
    ProbeTimes,
    Unanswered,
    evaluate,
    read_probe_log,
    without_floor,
)
from .steps import RankSteps, longest_gap, read_steps, steps_within

__all__ = [
    "RESTS",
    "Bounded",
    "Candidate",
    "Choice",
    "Conditions",
    "Convergence",
    "CopyRound",
    "Costs",
    "Dirtying",
    "Estimate",
    "Method",
    "NotConvergedError",
    "PageSample",
    "PastMove",
    "Phase",
    "PhaseTimes",
    "Prediction",
    "ProbeLog",
    "ProbeResult",
    "ProbeTimes",
    "RankSteps",
    "Unanswered",
    "allowed_rest",
    "choose",
    "convergence",
    "corrected",
    "depends_on_dirtying",
    "dirtying",
    "evaluate",
    "guest_conditions",
    "limited",
    "longest_gap",
    "measured_bandwidth",
    "predict",
    "process_conditions",
    "read_probe_log",
    "read_steps",
    "steps_within",
    "without_floor",
]

"""Checkpoint, restart and migration: names, phases, evaluation of probes, prediction, and choice of a method.

Pure: it does no I/O and does not depend on backends.
"""

from __future__ import annotations

from .choice import Bounded, Candidate, Choice, choose
from .convergence import Convergence, CopyRound, NotConvergedError, convergence
from .dirty import Dirtying, PageSample, allowed_rest, dirtying, guest_conditions, limited
from .experience import PastMove, corrected
from .method import Method
from .phases import Phase, PhaseTimes
from .prediction import Conditions, Costs, Estimate, Prediction, predict
from .probe import ProbeLog, ProbeResult, ProbeTimes, Unanswered, evaluate, read_probe_log, without_floor
from .steps import RankSteps, longest_gap, read_steps, steps_within

__all__ = [
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
    "dirtying",
    "evaluate",
    "guest_conditions",
    "limited",
    "longest_gap",
    "predict",
    "read_probe_log",
    "read_steps",
    "steps_within",
    "without_floor",
]

"""Checkpoint, restart and migration: names, phases, evaluation of probes, prediction, and choice of a method.

Pure: it does no I/O and knows no backend.
"""

from __future__ import annotations

from .choice import Candidate, Choice, choose
from .method import Method
from .phases import Phase, PhaseTimes
from .prediction import Conditions, Estimate, Prediction, predict
from .probe import (
    ProbeLog,
    ProbeResult,
    ProbeTimes,
    Unanswered,
    evaluate,
    read_probe_log,
    without_floor,
)

__all__ = [
    "Candidate",
    "Choice",
    "Conditions",
    "Estimate",
    "Method",
    "Phase",
    "PhaseTimes",
    "Prediction",
    "ProbeLog",
    "ProbeResult",
    "ProbeTimes",
    "Unanswered",
    "choose",
    "evaluate",
    "predict",
    "read_probe_log",
    "without_floor",
]

"""Checkpoint, restart and migration: names, phases, evaluation of probes, prediction, and choice of a method.

Pure: it does no I/O and knows no backend.
"""

from __future__ import annotations

from .choice import Candidate, Choice, choose
from .method import Method
from .phases import Phase, PhaseTimes
from .prediction import Conditions, Estimate, Prediction, predict
from .probe import ProbeResult, ProbeTimes, Unanswered, evaluate, without_floor

__all__ = [
    "Candidate",
    "Choice",
    "Conditions",
    "Estimate",
    "Method",
    "Phase",
    "PhaseTimes",
    "Prediction",
    "ProbeResult",
    "ProbeTimes",
    "Unanswered",
    "choose",
    "evaluate",
    "predict",
    "without_floor",
]

"""Checkpoint, restart and migration: names, phases, evaluation of probes, prediction, and choice of a method.

Pure: it does no I/O and knows no backend.
"""

from __future__ import annotations

from .choice import Bounded, Candidate, Choice, choose
from .dirty import Dirtying, PageSample, dirtying
from .experience import PastMove, corrected
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
    "Bounded",
    "Candidate",
    "Choice",
    "Conditions",
    "Dirtying",
    "Estimate",
    "Method",
    "PageSample",
    "PastMove",
    "Phase",
    "PhaseTimes",
    "Prediction",
    "ProbeLog",
    "ProbeResult",
    "ProbeTimes",
    "Unanswered",
    "choose",
    "corrected",
    "dirtying",
    "evaluate",
    "predict",
    "read_probe_log",
    "without_floor",
]

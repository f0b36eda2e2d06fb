"""The catalogue that study files are read against here: the shape of the real one, handed in from above."""

from __future__ import annotations

import pytest

from nearmetal.study_file import Catalog


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    classes = "S | W | A | B"
    return Catalog(
        backends=("handicap", "namespaces", "native"),
        kernels={
            "stream": {
                "elements": ("count | auto", "elements of each array; auto: 4 x the last-level cache"),
                "sweeps": ("count", "sweeps over the arrays"),
                "chunks": ("count", "parts of a sweep"),
            },
            "ep": {"class": (classes, "problem size"), "batches": ("count", "batches of numbers")},
            "cg": {"class": (classes, "problem size"), "iterations": ("count", "iterations")},
            "is": {"class": (classes, "problem size"), "rounds": ("count", "rounds")},
            "pingpong": {
                "bytes": ("size", "message size"),
                "trips": ("count", "round trips"),
                "measure": ("latency | bandwidth", "what is taken from it"),
                "gap": ("time", "pause between trips"),
                "jitter": ("share", "of the pause"),
                "pace": ("rate", "at most"),
            },
        },
        metrics={
            "stream": ("copy", "scale", "add", "triad"),
            "ep": ("rate",),
            "cg": ("rate",),
            "is": ("rate",),
            "start": ("start",),
            "command": ("wall", "user"),
        },
    )

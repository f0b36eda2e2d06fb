"""nearmetal as a library: what the command line calls, and what a notebook or a script may call.

    from nearmetal import api

    found = api.weigh("native", "podman", workloads=["cg"], time=90)
    for cell in found.cells:
        print(cell.arm, cell.workload, cell.metric, cell.overhead, cell.low, cell.high, cell.verdict)

    again = api.load(found.directory)

This package does not know the command line, and prints nothing. Errors are those of nearmetal.errors, with
what is wrong and what to do next.
"""

from __future__ import annotations

from .checking import Check, check
from .measuring import resume, run, weigh
from .results import Results, load

__all__ = ["Check", "Results", "check", "load", "resume", "run", "weigh"]

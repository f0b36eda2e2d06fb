"""nearmetal as a library: what the command line calls, and what a notebook or a script may call.

    import nearmetal

    found = nearmetal.weigh("native", "podman", workloads=["cg"], time=90)
    for cell in found.cells:
        print(cell.arm, cell.workload, cell.metric, cell.overhead, cell.low, cell.high, cell.verdict)

    again = nearmetal.load(found.directory)

This package does not know the command line, and prints nothing. Errors are those of nearmetal.errors, with
what is wrong and what to do next.
"""

from __future__ import annotations

import sys
from types import ModuleType

from .. import run as _package
from .checking import Check, check
from .measuring import resume, run, weigh
from .results import Results, load

__all__ = ["Check", "Results", "check", "load", "resume", "run", "weigh"]


class _RunPackage(ModuleType):
    """The package nearmetal.run. Once it is imported, it hides the function nearmetal.run, so it can be
    called like this function."""

    __call__ = staticmethod(run)


sys.modules["nearmetal.run"].__class__ = _RunPackage

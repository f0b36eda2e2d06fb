"""The base class of all workloads."""

from __future__ import annotations

from typing import ClassVar, Self

KERNELS, PROGRAMS = "kernels", "programs"
"""Names of the subjects that measure kernels and programs. A study file does not name them; the
kind of workload determines them."""


class WorkloadBase:
    """Defaults that hold for most workloads. Subclasses override them where they differ.

    sliced: timed in slices.
    program: run from start to end, and timed as a whole.
    event: measures events of the instances themselves.
    of_user: a program of the user, which may have threads.
    """

    sliced: ClassVar[bool] = False
    program: ClassVar[bool] = False
    event: ClassVar[bool] = False
    of_user: ClassVar[bool] = False

    @property
    def mpi(self) -> bool:
        """Whether mpirun starts it, or may start it."""
        return True

    @property
    def own_directory(self) -> bool:
        """Whether each run has a new, empty working directory instead of the directory where nearmetal was
        started."""
        return False

    @property
    def subject(self) -> str:
        """The name of the subject that measures it: an entry point of the group nearmetal.subjects."""
        return PROGRAMS

    @property
    def floor_group(self) -> str | None:
        """Group of workloads with which it shares a noise floor; None if its kernel determines the group."""
        return self.subject

    @property
    def ran(self) -> str:
        """The name of the kernel, application or event; '' for a user's own program."""
        return ""

    @property
    def quantiles(self) -> frozenset[str]:
        """The metrics for which quantiles are shown."""
        return frozenset()

    def processes(self, ranks: int) -> int:
        """Return the number of processes that the workload starts on this many ranks."""
        return ranks

    def limited_to(self, seconds: float) -> Self:
        """Return the workload with this time limit for each run; unchanged if it has no time limit."""
        return self

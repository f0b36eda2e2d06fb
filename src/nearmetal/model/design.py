"""The design of a study: number and order of blocks, what is the same for all arms, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mpi(StrEnum):
    """The MPI that the kernels are compiled for and started by."""

    OPENMPI = "openmpi"
    MPICH = "mpich"


class Reach(StrEnum):
    """How mpirun reaches instances: through an agent that enters them, or through an sshd in each."""

    AGENT = "agent"
    SSH = "ssh"


class SingleCopy(StrEnum):
    """How a long message crosses shared memory: through a segment (two copies), or by one copy from the other
    process (CMA, process_vm_readv)."""

    NONE = "none"
    CMA = "cma"


class Mode(StrEnum):
    """How a block is run: in slices between running instances, or as plain trials one after the other."""

    SLICES = "slices"
    PLAIN = "plain"


class Starts(StrEnum):
    """How the instances of one arm are started and stopped: in parallel, or one after the other."""

    TOGETHER = "together"
    IN_TURN = "in-turn"


LEAST_SLICES = 6
"""Least number of slices per kernel and instance, if the study does not state a number."""
REHEARSED_SLICES = 4
"""Number of slices per kernel and instance in the rehearsal, if the study does not state a number."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """How a study is measured and judged.

    baselines: names of environments.
    margin: fraction of time from which a difference is material (0.03 = 3 %).
    confidence: confidence of the intervals.
    seed: seed from which every order is drawn.
    min_blocks: number of blocks before which no verdict is given; 0 = as soon as the method allows one.
    expected_blocks: key of study files of older versions; not used.
    max_time: seconds; None without a limit.
    target_width: half-width of ln ratio at which the run stops; None = it stops at verdicts.
    slices: slices of each kernel in a block (mode slices); None = as many as fill the block, more for noisy
        kernels.
    runs: runs in each instance (mode plain).
    warm_up: runs that are discarded at the start of each instance.
    profile: whether the MPI calls of every rank are profiled.
    perf_events: whether ranks count cycles and misses, if the ranks of every arm can.
    sample_every: seconds between two samples of node and instances.
    instance_counters: whether counters of every instance over the timed runs of programs are kept.
    starts: how the instances of an arm start.
    mpi: None = the one that mpirun belongs to.
    reach: how mpirun reaches instances.
    single_copy: how ranks of one node copy large messages.
    primary: names '<workload>.<metric>' of a confirmatory study; empty = exploratory.
    """

    baselines: tuple[str, ...]
    margin: float
    confidence: float
    seed: int
    mode: Mode = Mode.SLICES
    min_blocks: int = 0
    expected_blocks: int | None = None
    max_blocks: int = 1000
    max_time: float | None = None
    target_width: float | None = None
    slices: int | None = None
    runs: int = 1
    warm_up: int = 1
    profile: bool = False
    perf_events: bool = True
    sample_every: float = 1.0
    instance_counters: bool = False
    starts: Starts = Starts.TOGETHER
    mpi: Mpi | None = None
    reach: Reach = Reach.AGENT
    single_copy: SingleCopy = SingleCopy.NONE
    primary: tuple[str, ...] = ()

    @property
    def time_is_up(self) -> str:
        """The reason for the end of a run whose time budget is used up."""
        return f"the time budget of {self.max_time:.3g} s is used up"

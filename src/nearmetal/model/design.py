"""The design: how often, in which order, with what alike for all arms, when to stop."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mpi(StrEnum):
    """Which MPI the kernels are compiled for and started by."""

    OPENMPI = "openmpi"
    MPICH = "mpich"


class Reach(StrEnum):
    """How mpirun reaches instances: by an agent that enters them, or by an sshd in each."""

    AGENT = "agent"
    SSH = "ssh"


class SingleCopy(StrEnum):
    """How a long message crosses shared memory: through a segment (two copies), or by one copy out of the
    other process (CMA, process_vm_readv)."""

    NONE = "none"
    CMA = "cma"


class Mode(StrEnum):
    """How a block is run: slices between standing instances, or one plain trial after the other."""

    SLICES = "slices"
    PLAIN = "plain"


class Starts(StrEnum):
    """How the instances of one arm are started and stopped: side by side, or one after the other."""

    TOGETHER = "together"
    IN_TURN = "in-turn"


LEAST_SLICES = 6
"""Slices per kernel and instance at least, if the study does not state a number."""
REHEARSED_SLICES = 4
"""Slices per kernel and instance in the rehearsal, if the study does not state a number."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """margin: time-equivalent share (0.03 = 3 %); confidence: 0.95; min_blocks: blocks before which no
    verdict is given, 0 = as soon as there is one; expected_blocks: from study files of older versions, not
    used; max_time: seconds; target_width: stop at this half-width of ln ratio, None = at
    verdicts; primary: '<workload>.<metric>' names of a confirmatory study, empty = exploratory;
    slices: slices per kernel and instance (mode slices), None = as many as fill the block, more of noisy
    kernels; runs: runs per instance (mode plain); profile: every MPI rank of every arm runs with
    the profile of its calls; perf_events: ranks count cycles and misses where every arm's can; sample_every:
    seconds between two samples of node and instances; instance_counters: what every instance counts over the
    timed runs of programs is kept; starts: how the instances of an arm start; mpi: None =
    the one that mpirun is; reach, single_copy: alike for all arms."""

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

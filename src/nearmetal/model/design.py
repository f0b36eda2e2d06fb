"""The design of a study: number and order of blocks, what is the same for all arms, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ..units import Dimension
from .environments.placement import RealNodes
from .keys import (
    COUNT,
    COUNT_OR_NONE,
    NAME,
    SECONDS,
    SOME_TEXT,
    TRUTH,
    Key,
    ListOf,
    key,
    key_or,
    one_of,
    quantity,
    whole,
)


class Mpi(StrEnum):
    """The MPI that the kernels are compiled for and started by."""

    OPENMPI = "openmpi"
    MPICH = "mpich"


class Reach(StrEnum):
    """How mpirun reaches instances: through an agent that enters them, or through an sshd in each."""

    AGENT = "agent"
    SSH = "ssh"


class SingleCopy(StrEnum):
    """How a long message crosses shared memory: through a segment (two copies), or copied once, directly from
    the memory of the other process (CMA, process_vm_readv)."""

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


class Estimand(StrEnum):
    """The nodes for which a verdict holds, if the rounds of a study ran on several nodes.

    THESE: the nodes of the run, each with the same weight.
    ALIKE: nodes like these. The nodes of the run are a sample of them, and the replicates are the nodes.
    """

    THESE = "these-nodes"
    ALIKE = "nodes-like-these"


MARGIN, CONFIDENCE = 0.03, 0.95
"""Defaults of the study file and the command line (METHOD: "One comparison")."""
LEAST_SLICES = 6
"""Least number of slices per kernel and instance, if the study does not state a number."""
REHEARSED_SLICES = 4
"""Number of slices per kernel and instance in the rehearsal, if the study does not state a number."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """How a study is measured and judged. Times are in seconds.

    target_width: half-width of the ln ratio at which the run stops.
    """

    baselines: tuple[str, ...] = field(
        metadata=key(
            ListOf(NAME, least=1),
            "several baselines instead; further ones are compared with environments of the same transport",
            ["native", "native-tcp"],
            optional=True,
            single=Key(
                name="baseline",
                kind=NAME,
                doc="the environment that the others are compared with",
                examples=("native",),
                optional=True,
            ),
        )
    )
    margin: float = key_or(
        MARGIN,
        quantity(Dimension.SHARE, 0, 1, open_ends=True),
        "time-equivalent overhead that matters; fixed before data",
        "3 %",
        always=True,
    )
    confidence: float = key_or(
        CONFIDENCE,
        quantity(Dimension.SHARE, 0.5, 0.9999),
        "confidence of every interval",
        "95 %",
        always=True,
    )
    mode: Mode = key_or(
        Mode.SLICES,
        one_of(Mode),
        "slices: all instances are running and take turns in short time shares; "
        "plain: one trial after the other",
        "slices",
        always=True,
    )
    expected_blocks: int | None = key_or(
        None, COUNT, "not used any more: no number of rounds has to be known beforehand", 40
    )
    min_blocks: int = key_or(
        0,
        COUNT_OR_NONE,
        "no verdict before so many rounds; the first is possible after 8 anyway",
        12,
        always=True,
    )
    max_blocks: int = key_or(1000, COUNT, "stop after so many rounds", 200, always=True)
    max_time: float | None = key_or(
        None, SECONDS, "stop after this time; no limit if omitted", "90 s", "1h30m"
    )
    target_width: float | None = key_or(
        None,
        quantity(Dimension.SHARE, 0, 1, open_ends=True),
        "go on until every half-width is below this; until every figure has a verdict if omitted",
        "0.5 %",
    )
    seed: int = field(
        metadata=key(
            whole(0, 2**63 - 1),
            "fixes the order of everything; drawn and recorded if omitted",
            32570,
            optional=True,
        )
    )
    warm_up: int = key_or(1, COUNT_OR_NONE, "runs discarded at the start of each instance", 1, always=True)
    runs: int = key_or(1, COUNT, "runs per instance, in mode plain", 1, always=True)
    slices: int | None = key_or(
        None,
        COUNT,
        "time shares per kernel and instance, in mode slices; if omitted, as many as fill the round,"
        " more of noisy kernels",
        8,
    )
    starts: Starts = key_or(
        Starts.TOGETHER,
        one_of(Starts),
        "how the instances of one environment are started and stopped: together, side by side at one"
        " moment; in-turn, one after the other",
        "in-turn",
        always=True,
    )
    profile: bool = key_or(
        False,
        TRUTH,
        "record for every MPI rank where its time went, and how much it sent to which rank",
        True,
        always=True,
    )
    perf_events: bool = key_or(
        True,
        TRUTH,
        "count cycles, instructions, cache and TLB misses of every rank, if the kernel permits it in every"
        " environment",
        False,
        always=True,
    )
    sample_every: float = key_or(
        1.0,
        quantity(Dimension.TIME, 0.1, 10),
        "time between two samples of the counters of node and instances: 100 ms to 10 s",
        "100 ms",
        always=True,
    )
    instance_counters: bool = key_or(
        False,
        TRUTH,
        "record the counters of every instance over the timed runs of programs, those of a guest by its own"
        " kernel: CPU time by kind, memory, blocks, interrupts, context switches",
        True,
        always=True,
    )
    mpi: Mpi | None = key_or(
        None,
        one_of(Mpi),
        "MPI that starts the ranks, and for which kernels are compiled; that of mpirun if omitted",
        "openmpi",
        "mpich",
    )
    reach: Reach = key_or(
        Reach.AGENT,
        one_of(Reach),
        "how mpirun reaches instances: agent: enters them; ssh: an sshd in each, with keys of the run alone",
        "ssh",
        always=True,
    )
    single_copy: SingleCopy = key_or(
        SingleCopy.NONE,
        one_of(SingleCopy),
        "long messages in shared memory: none: through a segment; cma: one copy by"
        " process_vm_readv, which every instance must allow",
        "cma",
        always=True,
    )
    nodes: RealNodes | None = key_or(
        None,
        RealNodes,
        "machines that are the nodes of the placements, reached by ssh; without it they are emulated",
        {"inventory": "hosts.yaml", "names": ["node1", "node2"], "interface": "eth0"},
    )
    primary: tuple[str, ...] = key_or(
        (),
        ListOf(SOME_TEXT),
        "workload.metric names of a confirmatory study; exploratory if omitted",
        ["cg.rate"],
    )

    estimand: Estimand = key_or(
        Estimand.THESE,
        one_of(Estimand),
        "what verdicts hold for if rounds run on several nodes: these-nodes, or nodes-like-these, of"
        " which these are a sample",
        "nodes-like-these",
    )

    @property
    def time_is_up(self) -> str:
        """The reason to report when a run has used up its time budget."""
        return f"the time budget of {self.max_time:.3g} s is used up"

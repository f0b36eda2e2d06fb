"""What was measured: one record per trial, as it stands on one line of trials/<writer>.jsonl. Base units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from .profile import RankProfile
from .study import Better

if TYPE_CHECKING:
    JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
else:
    JsonValue = Any  # the codec reads annotations, and takes none that refers to itself

#: Ends the reason of a row without a value that nothing went wrong with.
TOO_SHORT = "0 s, below what the clock tells"


class Status(StrEnum):
    """OK: usable; FAILED: launch, time-out, verification or parsing failed, see reason."""

    OK = "ok"
    FAILED = "failed"


class Fold(StrEnum):
    """How the values of one instance meet those of another: PAIRED: slice i of one with slice i of the other,
    median of the log ratios; MEDIAN: each instance's median first."""

    PAIRED = "paired"
    MEDIAN = "median"


class Row(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """One metric of one workload in one trial.

    values: raw, one per slice or run, base units.
    parts: seconds inside each slice by kind ('comm' = MPI calls of the slowest rank; of a profiled command
        also 'compute' and 'init'), same length as values.
    seconds: wall seconds of each slice, same length (empty where the value itself is the seconds).
    """

    workload: str
    metric: str
    unit: str
    better: Better
    values: tuple[float, ...]
    status: Status
    reason: str = ""
    seconds: tuple[float, ...] = ()
    parts: Mapping[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    verification: Mapping[str, JsonValue] = msgspec.field(default_factory=dict)


class RankPlace(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """Where a rank really ran, as the rank itself reported it.

    cpus: its affinity.
    namespaces: inode numbers by kind (mnt, net, pid, ipc, uts, user).
    """

    rank: int
    host: str
    cpus: tuple[int, ...]
    namespaces: Mapping[str, int]


STEP = "step."
"""Begins the kind of a part that is a step of an event (Row.parts); a side without it spent nothing on it."""


class Connection(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """One TCP connection between ranks, seen from one end, as it stood last.

    None = the kernel does not tell.

    scope: of the network in which it was seen (model.scope).
    local, remote: 'address:port'.
    rto, rtt, rttvar: seconds.
    cwnd: segments.
    retransmitted: segments since it was opened.
    lost: segments of those under way.
    timeouts: number of times that its retransmission timer expired.
    timeout_runs: number of rows of consecutive expiries.
    timeout_seconds: from the first expiry of each row to the end of that row.
    """

    scope: str
    local: str
    remote: str
    congestion_control: str | None
    rto: float | None
    rtt: float | None
    rttvar: float | None
    cwnd: int | None
    retransmitted: int | None
    lost: int | None
    bytes_acked: int | None
    bytes_received: int | None
    timeouts: int | None
    timeout_runs: int | None
    timeout_seconds: float | None


GROUP_PHASE = "group"
"""Name of the phase of a trial that holds how long the trials that ran together with it took, from the first
start to the end of the last instance."""


def slice_phase(workload: str) -> str:
    """Name of the phase of a trial that holds the mean time of one slice, from its token to the next one."""
    return f"{workload}.slice"


def verify_phase(workload: str) -> str:
    """Name of the phase of a trial that holds the time of the full, verified run of a kernel."""
    return f"{workload}.verify"


def block_seconds(records: Iterable[TrialRecord]) -> float:
    """How long a block took, from the records of its trials; 0 if they do not say."""
    together, alone = 0.0, 0.0
    for record in records:
        seconds = record.phases.get(GROUP_PHASE, 0.0)
        if record.fold is Fold.PAIRED:
            together = max(together, seconds)
        else:
            alone += seconds
    return together + alone


class Claim(NamedTuple):
    """One attempt at a block. Two runs that write into one directory may both make a first attempt at a
    block; only trials of one claim make a block together.

    attempt: counts from 1.
    run: TrialRecord.run."""

    block: int
    attempt: int
    run: str


class Head(Protocol):
    """What says which trial a record is of, without what was measured in it. See TrialRecord."""

    @property
    def run(self) -> str: ...
    @property
    def block(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def arm(self) -> str: ...
    @property
    def aa(self) -> bool: ...
    @property
    def begin(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def status(self) -> Status: ...
    @property
    def members(self) -> int: ...


def claim_of(head: Head) -> Claim:
    """The attempt that a trial belongs to."""
    return Claim(head.block, head.attempt, head.run)


def counting(claims: Mapping[Claim, float]) -> dict[int, Claim]:
    """By block the attempt that counts: the highest, and where two runs made it the one that began first.
    claims: Unix seconds at which each began."""
    last: dict[int, Claim] = {}
    for claim in sorted(claims, key=lambda c: (c.attempt, -claims[c], c.run)):
        last[claim.block] = claim
    return last


class TrialRecord(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """One trial: one environment on one placement in one block.

    Counters and shares are None where they could not be read, never zero for that reason.

    run: label of the run that measured it.
    trial: its id within the run (plan.TrialSpec.id).
    attempt: counts from 1; a block that was interrupted is run again as a whole.
    aa: this is the second run of the baseline.
    position: in the order in which the trials of the block were started.
    begin, end: Unix seconds.
    fold: how values of one instance become one value.
    reason: why the trial failed.
    places: where each rank really ran.
    transport: how ranks were told to talk, what the library calls itself, and under 'seen' how they were
        seen to talk.
    counters: differences over the trial, or over its timed part, by scope (model.scope) and counter. Over the
        timed runs of a program, means of memory and swap stand beside them.
    disturbance: share of CPU time that other processes took, and the share that was stolen.
    flags: 'disturbed' and others, with the number that they rest on.
    phases: seconds by phase.
    pages: by workload, bytes of its ranks in huge pages ('huge') and in all ('total').
    network: what the network of the environment counted, by scope and counter; the node's counters hold the
        traffic of other programs too.
    connections: TCP connections between ranks; None where none was asked for, as nothing was lost, or where
        they could not be read.
    profile: by workload, one entry per rank, of a kernel's verified run or of a program's last run; empty
        where no profile was asked for. The time before MPI_Init, in it and in MPI_Finalize is that of the
        launch, which all kernels share.
    facts: by application, what it said of how it ran (version, library, the size it chose); by
        'network.<host name>', how a virtual machine's own kernel had set its interface.
    members: number of trials of the attempt at the block; 0 where it holds every trial of the plan.
    left_out: workloads that were not run because their comparisons were decided in earlier blocks."""

    run: str
    trial: str
    block: int
    attempt: int
    arm: str
    aa: bool
    position: int
    begin: float
    end: float
    fold: Fold
    status: Status
    reason: str = ""
    rows: tuple[Row, ...]
    places: tuple[RankPlace, ...] = ()
    transport: Mapping[str, JsonValue] = msgspec.field(default_factory=dict)
    counters: Mapping[str, Mapping[str, float | None]] = msgspec.field(default_factory=dict)
    disturbance: Mapping[str, float | None] = msgspec.field(default_factory=dict)
    flags: tuple[str, ...] = ()
    phases: Mapping[str, float] = msgspec.field(default_factory=dict)
    pages: Mapping[str, Mapping[str, float | None]] = msgspec.field(default_factory=dict)
    network: Mapping[str, Mapping[str, float | None]] = msgspec.field(default_factory=dict)
    connections: tuple[Connection, ...] | None = None
    profile: Mapping[str, tuple[RankProfile, ...]] = msgspec.field(default_factory=dict)
    facts: Mapping[str, Mapping[str, JsonValue]] = msgspec.field(default_factory=dict)
    members: int = 0
    left_out: tuple[str, ...] = ()

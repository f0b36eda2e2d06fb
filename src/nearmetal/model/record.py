"""The measurements: one record per trial, stored as one line of trials/<writer>.jsonl, in base units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

import msgspec

from .scope import Scope
from .study import Better
from .workloads.profile import RankProfile

if TYPE_CHECKING:
    JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
else:
    JsonValue = Any  # the codec reads annotations and does not support recursive ones


def section(data: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return the JSON object at a path of keys inside a JSON object; empty if there is none."""
    for name in names:
        found = data.get(name)
        data = found if isinstance(found, dict) else {}
    return data


#: Suffixes of the reason of a row that has no value although nothing failed.
TOO_SHORT = "0 s, below the resolution of the clock"
TOO_FAST_TO_MEASURE = "too fast for the program to measure"
NEEDS_TWO_RANKS = "needs two ranks"


def unmeasurable(reason: str) -> bool:
    """Return whether a row without values and with this reason could not be measured, but did not fail."""
    return reason.endswith((TOO_SHORT, TOO_FAST_TO_MEASURE, NEEDS_TWO_RANKS))


_NO_TEXT = msgspec.Raw(b"")


Counters = Mapping[str, float | None]
"""Values in base units by name; None for a counter that could not be read."""


class Status(StrEnum):
    """Whether a trial or a row is usable.

    OK: it is usable.
    FAILED: launch, verification or parsing failed, or a time limit was exceeded. The field `reason` says why.
    """

    OK = "ok"
    FAILED = "failed"


class Fold(StrEnum):
    """How the values of two instances are compared.

    PAIRED: log ratios of slice i of one instance and slice i of the other, then their median.
    MEDIAN: the median of each instance, then the log ratio of both medians.
    """

    PAIRED = "paired"
    MEDIAN = "median"


class Row(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """One metric of one workload in one trial.

    values: raw values in base units, one per slice or run. A line of a trials file leaves them out if
        slice_values() computes them from work and seconds.
    parts: seconds inside each slice by kind, of the same length as values ('comm' is the time of the slowest
        rank in MPI calls; for a profiled command also 'compute' and 'init'). A line of a trials file contains
        one entry if all are the same.
    seconds: wall seconds of each slice, of the same length; empty if the value itself is the time.
    work: work of one slice: a rate is work per second, any other value is seconds per unit of work. 0 if the
        work is unknown or differs between slices.
    verification: results of the verification; 'ok' is whether the result was right. Empty if the workload was
        not verified in this trial.

    The other fields are used only in lines of trials files. They are converted to seconds and parts when a
    line is read:

    ticks_per_second: the number by which ticks are divided; 0 without ticks.
    ticks: seconds as whole numbers of ticks, 4 bytes each, least significant byte first; base64 in a line.
    part_ticks: the same for parts.
    """

    workload: str
    metric: str
    unit: str
    better: Better
    values: tuple[float, ...]
    status: Status
    reason: str = ""
    seconds: tuple[float, ...] = ()
    work: float = 0.0
    parts: Mapping[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    verification: Mapping[str, JsonValue] = msgspec.field(default_factory=dict)
    ticks_per_second: Annotated[int, msgspec.Meta(ge=0, le=10**12)] = 0
    ticks: bytes = b""
    part_ticks: Mapping[str, bytes] = msgspec.field(default_factory=dict)


class RowData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A Row as it is stored in a line of a trials file. Its numbers are still text, because the analysis
    parses the numbers of many rows at once.

    values, seconds, parts: JSON text of arrays of numbers; an empty text if missing. See Row for all fields.
    """

    workload: str
    metric: str
    unit: str
    better: Better
    values: msgspec.Raw
    status: Status
    reason: str = ""
    seconds: msgspec.Raw = _NO_TEXT
    work: float = 0.0
    parts: Mapping[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    verification: Mapping[str, JsonValue] = msgspec.field(default_factory=dict)
    ticks_per_second: Annotated[int, msgspec.Meta(ge=0, le=10**12)] = 0
    ticks: bytes = b""
    part_ticks: Mapping[str, bytes] = msgspec.field(default_factory=dict)


def slice_values(better: Better, work: float, seconds: Iterable[float]) -> tuple[float, ...]:
    """Return the value of each slice: a rate if higher is better, else the seconds per unit of work.

    work: work of one slice, above 0.

    Raises ZeroDivisionError for a rate of a slice of 0 s.
    """
    if better is Better.HIGHER:
        return tuple([work / s for s in seconds])
    return tuple([s / work for s in seconds])


def slice_value(better: Better, work: float, seconds: float) -> float:
    """Return the value of one slice. See slice_values()."""
    return slice_values(better, work, (seconds,))[0]


class RankPlace(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """The CPUs and namespaces of a rank, as the rank itself reported them.

    cpus: CPUs of its affinity mask.
    namespaces: inode numbers by kind (mnt, net, pid, ipc, uts, user).
    """

    rank: int
    host: str
    cpus: tuple[int, ...]
    namespaces: Mapping[str, int]


STEP = "step."
"""Prefix of the name of a part that is a step of an event (Row.parts). A side without this part spent no time
on it."""


class Connection(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """One TCP connection between ranks, as seen from one end in its last known state. None = the kernel does
    not report the value.

    scope: scope of its network.
    local, remote: 'address:port'.
    rto, rtt, rttvar: seconds.
    cwnd: segments.
    retransmitted: segments retransmitted since the connection was opened.
    lost: lost segments among those in flight.
    timeouts: number of times that its retransmission timer expired.
    timeout_runs: number of series of consecutive expiries.
    timeout_seconds: sum over the series of the time from the first expiry to the end of the series, in
        seconds.
    """

    scope: Scope
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
"""Name of the phase with the duration of all trials that ran together with this one, from the first start to
the end of the last instance."""


START = "start."
"""Prefix of a phase that is a step of a start; see start_phase()."""


def start_phase(step: str) -> str:
    """Return the name of the phase for a step of the start of a trial's last instance."""
    return f"{START}{step}"


def slice_phase(workload: str) -> str:
    """Return the name of the phase that contains the mean duration of a slice, from its token to the next
    token."""
    return f"{workload}.slice"


def verify_phase(workload: str) -> str:
    """Return the name of the phase that contains the duration of the full, verified run of a kernel."""
    return f"{workload}.verify"


def block_seconds(records: Iterable[TrialRecord]) -> float:
    """Return the duration of a block in seconds, from the records of its trials; 0 if they do not contain
    it."""
    together, alone = 0.0, 0.0
    for record in records:
        seconds = record.phases.get(GROUP_PHASE, 0.0)
        if record.fold is Fold.PAIRED:
            together = max(together, seconds)
        else:
            alone += seconds
    return together + alone


class Claim(NamedTuple):
    """Identifies one attempt at a block.

    Two runs that write into the same directory may both make a first attempt at a block. A block consists
    only of trials of the same claim.

    attempt: counts from 1.
    run: TrialRecord.run.
    """

    block: int
    attempt: int
    run: str


class Head(Protocol):
    """The fields that identify the trial of a record, without its measurements. See TrialRecord."""

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
    """Return the attempt that a trial belongs to."""
    return Claim(head.block, head.attempt, head.run)


def counting(claims: Mapping[Claim, float]) -> dict[int, Claim]:
    """Return, for each block, the attempt that counts: of its complete attempts, the one with the lowest
    number. If several runs made an attempt with this number, the one that began first.

    The time at which an attempt ended does not matter, because short attempts would be preferred.

    claims: by complete attempt, the Unix seconds at which it began.
    """
    first: dict[int, Claim] = {}
    for claim in sorted(claims, key=lambda c: (c.attempt, claims[c], c.run)):
        first.setdefault(claim.block, claim)
    return first


class _TrialFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The fields that TrialRecord and TrialData share. TrialRecord documents them."""

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


class TrialRecord(_TrialFields, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One trial: one environment on one placement in one block.

    Counters and fractions are None if they could not be read, never zero for that reason.
    run: label of the run that measured it.
    trial: its id within the run (plan.TrialSpec.id).
    attempt: counts from 1; a block that was interrupted is run again as a whole.
    aa: whether this is the second run of the baseline.
    position: position in the order in which the trials of the block were started.
    begin, end: Unix seconds.
    fold: how values of one instance become one value.
    places: where each rank ran.
    transport: transport that ranks were configured for, the name of the MPI library, and under 'seen' the
        transport that they were seen to use.
    counters: differences over the trial, or over its timed part, by scope and counter. Over the
        timed runs of a program, also means of memory and swap.
    disturbance: fraction of CPU time that other processes took, and fraction that was stolen.
    flags: 'disturbed' and others, with the number that they are based on.
    phases: seconds by phase.
    pages: by workload, bytes of its ranks in huge pages ('huge') and in all ('total').
    network: counters of the environment's network, by scope and counter; the node's counters include the
        traffic of other programs.
    connections: TCP connections between ranks; None if they were not read because no packet was lost, or
        could not be read.
    profile: by workload, one entry per rank, of a kernel's verified run or of a program's last run; empty if
        no profile was requested. The times before and in MPI_Init and in MPI_Finalize are those of the
        launch, which all kernels share.
    facts: by application, what it reported about its run (version, library, the size it chose); by
        'network.<host name>', the settings of a virtual machine's interface as its own kernel reports them;
        by checkpoint or migration, each of its `events` or `moves`, with `pauses` if it has a job: the
        seconds for which each rank paused, by rank number.
    members: number of trials of the attempt at the block; 0 if it contains every trial of the plan.
    left_out: workloads that were not run because their comparisons were decided in earlier blocks.
    """

    rows: tuple[Row, ...]
    places: tuple[RankPlace, ...] = ()
    transport: Mapping[str, JsonValue] = msgspec.field(default_factory=dict)
    counters: Mapping[Scope, Counters] = msgspec.field(default_factory=dict)
    disturbance: Mapping[str, float | None] = msgspec.field(default_factory=dict)
    flags: tuple[str, ...] = ()
    phases: Mapping[str, float] = msgspec.field(default_factory=dict)
    pages: Mapping[str, Mapping[str, float | None]] = msgspec.field(default_factory=dict)
    network: Mapping[Scope, Counters] = msgspec.field(default_factory=dict)
    connections: tuple[Connection, ...] | None = None
    profile: Mapping[str, tuple[RankProfile, ...]] = msgspec.field(default_factory=dict)
    facts: Mapping[str, Mapping[str, JsonValue]] = msgspec.field(default_factory=dict)
    members: int = 0
    left_out: tuple[str, ...] = ()


class TrialData(_TrialFields, frozen=True, kw_only=True, gc=False):
    """A TrialRecord in which only the fields that the analysis uses are decoded. This makes reading long runs
    faster.

    See TrialRecord for the fields. The other fields, the numbers of rows and the counters of each scope
    remain JSON text.

    schema: version of the format of the line.
    """

    schema: int
    rows: tuple[RowData, ...]
    places: msgspec.Raw = _NO_TEXT
    transport: msgspec.Raw = _NO_TEXT
    counters: Mapping[Scope, msgspec.Raw] = msgspec.field(default_factory=dict)
    disturbance: Mapping[str, float | None] = msgspec.field(default_factory=dict)
    flags: tuple[str, ...] = ()
    phases: msgspec.Raw = _NO_TEXT
    pages: msgspec.Raw = _NO_TEXT
    network: Mapping[Scope, msgspec.Raw] = msgspec.field(default_factory=dict)
    connections: tuple[Connection, ...] | None = None
    profile: msgspec.Raw = _NO_TEXT
    facts: msgspec.Raw = _NO_TEXT
    members: int = 0
    left_out: tuple[str, ...] = ()


_LOGS = "/logs/"


def cause_of(reason: str) -> str:
    """Return the reason of a failed trial or row without the path of its log directory, which differs between
    trials.

    The path is removed only at the beginning, because a program's own message may contain another path.
    """
    before, inside, rest = reason.partition(_LOGS)
    if not inside or ": " in before:
        return reason
    return rest.partition(": ")[2] or reason

"""Runs one built-in kernel alone: natively, in full, with verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import msgspec

from ..environments.storage import DISKS
from ..errors import RunError, UsageError
from ..host.outside import outside_directory
from ..host.processes.labelled import LABEL_VARIABLE
from ..launchers import MpiJob
from ..model.record import JsonValue, Status
from ..model.study import Better, KernelWorkload, Transport
from ..model.workloads.profile import RankProfile
from ..node.machine import Machine
from ..report.text import plural
from ..subjects.launches.profiles import profile_directory, read_profiles
from ..subjects.launches.rank_argv import Report, rank_argv
from ..subjects.launches.reports import read_reports
from ..units import show
from ..workloads.kernels.registry import argument, counts_operations, kernel, rows, slice_work
from ..workloads.protocol import SliceLine, VerifyLine, parse_line

LIMIT = 3600.0
"""Time limit of the launch, in seconds."""
SLICES = 9
"""Number of slices after the verified run."""
FILL = "3000"
"""Minimum duration of a slice in microseconds."""


@dataclass(frozen=True, kw_only=True)
class MetricValue:
    """A metric of a kernel that ran alone, in base units.

    value: median over the slices.
    best: value of the best slice.
    """

    value: float
    unit: str
    best: float


@dataclass(frozen=True, kw_only=True)
class ProfiledRank:
    """One rank of a profiled run.

    wall: seconds from its start to its end, measured by nm-rank.
    whole: profile of its whole lifetime.
    kernel: profile of the kernel's run: the timed section and its verification.
    """

    wall: float
    whole: RankProfile
    kernel: RankProfile

    def as_json(self) -> dict[str, JsonValue]:
        whole, kernel = (msgspec.to_builtins(p) for p in (self.whole, self.kernel))
        inside = {key: kernel[key] for key in ("compute", "communication", "calls", "peers")}
        return {**whole, "seconds": self.whole.seconds, "wall": self.wall, "kernel": inside}


@dataclass(frozen=True, kw_only=True)
class KernelResult:
    """Result of a kernel that ran alone.

    expected, found: the values that the verification compares, by name.
    seconds: duration of the verified run on the slowest rank.
    work: nominal operations, bytes or messages in the verified run.
    metrics: by name, the median over the slices after the verified run; empty for a kernel that counts
        operations, or if verification failed.
    profile: by rank; empty if none was requested.
    """

    kernel: str
    ranks: int
    threads: int
    parameters: Mapping[str, JsonValue]
    verified: bool
    expected: Mapping[str, JsonValue]
    found: Mapping[str, JsonValue]
    seconds: float
    work: float
    metrics: Mapping[str, MetricValue]
    transport: Mapping[str, JsonValue]
    profile: tuple[ProfiledRank, ...] = ()

    @property
    def mops(self) -> float | None:
        """Million operations per second by the published formula; None for a kernel that does not count
        operations."""
        if not counts_operations(self.kernel):
            return None
        return self.work / self.seconds / 1e6 if self.seconds > 0 else 0.0

    def as_json(self) -> dict[str, JsonValue]:
        out = asdict(replace(self, profile=())) | ({} if self.mops is None else {"mops": self.mops})
        del out["profile"]
        if self.profile:
            out["profile"] = [rank.as_json() for rank in self.profile]
        return out

    def __str__(self) -> str:
        state = "verified" if self.verified else f"NOT VERIFIED: expected {self.expected}, found {self.found}"
        found = [f"{name} {show(m.value, m.unit)}" for name, m in self.metrics.items()]
        if self.mops is not None:
            found = [show(self.seconds, "s"), f"{self.mops:.1f} Mop/s"]
        given = ", ".join(f"{key} {value}" for key, value in self.parameters.items())
        what = f"{self.kernel} ({given})" if given else self.kernel
        return f"{what} on {self._where()}: {', '.join([*found, state])}"

    def _where(self) -> str:
        return plural(self.ranks, "rank") + (f" of {self.threads} threads" if self.threads > 1 else "")


def rank_cpus(cpus: Sequence[int], ranks: int, threads: int) -> list[Sequence[int]]:
    """Return the CPUs of each rank: one for each of its threads. Ranks share CPUs if there are too few."""
    return [tuple(cpus[(r * threads + t) % len(cpus)] for t in range(threads)) for r in range(ranks)]


def run_once(
    machine: Machine,
    name: str,
    ranks: int,
    params: Mapping[str, str | int | float],
    *,
    threads: int,
    label: str,
    scratch: Path,
    profiled: bool,
    transport: Transport = Transport.SHM,
    oversubscribe: bool = False,
) -> KernelResult:
    """Run a kernel once.

    threads: threads of each rank, each on its own CPU.
    label: label by which `nearmetal clean` finds its ranks.
    profiled: also profile the ranks' MPI calls.
    transport: TCP runs over loopback.
    oversubscribe: let ranks share CPUs if the machine has too few; a rank that waits then yields its CPU.
    Raises UsageError if the kernel cannot run on this many ranks, or if the machine has too few CPUs.
    Raises RunError if the launch fails.
    """
    shared = ranks * threads > len(machine.cpus)
    if shared and not oversubscribe:
        each = f" of {threads} threads" if threads > 1 else ""
        raise UsageError(
            f"{ranks} ranks{each} on {len(machine.cpus)} CPUs would wait for each other by spinning",
            remedy="--oversubscribe lets them share CPUs: they yield while they wait, and are slower",
        )
    workload = KernelWorkload(name=name, kernel=name, params=params)
    spec = argument(workload, ranks=ranks, llc_bytes=machine.llc, extra=0.0, threads=threads)
    work = slice_work(workload, ranks=ranks, llc_bytes=machine.llc)
    spec += f":units={work.units or work.least}"
    slices = 0 if counts_operations(name) else SLICES
    directory = profile_directory(scratch) if profiled else None
    with _storage(name, label) as storage:
        filled = () if work.units else ("--fill", FILL)
        once = ("--once", "--slices", str(slices), *(filled if slices else ()))
        program = rank_argv(
            machine.tools,
            rank_cpus(machine.cpus, ranks, threads),
            [machine.tools / "nm-micro", *once, spec],
            report=None if directory is None else Report(directory=directory),
            storage=[] if storage is None else [storage] * ranks,
            profile=directory,
        )
        job = MpiJob(
            argv=tuple(program),
            box=machine.tools / "nm-box",
            ranks=ranks,
            transport=transport,
            interface="lo",
            scratch=str(scratch),
            yields=shared,
        )
        launch = machine.mpi.launch(job)
        done = machine.host.run(launch.argv, env={**launch.env, LABEL_VARIABLE: label}, timeout=LIMIT)
    lines = [parse_line(text) for text in done.stdout.splitlines() if text.startswith("{")]
    verify = next((x for x in lines if isinstance(x, VerifyLine)), None)
    if verify is None:
        raise RunError(f"{name}: {done.failure()}")
    measured = [x for x in lines if isinstance(x, SliceLine)]
    return KernelResult(
        kernel=name,
        ranks=ranks,
        threads=threads,
        parameters=dict(params),
        verified=verify.ok,
        expected=verify.expected,
        found=verify.found,
        seconds=verify.seconds,
        work=verify.work,
        metrics=_metrics(workload, measured) if slices and verify.ok else {},
        transport=launch.transport,
        profile=() if directory is None else _profile(directory, ranks),
    )


def _storage(name: str, label: str) -> AbstractContextManager[Path | None]:
    """Make a directory on the machine's own disk for a kernel that writes files; None for other kernels."""
    return outside_directory(DISKS / f"{label}-storage") if kernel(name).storage else nullcontext()


def _profile(directory: Path, ranks: int) -> tuple[ProfiledRank, ...]:
    reports = read_reports(directory, ranks)
    return tuple(
        ProfiledRank(wall=report.wall, whole=found.whole(), kernel=found.kernel(0))
        for report, found in zip(reports, read_profiles(directory, ranks), strict=True)
    )


def _metrics(workload: KernelWorkload, slices: Sequence[SliceLine]) -> dict[str, MetricValue]:
    """Return the metrics of these slices.

    Raises RunError if a slice cannot be used.
    """
    out: dict[str, MetricValue] = {}
    for row in rows(workload, slices, None):
        if row.status is not Status.OK:
            raise RunError(f"{workload.kernel}: {row.reason}")
        out[row.metric] = MetricValue(
            value=median(row.values),
            unit=row.unit,
            best=max(row.values) if row.better is Better.HIGHER else min(row.values),
        )
    return out

"""One of our own kernels by itself: launched natively, in full, verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import RunError, UsageError
from ..host.processes import LABEL_VARIABLE
from ..launchers import MpiJob, openmpi_launch
from ..model.record import JsonValue
from ..model.study import KernelWorkload, Transport
from ..units import show
from ..workloads.kernels import argument
from ..workloads.protocol import VerifyLine, parse_line
from .session import Machine

LIMIT = 3600.0


@dataclass(frozen=True, kw_only=True)
class KernelResult:
    """seconds: of the timed section, slowest rank; work: nominal operations, bytes or messages in it."""

    kernel: str
    ranks: int
    parameters: Mapping[str, JsonValue]
    verified: bool
    expected: Mapping[str, JsonValue]
    found: Mapping[str, JsonValue]
    seconds: float
    work: float
    transport: Mapping[str, JsonValue]

    @property
    def mops(self) -> float:
        """Million operations (or bytes) per second, as the published formula counts them."""
        return self.work / self.seconds / 1e6 if self.seconds > 0 else 0.0

    def as_json(self) -> dict[str, JsonValue]:
        """For --json."""
        return {**asdict(self), "mops": self.mops}

    def __str__(self) -> str:
        state = "verified" if self.verified else f"NOT VERIFIED: expected {self.expected}, found {self.found}"
        return (
            f"{self.kernel} {dict(self.parameters)} on {self.ranks} ranks: {show(self.seconds, 's')},"
            f" {self.mops:.1f} Mop/s, {state}"
        )


def run_once(
    machine: Machine,
    name: str,
    ranks: int,
    params: Mapping[str, str | int | float],
    *,
    label: str,
    scratch: Path,
) -> KernelResult:
    """label: by which `nearmetal clean` finds its ranks.

    Raises UsageError where the kernel does not run on so many ranks, RunError when the launch fails.
    """
    if ranks > len(machine.cpus):
        raise UsageError(f"{ranks} ranks on {len(machine.cpus)} CPUs would wait for each other by spinning")
    workload = KernelWorkload(name=name, kernel=name, params=params)
    spec = argument(workload, transport=Transport.SHM, ranks=ranks, llc_bytes=machine.llc, extra=0.0)
    cpus = ",".join(map(str, machine.cpus[:ranks]))
    program = (machine.tools / "nm-rank", "--cpus", cpus, "--", machine.tools / "nm-micro", "--once", spec)
    job = MpiJob(argv=program, ranks=ranks, transport=Transport.SHM, interface="lo", scratch=str(scratch))
    launch = openmpi_launch(job, machine.mpirun, machine.mpi)
    done = machine.host.run(launch.argv, env={**launch.env, LABEL_VARIABLE: label}, timeout=LIMIT)
    lines = [parse_line(text) for text in done.stdout.splitlines() if text.startswith("{")]
    verify = next((x for x in lines if isinstance(x, VerifyLine)), None)
    if verify is None:
        raise RunError(f"{name} ended with {done.returncode}: {done.last_words()}")
    return KernelResult(
        kernel=name,
        ranks=ranks,
        parameters=dict(params),
        verified=verify.ok,
        expected=verify.expected,
        found=verify.found,
        seconds=verify.seconds,
        work=verify.work,
        transport=launch.transport,
    )

"""Checkpoint and restore of a whole MPI job, mpirun and all of its ranks, that runs in one instance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from resource import getpagesize

from ...environments import Backend, HoldsConnections, Migrates
from ...environments.registry import backends_with
from ...launchers import MpiJob
from ...lifecycle import Method
from ...model.study import Transport
from ...model.workloads.moves import Extent, LifecycleSubject
from ...node.trial import Trial
from .verified import VerifiedProgram


def methods_of_extent(w: LifecycleSubject, backend: Backend, able: tuple[Method, ...]) -> tuple[Method, ...]:
    """Return the methods by which a workload can save an instance, a rank or a job, as its extent requests.

    These are the methods of the backend. For a whole job, DMTCP is added if checkpoints of the backend's
    instances include TCP connections.
    able: methods of the backend.
    """
    jobs = w.extent is Extent.JOB and isinstance(backend, HoldsConnections)
    return (*able, Method.DMTCP) if jobs else able


def unable_to_hold_job(w: LifecycleSubject, backend: Backend) -> str | None:
    """Return why a whole MPI job in instances of a backend cannot be checkpointed; None if it can."""
    if isinstance(backend, Migrates):
        if w.method in (None, Method.OFFLINE):
            return None
        return (
            f"the guests of a job are stopped together, saved and restored, so that none is ahead of another;"
            f" {w.method} lets them run meanwhile; use offline"
        )
    if w.method is Method.AUTO:
        return "auto chooses for an instance with one program, not for a job; use criu or criu-pageserver"
    if w.method is not None and w.method.fetches_later:
        return (
            f"mpirun has a terminal, of which there is only one, but by {w.method} source and destination"
            " exist at the same time; use criu or criu-pageserver"
        )
    if isinstance(backend, HoldsConnections):
        return None
    return (
        f"a checkpoint of an instance of {backend.name} holds no connections, which mpirun has with its"
        f" ranks; use backend {backends_with(lambda b: isinstance(b, HoldsConnections))}"
    )


def share_of_rank(dirtied: tuple[int, int], ranks: int) -> tuple[int, int]:
    """Divide a working set and its dirty rate by the number of ranks.

    dirtied: bytes that all ranks write to, and bytes of pages that they write per second (0: as fast as they
        can).
    Return the same for one rank. The working set is at least one page. The rate is rounded up, so that it
    never becomes 0 by the division.
    """
    size, rate = dirtied
    return max(getpagesize(), size // ranks), -(-rate // ranks)


def job_program(
    trial: Trial,
    w: LifecycleSubject,
    record: Path,
    memory: int,
    dirtied: tuple[int, int],
    more: Mapping[str, str] | None = None,
    *,
    shared_memory: str = "",
) -> VerifiedProgram:
    """Return nm-job, an MPI program that verifies its own memory, with the command line of its mpirun.

    record: path of the ranks' records without the number of the rank.
    memory, dirtied: as for verified.keeper(), but for all ranks together.
    more: further environment variables; they override those of the launch.
    shared_memory: as in MpiJob.
    """
    software, ranks = trial.node.software_of(trial.arm), w.job_ranks
    scratch = record.parent / "mpi"
    scratch.mkdir(exist_ok=True)
    program = (software.tools / "nm-job", str(memory // ranks), str(record))
    launch = software.mpi.launch(
        MpiJob(
            argv=(*program, *map(str, share_of_rank(dirtied, ranks))),
            box=software.tools / "nm-box",
            ranks=ranks,
            transport=Transport.SHM,
            interface="lo",
            scratch=str(scratch),
            shared_memory=shared_memory,
            yields=True,
        )
    )
    variables = {**launch.env, **(more or {})}
    removed = (f"--unset={name}" for name, value in variables.items() if value is None)
    given = (f"{name}={value}" for name, value in variables.items() if value is not None)
    return VerifiedProgram(
        argv=("env", *removed, *given, *launch.argv),
        records=tuple(record.with_name(f"{record.name}.{rank}") for rank in range(ranks)),
    )

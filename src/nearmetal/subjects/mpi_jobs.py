"""A whole MPI job in one instance, mpirun and all of its ranks, that is checkpointed and restored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from resource import getpagesize

from ..environments import Backend, HoldsConnections, Migrates
from ..launchers import MpiJob
from ..lifecycle import Method
from ..model.study import Transport
from ..model.workloads.event import EventSubject, Extent
from ..node.trial import Trial
from .verified import VerifiedProgram


def methods_of_extent(w: EventSubject, backend: Backend, able: tuple[Method, ...]) -> tuple[Method, ...]:
    """Return the methods by which the workload's extent can be saved: those of the backend, and DMTCP for a
    whole job in instances whose checkpoints hold connections.

    able: methods of the backend for one instance.
    """
    jobs = w.extent is Extent.JOB and isinstance(backend, HoldsConnections)
    return (*able, Method.DMTCP) if jobs else able


def unable_to_hold_job(w: EventSubject, backend: Backend) -> str | None:
    """Return why no whole MPI job can be checkpointed in an instance of a backend; None if it can."""
    if isinstance(backend, Migrates):
        if w.method in (None, Method.OFFLINE):
            return None
        return (
            f"the guests of a job are stopped together, saved and restored, so that none is ahead of another;"
            f" {w.method} lets them run meanwhile; use offline"
        )
    if w.method is not None and w.method.fetches_later:
        return (
            f"mpirun has a terminal, of which there is only one, but by {w.method} source and destination"
            " exist at the same time; use criu or criu-pageserver"
        )
    if isinstance(backend, HoldsConnections):
        return None
    return (
        f"a checkpoint of an instance of {backend.name} holds no connections, which mpirun has with its"
        " ranks; use backend native, namespaces or runc"
    )


def share_of_rank(dirtied: tuple[int, int], ranks: int) -> tuple[int, int]:
    """Return what one rank writes to, in bytes, and how fast, in bytes per second.

    It is a page at least. A rate becomes 0, which means as fast as it can, only if it is 0 for all ranks.
    """
    size, rate = dirtied
    return max(getpagesize(), size // ranks), -(-rate // ranks)


def job_program(
    trial: Trial,
    w: EventSubject,
    record: Path,
    memory: int,
    dirtied: tuple[int, int],
    more: Mapping[str, str] | None = None,
) -> VerifiedProgram:
    """Return the MPI program that verifies itself, with its mpirun.

    memory, dirtied: as of verified.keeper(), of all ranks together.
    more: further environment variables, which replace those of the launch.
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
            yields=True,
        )
    )
    variables = (f"{name}={value}" for name, value in {**launch.env, **(more or {})}.items())
    return VerifiedProgram(
        argv=("env", *variables, *launch.argv),
        records=tuple(record.with_name(f"{record.name}.{rank}") for rank in range(ranks)),
    )

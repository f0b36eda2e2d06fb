"""A whole MPI job in one instance, mpirun and all of its ranks, that is checkpointed and restored."""

from __future__ import annotations

from pathlib import Path
from resource import getpagesize

from ..environments import Backend, HoldsConnections, Migrates
from ..launchers import MpiJob
from ..model.study import Transport
from ..model.workloads.event import EventSubject
from ..node.trial import Trial
from .verified import VerifiedProgram


def unable_to_hold_job(w: EventSubject, backend: Backend) -> str | None:
    """Return why no whole MPI job can be checkpointed in an instance of a backend; None if it can."""
    if w.method is not None and w.method.fetches_later:
        return (
            f"mpirun has a terminal, of which there is only one, but by {w.method} source and destination"
            " exist at the same time; use criu or criu-pageserver"
        )
    if isinstance(backend, HoldsConnections):
        return None
    if isinstance(backend, Migrates):
        return "a guest is moved with all of its processes, also those of MPI; leave out of: job"
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
    trial: Trial, w: EventSubject, record: Path, memory: int, dirtied: tuple[int, int]
) -> VerifiedProgram:
    """Return the MPI program that verifies itself, with its mpirun.

    memory, dirtied: as of verified.keeper(), of all ranks together.
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
    variables = (f"{name}={value}" for name, value in launch.env.items())
    return VerifiedProgram(
        argv=("env", *variables, *launch.argv),
        records=tuple(record.with_name(f"{record.name}.{rank}") for rank in range(ranks)),
    )

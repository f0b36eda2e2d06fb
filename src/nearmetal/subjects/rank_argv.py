"""The command line of nm-rank, which pins a rank, starts its program and reports what it used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..environments import Tools
from ..environments.storage import Volume

PROFILE_LIBRARY = "libnm-profile.so"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What nm-rank reports of its rank.

    directory: where the report goes.
    events: perf events that the rank counts.
    exit_codes: of a rank that ended well.
    """

    directory: Path
    events: Sequence[str] = ()
    exit_codes: Sequence[int] = (0,)


def rank_argv(
    tools: Tools,
    cpus: Sequence[Sequence[int]],
    program: Sequence[str],
    *,
    report: Report | None = None,
    rank: int | None = None,
    gate: Path | None = None,
    storage: Sequence[Path] = (),
    directory: Path | None = None,
    profile: Path | None = None,
) -> list[str]:
    """Tokens that run a program as a rank.

    cpus: of each rank.
    rank: its number; None if the launcher tells it.
    gate: directory of the FIFOs at which it waits for the others.
    storage: of each rank.
    directory: in which the program runs.
    profile: directory for a profile of its MPI calls. The library that takes it is loaded here, so that no
        launcher and no shell on the way runs with it, and every arm alike.
    """
    argv = [tools / "nm-rank", "--cpus", cpu_list(cpus)]
    if rank is not None:
        argv += ["--rank", str(rank)]
    if gate is not None:
        argv += ["--gate", str(gate)]
    if storage:
        argv += ["--storage", ",".join(map(str, storage))]
    if directory is not None:
        argv += ["--directory", str(directory)]
    if report is not None:
        argv += ["--report", str(report.directory), *event_argv(report.events)]
        argv += ["--exit-codes", ",".join(map(str, report.exit_codes))]
    if profile is not None:
        argv += ["--preload", tools / PROFILE_LIBRARY, "--profile", str(profile)]
    return [*argv, "--", *program]


def event_argv(events: Sequence[str]) -> list[str]:
    """Tokens for nm-rank and nm-micro: the perf events that ranks count."""
    return ["--events", ",".join(events)] if events else []


def cpu_list(cpus: Sequence[Sequence[int]]) -> str:
    """The CPUs of each rank: '0,1', or '0+1,2+3'."""
    return ",".join("+".join(map(str, own)) for own in cpus)


def storage_of_ranks(volumes: Sequence[Volume], tasks: int) -> list[Path]:
    """The storage of each rank. tasks: ranks of each instance."""
    return [volume.path for volume in volumes for _ in range(tasks)]

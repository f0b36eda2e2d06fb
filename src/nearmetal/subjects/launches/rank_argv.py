"""The command line of nm-rank, which pins a rank, starts its program and reports its resource use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ...environments import Tools
from ...environments.storage import Volume

PROFILE_LIBRARY = "libnm-profile.so"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What nm-rank reports about its rank, and where.

    directory: directory for the report file.
    events: perf events to count.
    exit_codes: exit statuses that count as success.
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
    directory: str | Path | None = None,
    profile: Path | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    caller: str = "",
    here: str = "",
) -> list[str]:
    """Return the command line that runs a program as a rank.

    cpus: CPUs of each rank.
    report: what nm-rank reports, and where; None for no report.
    rank: number of the rank; None if nm-rank is to read it from the environment that mpirun sets.
    gate: directory of the FIFOs at which the rank waits for the others; None to start at once.
    storage: storage directory of each rank.
    directory: working directory of the program; None for that of nm-rank.
    profile: directory for a profile of its MPI calls. nm-rank preloads the profiling library into the program
        only, so that launchers and shells run without it in every arm.
    here: working directory of the program if the instance has it and `directory` is None; '' for none.
    caller: see host.caller.inherited_state(); '' for a program of nearmetal's own.
    variables: variables that the program gets, such as those of its image.
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
    if here:
        argv += ["--here", here]
    if caller:
        argv += ["--caller", caller]
    argv += variable_argv(variables)
    if profile is not None:
        argv += ["--preload", tools / PROFILE_LIBRARY, "--profile", str(profile)]
    return [*argv, "--", *program]


def variable_argv(variables: Mapping[str, str]) -> list[str]:
    """Return the options for nm-rank that set variables."""
    return [word for name, value in variables.items() for word in ("--variable", f"{name}={value}")]


def event_argv(events: Sequence[str]) -> list[str]:
    """Return the option for nm-rank and nm-micro that names the perf events to count."""
    return ["--events", ",".join(events)] if events else []


def cpu_list(cpus: Sequence[Sequence[int]]) -> str:
    """Return the CPUs of each rank as text: '0,1' for one CPU each, '0+1,2+3' for two each."""
    return ",".join("+".join(map(str, own)) for own in cpus)


def storage_of_ranks(volumes: Sequence[Volume], tasks: int) -> list[Path]:
    """Return the storage directory of each rank.

    tasks: ranks of each instance.
    """
    return [volume.path for volume in volumes for _ in range(tasks)]

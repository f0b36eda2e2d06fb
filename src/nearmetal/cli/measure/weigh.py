"""The command weigh. It measures environments without a study file."""

from __future__ import annotations

import shlex
import sys

import typer

from ...errors import UsageError
from ...units import parse_size
from ..common import duration, quantity
from ..options import OF_ENGINES, RunOptions, with_run_options
from ..output import complain

SHELL_SIGNS = frozenset({"|", "||", "|&", "&", "&&", ";", "<", "<<", ">", ">>", "2>", "2>>", "2>&1", "&>"})
"""Words that only a shell understands."""


@with_run_options("max_blocks", "mode", *OF_ENGINES, time="90s", margin="3%")
def weigh(
    environments: list[str] = typer.Argument(
        ...,
        metavar="BASELINE ENVIRONMENT... [-- COMMAND...]",
        help="Environments, as nearmetal list names them, and a command behind --.",
    ),
    workload: list[str] = typer.Option(
        [],
        "--workload",
        "-w",
        metavar="NAMES",
        help="Kernels and applications: cg, npb:ep.S, hpl:nb=32..512; repeatable.",
    ),
    ranks: int = typer.Option(
        None, "--ranks", metavar="N", min=1, help="MPI ranks; by default 2 for kernels, 1 for a command."
    ),
    instances: int = typer.Option(
        None,
        "--instances",
        metavar="N",
        min=1,
        help="Number of instances that the ranks are divided among; by default 1, or with --attachment "
        "one for each rank.",
    ),
    cpus: int = typer.Option(
        None,
        "--cpus",
        metavar="N",
        min=1,
        help="CPUs of the command or of each rank; by default a command gets all, divided among its ranks, "
        "and a rank of a kernel one.",
    ),
    attachment: list[str] = typer.Option(
        [],
        "--attachment",
        metavar="NAMES",
        help="Network attachments, such as veth-bridge,macvlan,host: each environment is measured with every "
        "one that it supports; repeatable.",
    ),
    lifecycle: str = typer.Option(
        "",
        "--lifecycle",
        metavar="NAME",
        help="Checkpoints or moves of instances: checkpoint, migrate, migrate:load=idle,bandwidth=1GiB/s.",
    ),
    methods: list[str] = typer.Option(
        [],
        "--methods",
        metavar="NAMES",
        help="Methods of --lifecycle, such as precopy,postcopy,criu; by default all of an environment.",
    ),
    memory: str = typer.Option(
        "",
        "--memory",
        metavar="SIZE",
        help="Memory of the guest or process that --lifecycle moves, such as 256MiB.",
    ),
    mpi: bool = typer.Option(False, "--mpi", help="Start the command by mpirun, one process per rank."),
    image: str = typer.Option("host", "--image", metavar="NAME", help="Image that all environments run in."),
    time_limit: str = typer.Option(
        "1h",
        "--time-limit",
        metavar="TIME",
        help="A run of a program that takes longer is ended, and fails.",
    ),
    *,
    options: RunOptions,
) -> int:
    from ...api.catalog import backend_names
    from ...api.measuring import WeighRequest, weighed
    from ..separator import missing_separator
    from .measuring import measure

    words, command = _split_command(environments)
    names = [name for word in words for name in word.split(",")]
    unknown = [name for name in names if name not in backend_names()]
    if unknown and (line := missing_separator(sys.argv[1:])):
        raise UsageError(f"{unknown[0]} is not an environment", remedy=line)
    _warn_of_signs(command)
    request = WeighRequest(
        environments=names,
        workloads=workload,
        command=command,
        ranks=ranks,
        instances=instances,
        cpus=cpus,
        attachments=attachment,
        mpi=mpi,
        image=image,
        lifecycle=lifecycle,
        methods=methods,
        memory=quantity("--memory", memory or None, parse_size, "256MiB"),
        time_limit=duration(time_limit, "--time-limit"),
        seed=options.seed,
    )
    return measure(weighed(request), options)


def _warn_of_signs(command: list[str]) -> None:
    """Warn that no shell interprets the command, if it has words with shell syntax."""
    signs = [word for word in command if word in SHELL_SIGNS]
    if signs:
        words = " ".join(word if word in SHELL_SIGNS else shlex.quote(word) for word in command)
        complain(
            f"{command[0]} gets {shlex.quote(signs[0])} as an argument, since no shell reads the command; "
            f"for a shell: -- sh -c {shlex.quote(words)}"
        )


def _split_command(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the environment names and the command after '--'.

    The parser removes '--', so its position is determined from the arguments of the process.
    """
    if "--" not in sys.argv:
        return words, []
    count = len(sys.argv) - sys.argv.index("--") - 1
    if count == 0:
        raise UsageError(
            "there is no command after --", remedy="nearmetal weigh native namespaces -- ./my_app"
        )
    return words[:-count], words[-count:]

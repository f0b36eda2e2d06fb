"""Runs the user's programs once as they are run by hand, before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..launchers import MpiJob
from ..model.environments.image import HOST
from ..model.study import CommandWorkload, Transport
from ..node.node import Node
from ..node.progress import Progress
from ..subjects.launches.staging import KEPT


def run_by_hand(node: Node, results: Path, progress: Progress) -> bool:
    """Run each of the user's programs once by hand, and choose the view of their working directory. Returns
    whether all workloads of the study were run.

    results: directory of the results of all runs, which programs do not see.
    """
    programs = [w for w in node.study.commands if _runs_by_hand(node, w)]
    if not programs or node.real.nodes:
        return False

    reports = node.scratch / "by-hand"
    reports.mkdir(exist_ok=True)
    # It restricts nothing, and ends processes that a program leaves.
    alone = [node.machine.tools / "nm-rank", "--rank", "0", "--report", str(reports), "--"]

    def run(prefix: Sequence[str]) -> None:
        for w in programs:
            progress.phase(f"{w.name} runs once by hand, as on the command line")
            argv, fixed = _typed(node, w)
            own = {name: value for name, value in w.env.items() if fixed.get(name) is None}
            with node.caller.input.opened() as given:
                done = node.machine.host.run(
                    [*prefix, *alone, *argv],
                    timeout=w.time_limit,
                    env={**node.caller.variables, **fixed, **own},
                    cwd=node.working_directory.path,
                    stdin=given,
                    most=KEPT,
                )
            if done.returncode in w.exit_codes:
                node.works_by_hand.add(w.name)

    if note := node.working_directory.choose(run, results):
        progress.note(note)
    return len(programs) == len(node.study.workloads)


def _runs_by_hand(node: Node, workload: CommandWorkload) -> bool:
    arms = [a for a in node.study.arms() if a.environment.takes(workload.name)]
    here = any(a.environment.image == HOST for a in arms)
    return here and not workload.own_directory and not workload.storage_name


def _typed(node: Node, workload: CommandWorkload) -> tuple[Sequence[str], Mapping[str, str | None]]:
    """Return the command line of a program as its user types it, and the variables of its launcher."""
    ranks = next(a.placement.ranks for a in node.study.arms() if a.environment.takes(workload.name))
    argv = workload.argv_on(ranks)
    if not workload.mpi or workload.per_task:
        return argv, {}
    scratch = node.scratch / "by-hand"
    scratch.mkdir(exist_ok=True)
    launch = node.machine.mpi.launch(
        MpiJob(
            argv=tuple(argv),
            box=node.machine.tools / "nm-box",
            ranks=ranks,
            transport=Transport.SHM,
            interface="lo",
            scratch=str(scratch),
            forward=tuple(workload.env),
            yields=True,
        )
    )
    return launch.argv, launch.env

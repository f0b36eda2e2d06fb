"""A user's own program in a standing arm."""

from __future__ import annotations

from ..model.record import Row
from ..model.study import CommandWorkload
from ..node.node import Session
from ..node.trial import Standing
from ..workloads.command import parse
from .copies import run_copies
from .launching import Program, run_program
from .reports import io_together
from .staging import compared, own_directory, read_outputs


def run_command(session: Session, s: Standing, workload: CommandWorkload) -> tuple[Row, ...]:
    """Run it once; raises TrialFailedError when it does not end in time, or ends with an error."""
    if workload.per_task:
        return run_copies(session, s, workload)
    with own_directory(s, workload) as directory:
        ran = run_program(
            session,
            s,
            Program(
                name=workload.name,
                argv=workload.argv_on(s.arm.placement.ranks),
                mpi=workload.mpi,
                env=workload.env,
                directory=directory,
                exit_codes=workload.exit_codes,
                time_limit=workload.time_limit,
            ),
        )
        return parse(
            workload,
            ran.stdout,
            wall=ran.wall,
            user=ran.user,
            system=ran.system,
            max_rss=ran.max_rss,
            io=io_together(ran.reports),
            parts=ran.parts or ran.accounts,
            files=read_outputs(directory, workload.outputs) if directory is not None else {},
            difference=compared(workload, directory, ran.stdout),
        )

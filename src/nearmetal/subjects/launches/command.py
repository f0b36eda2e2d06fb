"""Runs of a user's own program in a running arm."""

from __future__ import annotations

from ...meters.groups import MeteredArm
from ...model.record import Row
from ...model.study import CommandWorkload
from ...workloads.command import parse
from .copies import run_copies
from .launching import launched_program, run_program
from .reports import record_disk_writes, resources_of
from .staging import compared, own_directory, read_outputs


def run_command(metered: MeteredArm, workload: CommandWorkload) -> tuple[Row, ...]:
    """Run a program once, and return its rows.

    Raises TrialFailedError if it does not end in time, or ends with an error.
    """
    if workload.per_task:
        return run_copies(metered, workload)
    trial = metered.running.trial
    with own_directory(trial, workload) as directory:
        ran = run_program(metered, launched_program(workload, trial, directory))
        record_disk_writes(trial, workload.name, ran.reports)
        return parse(
            workload,
            ran.stdout,
            resources_of(ran.reports, parts=ran.parts or ran.accounts),
            stderr=ran.stderr,
            files=read_outputs(directory, workload.outputs) if directory is not None else {},
            difference=compared(workload, directory, ran.stdout, ran.stderr),
        )

"""Applications in a running arm: their working directories, their preparation, and their runs."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import TrialFailedError
from ...meters.groups import MeteredArm
from ...model.change import replace
from ...model.record import Row
from ...model.study import ApplicationWorkload
from ...node.arms.running_arm import RunningArm
from ...node.survey.programs import place_of
from ...node.trial import Trial
from ...records import safe_name
from ...workloads.applications.contract import Invocation, Output, Place
from ...workloads.applications.registry import application, choices, rows
from .launching import LaunchedProgram, ProgramOutput, run_program
from .reports import resources_of
from .staging import empty, fill, forget_outputs, read_outputs


def prepare_application(metered: MeteredArm, workload: ApplicationWorkload) -> None:
    """Make the working directory of an application and run its preparation there.

    Raises TrialFailedError if a preparing program fails.
    """
    place = _place(metered.running, workload)
    place.directory.mkdir()
    for invocation in application(workload.application).prepare(choices(workload), place):
        _run(metered, workload, place, invocation)


def run_application(metered: MeteredArm, workload: ApplicationWorkload) -> tuple[Row, ...]:
    """Run an application once, in the directory that prepare_application() made, and return its rows.

    Raises TrialFailedError if it does not end in time, or ends with an error.
    """
    known, given = application(workload.application), choices(workload)
    trial, place = metered.running.trial, _place(metered.running, workload)
    invocation = known.command(given, place)
    try:
        ran = _run(metered, workload, place, invocation)
    except TrialFailedError:
        _keep(trial, workload, read_outputs(place.directory, invocation.outputs))
        raise
    output = Output(
        stdout=ran.stdout, stderr=ran.stderr, files=read_outputs(place.directory, invocation.outputs)
    )
    found = known.parse(given, place, output)
    if found.ok is False or any(m.value is None for m in found.metrics):
        _keep(trial, workload, output.files)
    trial.found.facts[workload.name] = dict(found.facts)
    return rows(workload, found, resources_of(ran.reports, parts=ran.parts), accounts=ran.accounts)


def _keep(trial: Trial, workload: ApplicationWorkload, files: Mapping[str, str]) -> None:
    """Copy the output files of a failed run to the trial's log, since its directory is removed with the
    trial."""
    for name, text in files.items():
        trial.log.mkdir(parents=True, exist_ok=True)
        (trial.log / f"{workload.name}.{safe_name(name)}").write_text(text)


def _place(arm: RunningArm, workload: ApplicationWorkload) -> Place:
    assert arm.trial.work is not None
    directory = arm.trial.work / workload.name
    place = place_of(workload, arm.trial.arm, arm.node.study, arm.node.machine.hardware, directory)
    return replace(place, storage=arm.volumes[0].path) if arm.volumes else place


def _run(
    metered: MeteredArm, workload: ApplicationWorkload, place: Place, invocation: Invocation
) -> ProgramOutput:
    if invocation.fresh:
        empty(place.directory)
    fill(place.directory, invocation.files, invocation.copies)
    forget_outputs(place.directory, invocation.outputs)
    argv = invocation.argv
    if invocation.own:
        argv = (str(metered.running.software.tools / argv[0]), *argv[1:])
    return run_program(
        metered,
        LaunchedProgram(
            name=workload.name,
            argv=argv,
            mpi=invocation.mpi,
            cpus=metered.running.trial.cpus_of(),
            env=invocation.env,
            directory=place.directory,
            time_limit=workload.time_limit,
        ),
    )

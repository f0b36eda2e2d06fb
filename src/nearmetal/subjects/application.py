"""Applications in a standing arm: their working directory, what is prepared in it, their runs."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping

from ..errors import TrialFailedError
from ..model.change import replace
from ..model.record import Row
from ..model.study import ApplicationWorkload
from ..node.node import Session
from ..node.trial import Standing
from ..records import safe_name
from ..workloads.applications.contract import Invocation, Output, Place
from ..workloads.applications.registry import application, choices, rows
from .application_place import place_of
from .launching import Program, Ran, run_program
from .reports import io_together
from .staging import fill, read_outputs


def prepare_application(session: Session, s: Standing, workload: ApplicationWorkload) -> None:
    """Make its directory and what its runs need there; raises TrialFailedError."""
    place = _place(session, s, workload)
    place.directory.mkdir()
    for invocation in application(workload.application).prepare(choices(workload), place):
        _run(session, s, workload, place, invocation)


def run_application(session: Session, s: Standing, workload: ApplicationWorkload) -> tuple[Row, ...]:
    """Run it once; raises TrialFailedError when it does not end in time, or ends with an error."""
    known, given, place = application(workload.application), choices(workload), _place(session, s, workload)
    invocation = known.command(given, place)
    try:
        ran = _run(session, s, workload, place, invocation)
    except TrialFailedError:
        _keep(s, workload, read_outputs(place.directory, invocation.outputs))
        raise
    output = Output(
        stdout=ran.stdout,
        stderr=ran.stderr,
        files=read_outputs(place.directory, invocation.outputs),
    )
    found = known.parse(given, place, output)
    if found.ok is False or any(m.value is None for m in found.metrics):
        _keep(s, workload, output.files)
    s.facts[workload.name] = dict(found.facts)
    return rows(
        workload,
        found,
        wall=ran.wall,
        user=ran.user,
        system=ran.system,
        max_rss=ran.max_rss,
        io=io_together(ran.reports),
        parts=ran.parts,
        accounts=ran.accounts,
    )


def _keep(s: Standing, workload: ApplicationWorkload, files: Mapping[str, str]) -> None:
    """What a run that failed wrote, beside what it printed: its directory goes with the trial."""
    for name, text in files.items():
        s.log.mkdir(parents=True, exist_ok=True)
        (s.log / f"{workload.name}.{safe_name(name)}").write_text(text)


def _place(session: Session, s: Standing, workload: ApplicationWorkload) -> Place:
    assert s.work is not None
    directory = s.work / workload.name
    place = place_of(workload, s.arm, session.study, session.machine.hardware, directory)
    return replace(place, storage=s.volumes[0].path) if s.volumes else place


def _run(
    session: Session, s: Standing, workload: ApplicationWorkload, place: Place, invocation: Invocation
) -> Ran:
    if invocation.fresh:
        shutil.rmtree(place.directory)
        place.directory.mkdir()
    fill(place.directory, invocation.files, invocation.copies)
    # What an earlier run left is not to be taken for this one's.
    for name in invocation.outputs:
        with contextlib.suppress(FileNotFoundError):
            (place.directory / name).unlink()
    argv = invocation.argv
    if invocation.own:
        argv = (str(session.software_of(s.arm).tools / argv[0]), *argv[1:])
    return run_program(
        session,
        s,
        Program(
            name=workload.name,
            argv=argv,
            mpi=invocation.mpi,
            env=invocation.env,
            directory=place.directory,
            time_limit=workload.time_limit,
        ),
    )

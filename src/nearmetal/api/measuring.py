"""Measures a study, resumes a run, or measures environments without a study file."""

from __future__ import annotations

import os
import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from .. import RESULTS
from ..environments.registry import named_backend
from ..errors import RunError, UsageError
from ..host import LocalHost
from ..model.environments.image import HOST
from ..model.study import Mpi, Study
from ..node.progress import NullProgress
from ..records import ResultsDirectory
from .catalog import catalog, require_images
from .results import Analyse, Results, analysed, frozen_study, write_report
from .studies import draw_seed, study_from, study_text
from .trust import require_trust
from .workload_names import (
    misplaced,
    named_attachments,
    named_lifecycle,
    named_methods,
    named_workloads,
)

if TYPE_CHECKING:
    from ..environments import Backend
    from ..node.machine import Machine
    from ..node.progress import Progress
    from ..records import ResultsDirectory
    from ..run.decide import Stop as Stop
    from ..run.run import Order as Order
    from ..run.run import Outcome as Outcome
    from ..workloads.build import StoredTools


def run(
    study: Study | str | os.PathLike[str],
    *,
    time: float | None = None,
    max_blocks: int | None = None,
    seed: int | None = None,
    results: Path = Path(RESULTS),
    force: bool = False,
    progress: Progress | None = None,
) -> Results:
    """Run a study to its end, and analyse it.

    study: a Study, the path of a study file, or the name of a built-in study.
    time: time limit in seconds; None for that of the study.
    max_blocks: largest number of blocks of this call; a resumed run may exceed it.
    seed: seed of all random orders; None for the one in the study, or a random one if there is none.
    results: parent of the new results directory.
    force: whether to measure even if another run uses this machine.
    progress: receives the events of the run.

    Raises:
        StudyError, UsageError: the study or an argument is wrong.
        UnavailableError: the baseline cannot run here.
        BusyError: another run uses this machine.
        RunError: the run was interrupted before its first block.
    """
    if not isinstance(study, Study):
        study = study_from(os.fspath(study), seed, _shown(progress).note)
    elif seed is not None:
        study = replace(study, design=replace(study.design, seed=seed))
    study = within(study, time)
    own = order(results, "nearmetal.api.run", clock.time(), force=force)
    return complete_run(measured(study, own, _shown(progress), max_blocks=max_blocks))


def resume(
    directory: str | os.PathLike[str],
    *,
    time: float | None = None,
    max_blocks: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    trust: bool = False,
) -> Results:
    """Resume the run of a results directory.

    trust: execute its commands even if this user has not made the directory.

    See run() for the other arguments and the errors. Raises UsageError for a directory that is not trusted.
    """
    found = ResultsDirectory.open(Path(directory))
    require_trust(found.path, trust=trust)
    study = within(frozen_study(found), time)
    own = order(found.path.parent, "nearmetal.api.resume", clock.time(), force=force)
    return complete_run(resumed(study, found, own, _shown(progress), max_blocks=max_blocks))


def weigh(
    *environments: str,
    results: Path = Path(RESULTS),
    force: bool = False,
    progress: Progress | None = None,
    **settings: Unpack[WeighSettings],
) -> Results:
    """Measure environments against the first of them, without a study file.

    settings: see WeighRequest.

    The other arguments and the errors are those of run(). Raises TypeError for an unknown setting.
    """
    request = WeighRequest(environments=environments, **settings)
    return run(weighed(request), results=results, force=force, progress=progress)


class WeighSettings(TypedDict, total=False):
    """The fields of WeighRequest apart from the environments."""

    workloads: Sequence[str]
    command: Sequence[str]
    ranks: int | None
    instances: int | None
    cpus: int | None
    attachments: Sequence[str]
    mpi: bool
    image: str
    lifecycle: str
    methods: Sequence[str]
    memory: int | None
    margin: float
    time: float
    time_limit: float | None
    seed: int | None


@dataclass(frozen=True, kw_only=True)
class WeighRequest:
    """A comparison of environments with the first of them, without a study file.

    workloads: kernels and applications as on the command line: cg, npb:ep.S, hpl:nb=32..512.
    command: a program and its arguments, instead of workloads.
    ranks: MPI ranks; if None, 1 for a command without `mpi`, else 2.
    instances: number of instances for the ranks; if None, 1, or one for each rank if attachments are given.
    cpus: CPUs of the command or of each rank; if None, a command gets all, divided among its ranks, and a
        rank of a kernel or an application one.
    attachments: each environment is measured with each of these attachments that it supports; lists as on the
        command line.
    mpi: whether to start the command by mpirun, one process per rank.
    lifecycle: checkpoint or migrate, with its keys: migrate:load=idle,bandwidth=1GiB/s; instead of workloads
        or a command, which then have no ranks, instances, attachments and mpi.
    methods: of the lifecycle; lists as on the command line. All that a backend offers if empty.
    memory: bytes of the guest or the process that the lifecycle moves.
    margin: smallest material difference, as a fraction.
    time: time limit of the run, in seconds.
    time_limit: time limit of one program run, in seconds. A run that takes longer is killed and counts as
        failed.
    seed: seed of all random orders; drawn if None.
    """

    environments: Sequence[str]
    workloads: Sequence[str] = ()
    command: Sequence[str] = ()
    ranks: int | None = None
    instances: int | None = None
    cpus: int | None = None
    attachments: Sequence[str] = ()
    mpi: bool = False
    image: str = HOST
    lifecycle: str = ""
    methods: Sequence[str] = ()
    memory: int | None = None
    margin: float = 0.03
    time: float = 90.0
    time_limit: float | None = 3600.0
    seed: int | None = None


def weighed(request: WeighRequest) -> Study:
    """Make the study that a request asks for.

    Raises UsageError, or UnavailableError if the image was not built.
    """
    if len(set(request.environments)) != len(request.environments):
        raise UsageError("an environment is named twice; the baseline against itself is measured anyway")
    study = _lifecycle(request) if request.lifecycle else _workloads(request)
    require_images(study)
    return study


def _workloads(request: WeighRequest) -> Study:
    from .adhoc.weigh import weigh_study, with_time_limit

    if request.methods or request.memory is not None:
        name = "--methods" if request.methods else "--memory"
        raise UsageError(f"{name} is only for --lifecycle", remedy="--lifecycle migrate, or checkpoint")
    study = weigh_study(
        _backends(request),
        workloads=named_workloads(request.workloads, catalog(), study_from("quick", 0)),
        command=request.command,
        ranks=request.ranks or (1 if request.command and not request.mpi else 2),
        instances=request.instances,
        cpus=request.cpus,
        mpi=request.mpi,
        margin=request.margin,
        seed=_seed(request),
        max_time=request.time,
        image=request.image,
        attachments=named_attachments(request.attachments),
    )
    for w in study.applications:
        if why := misplaced(w, study):
            raise UsageError(f"--workload {w.name}: {why[0]}")
    return study if request.time_limit is None else with_time_limit(study, request.time_limit)


def _lifecycle(request: WeighRequest) -> Study:
    from .adhoc.weigh_lifecycle import lifecycle_study

    given = {"workloads": request.workloads, "a command": request.command, "ranks": request.ranks}
    given |= {
        "instances": request.instances,
        "cpus": request.cpus,
        "attachments": request.attachments,
        "mpi": request.mpi,
    }
    if wrong := next((name for name, value in given.items() if value), None):
        raise UsageError(f"--lifecycle measures the instances themselves and does not accept {wrong}")
    return lifecycle_study(
        _backends(request),
        named_lifecycle(request.lifecycle, request.memory),
        named_methods(request.methods),
        margin=request.margin,
        seed=_seed(request),
        max_time=request.time,
        image=request.image,
    )


def _backends(request: WeighRequest) -> dict[str, Backend]:
    return {name: named_backend(name) for name in request.environments}


def _seed(request: WeighRequest) -> int:
    return draw_seed() if request.seed is None else request.seed


def machine_for(
    study: Study,
    progress: Progress,
    *,
    machine: Machine | None = None,
    require_kvm: bool = False,
    tools: StoredTools | None = None,
) -> tuple[Machine, Study]:
    """Return this machine, ready to measure the study, and the study with the accelerator of each guest (KVM
    or emulation).

    machine: this machine, ready to measure, if the caller has it; None to prepare it.
    require_kvm: as in with_accelerators().
    tools: compiled programs of the run; see the argument `stored` of prepare_machine().

    Raises UnavailableError if this machine lacks what the study needs.
    """
    from ..node.survey.accelerator import with_accelerators

    here = machine or machine_here(progress, study.design.mpi, tools)
    return with_accelerators(here, study, progress, require_kvm=require_kvm)


def checked(
    study: Study, progress: Progress, *, machine: Machine | None = None, require_kvm: bool = False
) -> Study:
    """Return the study as it would run here, without the parts that cannot run on this machine.

    Parts that are left out are reported through `progress`. Nothing is measured. Raises the same errors as
    measured() before its rehearsal.

    machine, require_kvm: as in machine_for().
    """
    from ..run.run import check_study

    here, study = machine_for(study, progress, machine=machine, require_kvm=require_kvm)
    return check_study(here, study, progress)[0]


def checked_again(study: Study, directory: ResultsDirectory, progress: Progress) -> Study:
    """Return the study of a run as it would continue here. Nothing is measured. Raises the same errors as
    resumed() before its first block."""
    from ..run.reopening import check_reopened

    machine, study = machine_for(study, progress)
    return check_reopened(machine, study, directory, progress)[0]


def machine_here(progress: Progress, mpi: Mpi | None, tools: StoredTools | None = None) -> Machine:
    """Return this machine, ready to measure. Raises UnavailableError, which names what to install.

    mpi: the requested MPI; None for the one that mpirun belongs to.
    tools: as in machine_for().
    """
    from ..node.machine import prepare_machine

    return prepare_machine(LocalHost(), progress, mpi, tools)


def measured(
    study: Study,
    order: Order,
    progress: Progress,
    *,
    max_blocks: int | None = None,
    require_kvm: bool = False,
) -> Outcome:
    """Run a study to its end. The result is not analysed.

    max_blocks: largest number of blocks, for this run only. It is not stored, so a resumed run may go
        further.
    require_kvm: as in with_accelerators().

    Raises the errors of run().
    """
    from ..run.run import start_run

    machine, study = machine_for(study, progress, require_kvm=require_kvm)
    order = replace(order, text=study_text(study))  # with the emulators, which the reports name
    return start_run(machine, bounded(study, max_blocks), order, progress)


def resumed(
    study: Study,
    directory: ResultsDirectory,
    order: Order,
    progress: Progress,
    *,
    max_blocks: int | None = None,
) -> Outcome:
    """Resume a run, and run it to its end. The result is not analysed. See measured() for max_blocks, and
    resume_run() for the errors."""
    from ..run.run import resume_run

    machine, study = machine_for(study, progress)
    return resume_run(machine, bounded(study, max_blocks), directory, order, progress)


def no_more_rounds(found: Results, study: Study) -> Stop | None:
    """Return why a run would stop before its next round if it were resumed; None if it would not.

    study: the study of the run, with the design with which it would be resumed.
    """
    from ..analysis import verdict_state
    from ..run.decide import Clock, should_stop

    if not found.analysis.blocks:
        return None
    verdicts = verdict_state(found.analysis, study)
    return should_stop(study.design, verdicts, found.analysis.blocks, Clock(elapsed=0.0, block_seconds=0.0))


def bounded(study: Study, max_blocks: int | None) -> Study:
    """Return the study with at most max_blocks blocks; unchanged for None."""
    if max_blocks is None:
        return study
    return replace(study, design=replace(study.design, max_blocks=max_blocks))


def order(results: Path, command: str, started: float, *, force: bool, overrun: bool = False) -> Order:
    """Return the user's request, apart from the study. See run.run.Order for the arguments.

    results: parent of the new results directory.
    """
    from ..run.run import Order

    return Order(parent=results, command=command, started=started, force=force, overrun=overrun)


def within(study: Study, time: float | None) -> Study:
    """Return the study with this time limit in seconds; unchanged for None."""
    return study if time is None else replace(study, design=replace(study.design, max_time=time))


def _shown(progress: Progress | None) -> Progress:
    return progress or NullProgress()


def complete_run(
    outcome: Outcome, *, analyse: Analyse = analysed, show: Callable[[Results], None] | None = None
) -> Results:
    """Complete a run: analyse it, write its report if a round was measured, and close the directory unless
    the run was interrupted. Returns the analysed run.

    show: called with the analysed run before the report is written, which takes longer.

    Raises RunError if there is nothing to analyse.
    """
    if outcome.directory is None:
        raise RunError(outcome.stopped, remedy="run the study again")
    found = analyse(outcome.directory)
    if show is not None:
        show(found)
    if found.analysis.blocks:
        write_report(found)
    if not outcome.interrupted:
        outcome.directory.close()
    return replace(found, stopped=outcome.stopped, interrupted=outcome.interrupted)

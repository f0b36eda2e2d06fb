"""Runs whose blocks are run by workers elsewhere. An engine starts the workers; this process coordinates
them."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..engines import Job, NamesNodes, State, engine_names, load_engine, parse_options
from ..errors import RecordsError, RunError, UnavailableError, UsageError
from ..host import LocalHost
from ..host.caller import is_file
from ..host.cgroups import inside_own_group
from ..host.untrusted import UntrustedDirectory
from ..model.record import section
from ..model.study import Study
from ..records import Orders, ResultsDirectory
from ..records.claims import LEASE
from ..records.disk import resume_line
from ..records.own_runs import Workers, own_run, studies_digest
from ..study_file import load_text
from .measuring import bounded, machine_for
from .nodes import nearmetal_here, node_options
from .results import frozen_study
from .studies import Note, ignore, study_text
from .submitted import Submitted, remember

if TYPE_CHECKING:
    from ..model.plan import NextBlock
    from ..node.machine import Machine
    from ..node.progress import Progress
    from ..run.present import Present
    from ..run.run import Order, Outcome
    from ..run.workers.worker import BlockRun as BlockRun

LOGS = "workers"
"""Directory in a results directory for the output of the workers."""
STATES_EVERY = 5.0
"""Seconds between two queries of the states of the workers."""
BY_THEMSELVES = 3.0
"""Seconds to wait for idle workers to end by themselves when there are no more orders."""
ENDING = 90.0
"""Seconds to wait for cancelled workers, which give their blocks back and undo everything."""
SPARE = 600.0
"""Seconds of a worker's time limit for its preparation and rehearsal, in addition to the time of the
study."""
LAST_LINES, LAST_BYTES = 3, 10_000


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The workers of a run.

    engine: name of the engine that starts them.
    workers: their number.
    options: options of the engine.
    lease: seconds after which a worker that does not renew its claim counts as lost.
    """

    engine: str
    workers: int
    options: Mapping[str, str]
    lease: float = LEASE

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes of the workers; () if the engine chooses them."""
        engine = load_engine(self.engine)
        return engine.nodes(self.options)[: self.workers] if isinstance(engine, NamesNodes) else ()


def requested_fleet(
    engine: str | None,
    *,
    workers: int | None = None,
    nodes: str | None = None,
    options: Sequence[str] = (),
    lease: float | None = None,
    note: Note = ignore,
) -> Fleet | None:
    """Return the workers that a user requests; None without an engine.

    workers: their number; None for one, or one on each node of the inventory.
    nodes: source of an inventory; None if the engine or its options choose the nodes.
    options: options of the engine, each as KEY=VALUE.
    lease: None for LEASE.
    note: called with notes on the inventory.

    Raises UsageError for an unknown engine or option, for settings without an engine, and for an inventory
    with an engine that chooses the nodes itself. Errors of inventory.load_inventory() are passed on.
    """
    if engine is None:
        if (workers or 1) > 1 or options or nodes is not None or lease is not None:
            raise UsageError(
                "--workers, --nodes, --engine-option and --lease need an engine",
                remedy=f"--engine, one of: {', '.join(engine_names())}",
            )
        return None
    loaded = load_engine(engine)
    known = parse_options(engine, loaded, options)
    if nodes is not None:
        if not isinstance(loaded, NamesNodes):
            raise UsageError(
                f"--nodes: engine {engine} chooses the nodes itself",
                remedy="--engine ssh, or its own options: --engine-option extra='…'",
            )
        if "hosts" in known:
            raise UsageError(
                "--nodes and --engine-option hosts= both name the nodes", remedy="give one of them"
            )
        known = {**node_options(nodes, note), **known}
        workers = workers or len(loaded.nodes(known))
    return Fleet(engine=engine, workers=workers or 1, options=known, lease=lease or LEASE)


def run_by_engine(
    study: Study,
    order: Order,
    fleet: Fleet,
    progress: Progress,
    *,
    max_blocks: int | None = None,
    directory: ResultsDirectory | None = None,
) -> Outcome:
    """Run a study by workers of an engine. The result is not analysed.

    max_blocks: largest number of blocks, for this call only; None for that of the study.
    directory: the run to continue; None for a new one.

    Raises UsageError, UnavailableError and RunError of the engine, and RunError if all workers end early.
    """
    from ..node.machine import new_label
    from ..run.interrupt import interruptible
    from ..run.present import Present
    from ..run.run import Outcome
    from ..run.workers.shared import coordinate, coordinating

    if study.design.nodes is not None:
        raise UsageError(
            "the nodes of its placements are machines (design: nodes), which one run uses at a time",
            remedy="leave out --engine",
        )
    if directory is None:
        ResultsDirectory.check_parent(order.parent)
        directory = ResultsDirectory.create(order.parent, study.name, study_yaml=study_text(study))
    else:
        directory.reopen()
    engine, host = load_engine(fleet.engine), LocalHost()
    label = new_label()
    with interruptible(lambda: None), coordinating(directory, label, fleet.lease) as claims:
        present = Present(directory, claims)
        before = own_run(directory.path)  # such as workers of a coordinator that was killed
        remember(directory, before.workers if before else None)  # fails before there are more workers
        if study.commands and is_file():
            progress.note("programs on workers read an empty standard input, not this one")
        progress.phase(f"submitting {fleet.workers} workers to {fleet.engine}")
        ids = engine.submit(host, _job(study, directory, fleet, force=order.force), fleet.options)
        workers = Submitted(engine=engine, ids=ids, options=fleet.options)
        remember(directory, Workers(engine=fleet.engine, options=fleet.options, ids=ids), fleet.nodes)

        stopped, interrupted = "interrupted", False
        try:
            stopped = coordinate(
                bounded(study, max_blocks),
                directory,
                claims,
                present,
                fleet.workers,
                _watch(workers.states, directory, fleet.lease, present),
                progress,
                nodes=fleet.nodes,
                lease=fleet.lease,
                overrun=order.overrun,
            )
        except KeyboardInterrupt:
            interrupted = True
        finally:
            progress.phase("ending the workers")
            Orders(directory.path).stop()
            try:
                if not interrupted:
                    _ended(workers.states, within=BY_THEMSELVES)
            except KeyboardInterrupt:
                interrupted = True
            workers.cancel()  # also removes jobs that are held
            if _ended(workers.states, within=ENDING):
                with suppress(RecordsError):  # their states are then still asked for, and are right
                    remember(directory, None)
            else:
                progress.note(f"some workers have not ended within {ENDING:.0f} s")
    there = directory if directory.frozen else None
    return Outcome(directory=there, stopped=stopped, interrupted=interrupted)


def _job(study: Study, directory: ResultsDirectory, fleet: Fleet, *, force: bool) -> Job:
    logs = _make_log_directory(directory.path.resolve())
    limit = study.design.max_time
    seconds = None if limit is None else 1.25 * limit + SPARE
    argv = [
        *(*nearmetal_here(), "run-block", str(directory.path.resolve())),
        *("--json", "--lease", f"{fleet.lease:g}s", "--studies", studies_digest(directory.path)),
        *(("--time", f"{seconds:.0f}s") if seconds is not None else ()),
        *(() if fleet.engine in _NO_GROUPS else ("--inside",)),
        *(("--force",) if force else ()),
    ]
    return Job(
        name=f"nearmetal-{study.name}",
        argv=tuple(argv),
        workers=fleet.workers,
        directory=Path.cwd(),
        logs=logs,
        cpus=max(arm.placement.ranks * (arm.placement.width or 1) for arm in study.arms()),
        seconds=seconds,
    )


def _make_log_directory(directory: Path) -> Path:
    """Make the directory for the output of the workers, and return its path.

    Raises RecordsError if the output could be appended to a file elsewhere. Batch systems follow links.
    """
    logs = directory / LOGS
    with suppress(FileExistsError):
        logs.mkdir()
    if not stat.S_ISDIR(logs.lstat().st_mode):
        raise RecordsError("is not a directory", where=str(logs), remedy="remove it")
    for file in logs.iterdir():
        facts = file.lstat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
            reason = "is not a file of its own, and workers write beside it"
            raise RecordsError(reason, where=str(file), remedy="remove it")
    return logs


_NO_GROUPS = ("local", "ssh")
"""Engines that do not end a worker through its control group. Their workers need no --inside."""


def _watch(
    states: Callable[[], Mapping[str, State]], directory: ResultsDirectory, lease: float, present: Present
) -> Callable[[], None]:
    """Return a function that raises RunError once no worker is left. That is assumed if, for longer than a
    lease, no worker has renewed its claim to be present, and either the engine reports that all have ended,
    or some have begun and none is waiting to be started.

    While the engine does not answer, workers that waited still wait, and none has ended.

    One report of the engine is not enough. A batch system that is restarted knows no worker for a while, a
    machine that is switched off does not report the end of its worker, and the records of the last block may
    arrive after its worker has ended.
    """
    due, ended, silent, waiting = time.monotonic() + STATES_EVERY, 0, 0, False

    def watch() -> None:
        nonlocal due, ended, silent, waiting
        if time.monotonic() < due:
            return
        due = time.monotonic() + STATES_EVERY
        known, workers = set(states().values()), present.workers()
        held = any(worker.held for worker in workers)
        if State.UNKNOWN not in known:
            waiting = State.WAITING in known
        ended = ended + 1 if known <= {State.ENDED} else 0
        silent = 0 if held or not workers or waiting else silent + 1
        if not held and any(n > 1 and n * STATES_EVERY > lease for n in (ended, silent)):
            said = _said(directory)
            raise RunError(
                f"all workers {'have ended' if ended else 'are silent'}{': ' if said else ''}{said}",
                where=str(directory.path),
                remedy=f"see {LOGS}/ in it; go on with {resume_line(directory.path)} --engine ENGINE",
            )

    return watch


def _said(directory: ResultsDirectory) -> str:
    """Return the last lines of the output of the worker that printed last; '' if there is no output."""
    logs = UntrustedDirectory(directory.path / LOGS)
    written = {
        name: facts.st_mtime
        for name in logs.names()
        if name.endswith(".out") and (facts := logs.stat(name)) is not None and stat.S_ISREG(facts.st_mode)
    }
    if not written:
        return ""
    with logs.open_file(max(written, key=written.__getitem__)) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
        lines = file.read(LAST_BYTES).decode(errors="replace").splitlines()
    return " | ".join(lines[-LAST_LINES:])


def _ended(states: Callable[[], Mapping[str, State]], within: float) -> bool:
    """Wait until all workers have ended, at most `within` seconds. Returns whether they have."""
    until = time.monotonic() + within
    while not all(s is State.ENDED for s in states().values()):
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
    return True


def serve_here(
    directory: ResultsDirectory,
    order: Order,
    done: Callable[[BlockRun], None],
    progress: Progress,
    *,
    seconds: float | None = None,
    lease: float | None = None,
    node: str = "",
    inside: bool = False,
) -> None:
    """Run the blocks that a coordinator orders, on this machine. If the compiled programs cannot be built
    here, those of another node are used.

    done: called after each block.
    seconds: time from now until the worker must have ended; None for no limit.
    lease: None for LEASE.
    node, inside: see run.workers.serving.Terms.

    Raises the errors of machine_for(), and of require_own_plan() and serve() in run.workers.serving.
    """
    from ..run.workers.serving import TOOLS, Terms, await_plan, require_own_plan, serve, taking_part
    from ..workloads.build import StoredTools

    terms = Terms(
        until=None if seconds is None else time.monotonic() + seconds,
        inside=inside,
        command=order.command,
        started=order.started,
        lease=lease or LEASE,
        node=node,
        force=order.force,
    )
    require_own_plan(directory)
    if directory.frozen:
        study = frozen_study(directory)
    else:
        study = load_text(directory.study_yaml, str(directory.path / "study.yaml"), None)
    with taking_part(directory, terms) as label:

        def prepared() -> tuple[Machine, Study]:
            described = section(directory.provenance, "tools") if directory.frozen else {}
            tools = StoredTools(place=directory.path / TOOLS, described=described)
            return machine_for(study, progress, tools=tools)

        try:
            machine, study = prepared()
        except UnavailableError:  # such as no compiler: the programs of another node may fit
            if directory.frozen or not await_plan(directory, label, terms.lease):
                raise
            require_own_plan(directory)
            machine, study = prepared()
        serve(machine, study, directory, terms, label, done, progress)


def block_orders(directory: ResultsDirectory, study: Study, numbers: Sequence[int]) -> list[NextBlock]:
    """Return an order for the next attempt at each of these blocks of a run; see worker.whole_blocks().

    Raises UsageError if a number is repeated.
    """
    from ..run.workers.worker import whole_blocks

    if len(set(numbers)) < len(numbers):
        raise UsageError("a round is named twice")
    return whole_blocks(study, directory, numbers)


def run_blocks_here(
    directory: ResultsDirectory,
    study: Study,
    order: Order,
    blocks: Iterable[NextBlock],
    done: Callable[[BlockRun], None],
    progress: Progress,
    *,
    inside: bool = False,
) -> None:
    """Run blocks of a run on this machine.

    done: called after each block.
    inside: make control groups only below that of this process.

    Raises the errors of worker.run_orders() and machine_for().
    """
    from ..run.workers.worker import run_orders

    with inside_own_group() if inside else nullcontext():
        machine, study = machine_for(study, progress)
        run_orders(
            machine, study, directory, blocks, done, progress, command=order.command, force=order.force
        )

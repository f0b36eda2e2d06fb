"""A worker that opens this machine once, and runs the blocks that a coordinator orders in a shared results
directory, until its time limit is near or nothing is left to run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...errors import NearmetalError
from ...host import cgroups
from ...host.lock import living_runs, machine_lock
from ...model.plan import NextBlock
from ...model.record import Claim
from ...model.roof import roof_record
from ...model.study import Study
from ...node.machine import Machine, new_label
from ...node.node import Node, open_node, sweep
from ...node.progress import Progress
from ...records import (
    CLAIMS,
    COORDINATOR,
    LEFT_OUT,
    PRESENT,
    Claims,
    Orders,
    ResultsDirectory,
    last_holder,
    require_owner,
)
from ...records.directory import PLAN, PROVENANCE, STUDY
from ...workloads.build import store_tools
from ..block import Recording
from ..bounds.measuring import RoofMeter
from ..describing import join_run
from ..interrupt import interruptible
from ..reopening import reopened_node
from ..run import check_study, fix_plan
from .worker import BlockRun, Worker, at_work, check_order

TOOLS = "tools"
"""Directory of compiled programs in a shared results directory."""
POLL = 0.2
"""Seconds between two looks at the orders."""
COORDINATOR_EVERY = 5.0
"""Seconds between two checks whether the coordinator still runs."""
REHEARSAL_BLOCK = 0


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The conditions under which a worker runs.

    until: monotonic seconds at which it must have ended; None for no limit.
    inside: make control groups only below the group in which it was started; see cgroups.inside_own_group().
    command: shown to the user of another run, which finds the machine in use.
    started: Unix seconds when the command was started.
    lease: seconds for which its claims are valid without renewal.
    node: name of this node; '' for the name that this machine has.
    force: start even if another run is active.
    """

    until: float | None
    inside: bool
    command: str
    started: float
    lease: float
    node: str = ""
    force: bool = False

    @property
    def name(self) -> str:
        return self.node or os.uname().nodename


def require_own_plan(directory: ResultsDirectory) -> None:
    """Raise RecordsError if another user wrote the study or the plan of a run. See require_owner()."""
    for name in (STUDY, PLAN, PROVENANCE):
        if directory.files.exists(name):
            require_owner(directory.files, name)


@contextmanager
def taking_part(directory: ResultsDirectory, terms: Terms) -> Iterator[str]:
    """Make this process one of the workers of a run while the body runs. Yields the label of this worker.

    If the body raises NearmetalError before this node is described, the reason is stored for the coordinator.
    """
    label = new_label()
    present = Claims(directory.path / PRESENT, label, terms.lease, terms.name)
    try:
        with present.holding(present.join()):
            try:
                yield label
            except NearmetalError as e:
                if label not in directory.node_files.read():
                    directory.node_files.write(label, {LEFT_OUT: e.what}, node=terms.name)
                raise
    finally:
        present.close()


def await_plan(directory: ResultsDirectory, label: str, lease: float) -> bool:
    """Wait until another worker has rehearsed the study and stored its compiled programs. Returns True then,
    and False if the run ends before, or if no worker has been rehearsing for `lease` seconds.
    """
    claims = Claims(directory.path / CLAIMS, label, lease)
    coordinated, until = _Coordinated(directory, claims), time.monotonic() + lease
    try:
        while not directory.frozen:
            rehearsing = last_holder(claims.place, claims.now())
            if rehearsing is not None and rehearsing.held:
                until = time.monotonic() + lease
            if time.monotonic() > until or Orders(directory.path).stopped or not coordinated.there():
                return False
            time.sleep(POLL)
    finally:
        claims.close()
    return True


def serve(
    machine: Machine,
    study: Study,
    directory: ResultsDirectory,
    terms: Terms,
    label: str,
    done: Callable[[BlockRun], None],
    progress: Progress,
) -> None:
    """Run the blocks that are ordered in a results directory. The first worker of a run also rehearses the
    study and writes the plan.

    label: label of this worker; see taking_part().
    done: called after each block.

    Raises BusyError if another run holds the machine, KeyboardInterrupt if this worker receives SIGTERM (its
    claim is then given back and everything is undone), and the errors of check_study(), fix_plan() and
    reopened_node().
    """
    with (
        interruptible(partial(sweep, progress, label)),
        machine_lock(label, command=terms.command, force=terms.force, group=str(directory.path.resolve())),
        ExitStack() as stack,
    ):
        claims = Claims(directory.path / CLAIMS, label, terms.lease)
        stack.callback(claims.close)
        if terms.inside:
            stack.enter_context(cgroups.inside_own_group())
        opened = _opened(machine, study, directory, claims, label, terms, progress, stack)
        if opened is None:
            return
        node, recording, known = opened
        roofs = _NodeRoofs(node, directory, known, terms, progress)
        worker = stack.enter_context(at_work(node, recording, directory, label))
        _run_orders(worker, directory, claims, terms, done, progress, roofs)


def _opened(
    machine: Machine,
    study: Study,
    directory: ResultsDirectory,
    claims: Claims,
    label: str,
    terms: Terms,
    progress: Progress,
    stack: ExitStack,
) -> tuple[Node, Recording, Mapping[str, Any]] | None:
    """Open the node of this worker, and rehearse the study on it. Returns the node, what is recorded about
    the trials, and the description of the node; None if the run has ended."""
    coordinator, orders = _Coordinated(directory, claims), Orders(directory.path)
    while not directory.frozen:
        if orders.stopped:
            return None
        claim = claims.take_over(REHEARSAL_BLOCK)
        if claim is not None:
            with claims.holding(claim):
                study, backends, absent = check_study(machine, study, progress)
                begin = time.monotonic()
                node = stack.enter_context(open_node(machine, study, backends, label, progress))
                store_tools(machine.built, directory.path / TOOLS)
                node, recording = fix_plan(
                    node,
                    directory,
                    absent,
                    progress,
                    begin=begin,
                    started=terms.started,
                    command=terms.command,
                    name=terms.name,
                )
                return node, recording, directory.nodes()[label]
        if not coordinator.there():
            return None
        time.sleep(POLL)
    if orders.stopped or directory.closed:
        return None  # reopening the directory would remove its checksums
    require_own_plan(directory)
    study = study.with_arms(directory.plan().arms)
    node, recording = stack.enter_context(
        reopened_node(machine, study, directory, label, progress, name=terms.name)
    )
    return node, recording, join_run(node, directory, recording, terms.name, progress)


class _Coordinated:
    """Tells whether a coordinator of this run still runs. It looks at most every COORDINATOR_EVERY
    seconds."""

    def __init__(self, directory: ResultsDirectory, claims: Claims) -> None:
        """claims: any claims in the directory; they give the time of the file server."""
        self._place, self._claims = directory.path / COORDINATOR, claims
        self._next, self._known = 0.0, True

    def there(self) -> bool:
        if time.monotonic() >= self._next:
            found = last_holder(self._place, self._claims.now())
            self._known = found is not None and found.held
            self._next = time.monotonic() + COORDINATOR_EVERY
        return self._known


def _run_orders(
    worker: Worker,
    directory: ResultsDirectory,
    claims: Claims,
    terms: Terms,
    done: Callable[[BlockRun], None],
    progress: Progress,
    roofs: _NodeRoofs,
) -> None:
    longest, first = 0.0, True
    study, coordinator = worker.node.study, _Coordinated(directory, claims)
    while True:
        left = None if terms.until is None else terms.until - time.monotonic()
        if left is not None and left <= longest:
            progress.note("this worker ends: its time is too short for another round")
            return
        found = next_order(directory, claims, coordinator.there, terms.name)
        if found is None:
            return
        order, claim = found
        with claims.holding(claim):
            check_order(study, order)
            if first:  # this machine has verified nothing yet
                kernels = frozenset(w.name for w in study.kernels)
                order = replace(order, verified={arm.name: kernels for arm in study.arms()})
            run = worker.run_whole(order)
        longest, first = max(longest, run.seconds), False
        done(run)
        roofs.step()


class _NodeRoofs:
    """Measures the upper bounds of this node between blocks, and adds them to the description of the node.
    Nothing is measured while several runs or workers use the machine, since they would disturb each other."""

    def __init__(
        self,
        node: Node,
        directory: ResultsDirectory,
        known: Mapping[str, Any],
        terms: Terms,
        progress: Progress,
    ) -> None:
        """known: the description of the node."""
        self._directory, self._known, self._name = directory, known, terms.name
        self._begin = time.monotonic()
        self._node, self._progress = node, progress
        self._meter: RoofMeter | None = None

    def step(self) -> None:
        """Measure one upper bound, if it is time for one."""
        if len(living_runs()) > 1:
            return
        if self._meter is None:  # the wanted bounds are written before the first order is given
            self._meter = RoofMeter(self._node, self._directory.wanted_roofs(), self._progress)
        if self._meter.step(time.monotonic() - self._begin):
            roofs = [roof_record(roof) for roof in self._meter.roofs()]
            self._directory.node_files.write(
                self._node.label, {**self._known, "roofs": roofs}, node=self._name
            )


def next_order(
    directory: ResultsDirectory, claims: Claims, coordinated: Callable[[], bool], name: str
) -> tuple[NextBlock, Claim] | None:
    """Claim the next order for this node, and return it with the claim. Waits for an order while a
    coordinator runs; returns None if there will be no more.

    coordinated: returns whether a coordinator runs.
    name: name of this node.
    """
    orders = Orders(directory.path)
    while True:
        stopped = orders.stopped or directory.closed
        for order in orders.read():
            number = order.block.number
            if order.node in ("", name) and claims.find(number, order.attempt) is None:
                claim = claims.take(number, order.attempt)
                if claim is not None:
                    return order, claim
        if stopped or not coordinated():
            return None
        time.sleep(POLL)

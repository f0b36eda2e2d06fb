"""Workers that share a results directory with their coordinator, and communicate only through its files: the
coordinator writes orders, the workers write claims and records."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ...environments.registry import named_backend
from ...model.plan import NextBlock
from ...model.record import TrialRecord
from ...model.study import Study
from ...node.progress import Progress
from ...plan import node_of
from ...records import (
    CLAIMS,
    COORDINATOR,
    Claims,
    ClaimState,
    NewTrials,
    Orders,
    ResultsDirectory,
    Trials,
    claimed_attempts,
    last_attempts,
    last_holder,
)
from ...records.claims import LEASE
from ...records.directory import TRIALS
from ...subjects.registry import without_unable
from ..present import Present, await_nodes
from ..run import coordinated_elsewhere, planner_then
from .coordinator import Coordinator

POLL = 0.2
"""Seconds between two looks for new records."""
CLAIMS_EVERY = 1.0
"""Seconds between two looks at the claims of the blocks that are out."""


class SharedWorkers:
    """The workers of a shared results directory. It implements coordinator.Workers."""

    def __init__(
        self,
        directory: ResultsDirectory,
        claims: Claims,
        number: int,
        watch: Callable[[], None],
        *,
        nodes: Sequence[str] = (),
        seed: int = 0,
        usable: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """claims: the claims of the run's blocks.
        number: number of workers.
        watch: called while nothing arrives; raises if no worker is left.
        nodes: names of the nodes to which blocks are given in equal numbers; () if any worker may run any
            block.
        seed: seed of the random order of the nodes.
        usable: returns the names of the nodes that can run blocks now.
        """
        self._directory, self._orders = directory, Orders(directory.path)
        self._new = NewTrials(directory.path / TRIALS)
        self._claims, self._watch = claims, watch
        self._next_claims = 0.0
        self._nodes, self._seed, self._usable = tuple(nodes), seed, usable
        self._given: dict[int, NextBlock] = {}
        # More blocks are out than workers, so that no worker has to wait for this process. With named nodes,
        # each has a second block.
        self.capacity = 2 * len(nodes) or number + (number + 1) // 2

    def give(self, order: NextBlock) -> None:
        self._give(order, self._usable() if self._nodes else ())

    def _give(self, order: NextBlock, usable: Collection[str]) -> None:
        """Give a block to a node; see plan.node_of(). A block moves to another node after an attempt that was
        lost, but not after one that a worker gave back."""
        block, now = order.block.number, self._claims.now()
        claims = [self._claims.find(block, attempt, now) for attempt in range(1, order.attempt)]
        lost = sum(claim is not None and claim.lost for claim in claims)
        node = node_of(block, 1 + lost, self._nodes, self._seed, usable)
        self._given[order.block.number] = replace(order, node=node)
        self._orders.give(self._given[order.block.number])

    def known(self) -> Trials:
        """Return the records that are on disk already. records() then yields only later ones."""
        found = self._directory.trials()
        self._new.skip(found)
        return found

    def records(self) -> Iterator[TrialRecord]:
        found = self._new.read()
        if not found:
            self._watch()
            time.sleep(POLL)
        yield from found

    def lost(self, out: Mapping[int, int]) -> Mapping[int, bool]:
        if time.monotonic() < self._next_claims:
            return {}
        self._next_claims = time.monotonic() + CLAIMS_EVERY
        now, found = self._claims.now(), {}
        usable = self._usable() if self._nodes else ()
        for block, attempt in out.items():
            claim = self._claims.find(block, attempt, now)
            if claim is None:
                order = self._given.get(block)
                if order is not None and order.node not in ("", *usable):
                    self._give(order, usable)  # nobody on its node can claim it
                continue
            if claim.held:
                continue
            if claim.state is ClaimState.RETURNED:
                found[block] = False
            elif claim.age > claim.lease:  # also if it is done, and its records never arrived
                found[block] = True
        return found

    def losses(self) -> dict[int, int]:
        """Return how often each block was lost with its worker, by number, according to the claims on
        disk."""
        now, losses = self._claims.now(), Counter[int]()
        for block, last in claimed_attempts(self._claims.place).items():
            for attempt in range(1, last + 1):
                claim = self._claims.find(block, attempt, now)
                losses[block] += claim is not None and claim.lost
        return losses

    def adopted(self) -> dict[int, int]:
        """Take over the blocks that an earlier coordinator of this run ordered and that are not lost. Returns
        the number of their attempt, by number of the block."""
        self._given = {order.block.number: order for order in self._orders.read()}
        found = {number: order.attempt for number, order in self._given.items()}
        for block in self.lost(found):
            del found[block]
        return found

    def finished(self, block: int) -> None:
        self._given.pop(block, None)
        self._orders.withdraw(block)

    def drain(self) -> Collection[int]:
        unclaimed = []
        for order in self._orders.read():
            number = order.block.number
            self._orders.withdraw(number)
            if self._claims.withdraw(number, order.attempt):  # a worker may have read the order
                unclaimed.append(number)
        return unclaimed

    def problem(self) -> str:
        """Return '': workers report their problems in their own output."""
        return ""


@contextmanager
def coordinating(directory: ResultsDirectory, label: str, lease: float) -> Iterator[Claims]:
    """Hold the claim to coordinate a run, and yield the claims of its blocks.

    lease: seconds for which its claim is valid without renewal.

    Raises BusyError if another process coordinates this run.
    """
    seat = Claims(directory.path / COORDINATOR, label, lease)
    claims = Claims(directory.path / CLAIMS, label)
    orders = Orders(directory.path)
    try:
        claim = seat.take_over(0, again=True)
        if claim is None:
            raise coordinated_elsewhere(directory, last_holder(directory.path / COORDINATOR, seat.now()))
        with seat.holding(claim):
            orders.start()
            try:
                yield claims
            finally:
                orders.stop()
    finally:
        claims.close()
        seat.close()


def coordinate(
    study: Study,
    directory: ResultsDirectory,
    claims: Claims,
    present: Present,
    number: int,
    watch: Callable[[], None],
    progress: Progress,
    *,
    nodes: Sequence[str] = (),
    lease: float = LEASE,
    overrun: bool = False,
) -> str:
    """Coordinate the workers of a shared results directory until the run stops. Returns why it stopped. The
    time budget counts from the end of the rehearsal, so it does not include the time in the queue of a batch
    system.

    study: the study as requested, with all its arms.
    present: must have been made before the workers were submitted.
    number, watch, nodes: see SharedWorkers.
    lease: seconds to wait for a node on which no worker has begun.
    overrun: let a run whose time is used up continue until its next look.

    Raises the errors of `watch`.
    """
    from ...analysis.roofs import wanted

    until = time.monotonic() + lease
    progress.phase("waiting for a worker to rehearse the study")
    while not directory.frozen:
        watch()
        time.sleep(POLL)
    study = study.with_arms(directory.plan().arms)
    backends = {e.backend: named_backend(e.backend) for e in study.environments}
    study, _ = without_unable(study, backends)
    directory.want_roofs(wanted(study))
    await_nodes(present, nodes, watch, progress, until=until)
    workers = SharedWorkers(
        directory, claims, number, watch, nodes=nodes, seed=study.design.seed, usable=present.usable
    )
    known = workers.known()
    attempts = Counter(last_attempts(known.heads)) | Counter(claimed_attempts(claims.place))
    coordinator = Coordinator(
        study,
        directory,
        planner_then(study, directory),
        workers,
        progress,
        known=known,
        attempts=attempts,
        begin=time.monotonic(),
        overrun=overrun,
        lost=workers.losses(),
        out=workers.adopted(),
    )
    return coordinator.run()

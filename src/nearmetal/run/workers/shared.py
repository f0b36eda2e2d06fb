"""Workers that share a results directory with their coordinator. The directory is all that joins them: orders
and claims go one way and the other, and records come back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from ...environments.registry import named_backend
from ...errors import BusyError
from ...model.plan import NextBlock
from ...model.record import TrialRecord
from ...model.study import Study
from ...node.progress import Progress
from ...records import (
    CLAIMS,
    COORDINATOR,
    Claims,
    ClaimState,
    NewTrials,
    Orders,
    ResultsDirectory,
    claimed_attempts,
    last_attempts,
    last_holder,
)
from ...subjects.registry import without_unable
from ..run import planner_then
from .coordinator import Coordinator

POLL = 0.2
"""Seconds between two looks for new records."""
CLAIMS_EVERY = 1.0
"""Seconds between two looks at the claims of the blocks that are out."""


class SharedWorkers:
    """The workers of a shared results directory. It implements coordinator.Workers."""

    def __init__(
        self, directory: ResultsDirectory, claims: Claims, number: int, watch: Callable[[], None]
    ) -> None:
        """claims: for the clock of the file server.
        number: number of workers.
        watch: called while nothing arrives; raises if no worker is left.
        """
        self._orders = Orders(directory.path)
        self._new = NewTrials(directory.path / "trials")
        self._claims, self._watch = claims, watch
        self._next_claims = 0.0
        self.capacity = number + (number + 1) // 2  # so that no worker waits for this process

    def give(self, order: NextBlock) -> None:
        self._orders.give(order)

    def known(self) -> list[TrialRecord]:
        """Return the records that are on disk already. records() then yields only later ones."""
        return self._new.read()

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
        for block, attempt in out.items():
            claim = self._claims.find(block, attempt, now)
            if claim is None or claim.held:
                continue
            if claim.state is ClaimState.RETURNED:
                found[block] = False
            elif claim.age > claim.lease:  # also if it is done, and its records never arrived
                found[block] = True
        return found

    def losses(self) -> dict[int, int]:
        """Return how often each block was lost with its worker, by the claims on disk."""
        now, losses = self._claims.now(), Counter[int]()
        for block, last in claimed_attempts(self._claims.place).items():
            for attempt in range(1, last + 1):
                claim = self._claims.find(block, attempt, now)
                losses[block] += claim is not None and claim.lost
        return losses

    def adopted(self) -> dict[int, int]:
        """Return the blocks that an earlier coordinator of this run ordered and that are not lost, with the
        number of their attempt."""
        found = {order.block.number: order.attempt for order in self._orders.read()}
        for block in self.lost(found):
            del found[block]
        return found

    def finished(self, block: int) -> None:
        self._orders.withdraw(block)

    def drain(self) -> Collection[int]:
        unclaimed = []
        for order in self._orders.read():
            number = order.block.number
            self._orders.withdraw(number)
            if self._claims.find(number, order.attempt) is None:
                unclaimed.append(number)
        return unclaimed

    def problem(self) -> str:
        """Return '': workers report their problems in their own output."""
        return ""


@contextmanager
def coordinating(directory: ResultsDirectory, label: str, lease: float) -> Iterator[Claims]:
    """Hold the claim to coordinate a run, and yield the claims of its blocks.

    label: label of the coordinator.
    lease: seconds for which its claim is valid without renewal.

    Raises BusyError if another process coordinates this run.
    """
    seat = Claims(directory.path / COORDINATOR, label, lease)
    claims = Claims(directory.path / CLAIMS, label)
    orders = Orders(directory.path)
    try:
        claim = seat.take_over(0, again=True)
        if claim is None:
            found = last_holder(directory.path / COORDINATOR, seat.now())
            where = f" ({found.claim.run} on {found.host})" if found is not None else ""
            raise BusyError(
                f"another process coordinates this run{where}",
                where=str(directory.path),
                remedy="end it; if it was killed, wait a minute",
            )
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
    number: int,
    watch: Callable[[], None],
    progress: Progress,
    *,
    overrun: bool = False,
) -> str:
    """Coordinate the workers of a shared results directory until the run stops. Returns why it stopped. The
    time budget counts from the end of the rehearsal, so it does not count the time in a queue.

    study: the study as it was asked, with all its arms.
    number, watch: see SharedWorkers.

    Raises the errors of `watch`.
    """
    progress.phase("waiting for a worker to rehearse the study")
    while not directory.frozen:
        watch()
        time.sleep(POLL)
    study = study.with_arms(directory.plan().arms)
    backends = {e.backend: named_backend(e.backend) for e in study.environments}
    study, _ = without_unable(study, backends)
    workers = SharedWorkers(directory, claims, number, watch)
    known = workers.known()
    attempts = Counter(last_attempts(known)) | Counter(claimed_attempts(claims.place))
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

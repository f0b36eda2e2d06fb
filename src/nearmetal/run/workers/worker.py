"""A worker runs blocks on this machine and writes their trials to disk. It does not choose the blocks."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from ...errors import UsageError
from ...host.counters.energy import energy_files
from ...host.facts.provenance import provenance
from ...host.lock import machine_lock
from ...model.plan import NextBlock
from ...model.record import Claim, Status, TrialRecord
from ...model.study import Study
from ...node.machine import Machine, new_label
from ...node.node import Node, sweep
from ...node.progress import Progress
from ...plan import make_block
from ...records import (
    CLAIMS,
    Claims,
    ResultsDirectory,
    TrialWriter,
    claimed_attempts,
    heads_of,
    last_attempts,
)
from ...samplers import Sampler
from ..block import Recording, run_block
from ..decide import Verifications, next_block
from ..interrupt import interruptible
from ..reopening import reopened_node


@dataclass(frozen=True, kw_only=True)
class BlockRun:
    """Summary of a block that was run.

    claim: identifies its trials.
    trials, failed: number of all its trials, and of those that failed.
    seconds: duration of the block.
    """

    claim: Claim
    trials: int
    failed: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Worker:
    """Runs blocks one after the other.

    recording: must contain a running sampler.
    """

    node: Node
    recording: Recording
    file: TrialWriter

    def run(self, order: NextBlock) -> Iterator[TrialRecord]:
        """Yield the trials of one block. Each is on disk before it is yielded."""
        for record in run_block(self.node, order, self.recording):
            self.file.append(record)
            yield record

    def run_whole(self, order: NextBlock) -> BlockRun:
        begin = time.monotonic()
        records = tuple(self.run(order))
        return BlockRun(
            claim=Claim(order.block.number, order.attempt, self.node.label),
            trials=len(records),
            failed=sum(r.status is not Status.OK for r in records),
            seconds=time.monotonic() - begin,
        )


class InThisProcess:
    """The only worker of a coordinator, in the same process. It implements coordinator.Workers."""

    capacity = 1

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._order: NextBlock | None = None

    def give(self, order: NextBlock) -> None:
        self._order = order

    def records(self) -> Iterator[TrialRecord]:
        order, self._order = self._order, None
        if order is not None:
            yield from self._worker.run(order)

    def lost(self, out: Mapping[int, int]) -> Mapping[int, bool]:
        """Return {}: this worker ends only with its coordinator."""
        return {}

    def finished(self, block: int) -> None:
        pass

    def drain(self) -> Collection[int]:
        """Return (): no block is out between two calls of records()."""
        return ()

    def problem(self) -> str:
        sampler = self._worker.recording.sampler
        broken = sampler is not None and sampler.problem is not None
        return f"no more samples: {sampler.problem}" if sampler is not None and broken else ""


@contextmanager
def at_work(node: Node, recording: Recording, directory: ResultsDirectory, writer: str) -> Iterator[Worker]:
    """Open a worker for the run of this directory.

    writer: name of its files of trials and samples; no two workers may have the same.
    """
    machine = node.machine
    sampling = Sampler(
        directory.path / "samples",
        writer=writer,
        host=machine.host,
        program=machine.tools / "nm-sample",
        also=energy_files(),
        period=node.study.design.sample_every,
    )
    with directory.writer(writer) as file, sampling as sampler:
        yield Worker(node=node, recording=replace(recording, sampler=sampler), file=file)


def run_orders(
    machine: Machine,
    study: Study,
    directory: ResultsDirectory,
    orders: Iterable[NextBlock],
    done: Callable[[BlockRun], None],
    progress: Progress,
    *,
    command: str,
    force: bool,
) -> None:
    """Run blocks of a run with a fixed plan, in their order. Nothing is analysed.

    orders: the blocks to run; further ones may arrive while blocks run.
    done: called after each block.
    command: shown to the user of a second run, which finds the machine in use.
    force: start even if another run is active.

    Raises BusyError if another run holds the machine.
    Raises UsageError for an order that does not fit the run, and the errors of reopened_node.
    """
    label = new_label()
    with (
        interruptible(partial(sweep, progress, label)),
        machine_lock(label, command=command, force=force),
        reopened_node(machine, study, directory, label, progress, name=os.uname().nodename) as (
            node,
            recording,
        ),
        at_work(node, recording, directory, label) as worker,
    ):
        claims = Claims(directory.path / CLAIMS, label)
        directory.node_files.write(label, provenance(machine.host))
        try:
            for order in orders:
                check_order(node.study, order)
                claim = claims.take(order.block.number, order.attempt)
                if claim is None:  # the trials of both attempts would count as one block
                    raise UsageError(
                        f"attempt {order.attempt} at round {order.block.number} is given twice",
                        remedy="give each attempt at a round once, and to one worker",
                    )
                with claims.holding(claim):
                    run = worker.run_whole(order)
                done(run)
        finally:
            claims.close()


def whole_blocks(study: Study, directory: ResultsDirectory, numbers: Sequence[int]) -> list[NextBlock]:
    """Return an order for the next attempt at each of these blocks. Every arm runs all its workloads, with
    the numbers of slices that are planned for the first block.
    """
    plan = directory.plan()
    attempts = Counter(last_attempts(heads_of(directory.trials())))
    attempts |= Counter(claimed_attempts(directory.path / CLAIMS))
    return [
        next_block(
            study,
            number,
            attempts[number] + 1,
            slices=plan.slices,
            work=plan.work,
            settled={},
            verifications=Verifications(),
            verify_all=at == 0,
        )
        for at, number in enumerate(numbers)
    ]


def check_order(study: Study, order: NextBlock) -> None:
    """Raise UsageError if an order does not fit the study."""
    number, trials = order.block.number, order.block.trials
    planned = make_block(study, number).trials
    arms = {trial.arm for trial in planned}
    unknown = [t.arm for t in trials if t.arm not in arms]
    if unknown:
        raise UsageError(
            f"round {number} names environment {unknown[0]}, which this run does not have",
            remedy=f"name some of: {', '.join(sorted(arms))}",
        )
    own = {(t.id, t.block, t.arm, t.aa) for t in trials}
    as_planned = own <= {(t.id, t.block, t.arm, t.aa) for t in planned}
    if (
        not trials
        or not as_planned
        or len(own) < len(trials)
        or len({t.position for t in trials}) < len(trials)
    ):
        raise UsageError(
            f"round {number} has no trials, has a trial twice, or has one that is not of this round",
            remedy=_AS_PRINTED,
        )
    for name, ranks in _kernels_of(study, order):
        if order.slices.get(name, 0) < 1 or order.work.get(name, {}).get(ranks, 0) < 1:
            raise UsageError(
                f"round {number} does not say how many time shares of {name} run on {ranks} ranks, or their "
                "work",
                remedy=_AS_PRINTED,
            )


_AS_PRINTED = "take the line as `nearmetal run-block DIR BLOCK --dry-run --json` prints it"


def _kernels_of(study: Study, order: NextBlock) -> set[tuple[str, int]]:
    """Return the kernel workloads that run in a block, as pairs (name, number of ranks)."""
    arms = {t.arm for t in order.block.trials}
    return {
        (w.name, arm.placement.ranks)
        for arm in study.arms()
        for w in study.workloads
        if arm.name in arms and w.sliced and arm.environment.takes(w.name) and order.runs(arm.name, w.name)
    }

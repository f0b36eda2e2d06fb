"""The coordinator with workers that end out of order, are lost, and send late results."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pytest

from nearmetal.api.catalog import catalog
from nearmetal.model.change import replace
from nearmetal.model.plan import NextBlock, NodeState
from nearmetal.model.record import TrialRecord
from nearmetal.model.study import Better, Design, Environment, EventSubject, Placement, Study
from nearmetal.node.progress import NullProgress
from nearmetal.plan import SlicePlanner, make_plan
from nearmetal.records import ResultsDirectory, node_state, node_states
from nearmetal.run.workers.block_states import MAX_ATTEMPTS
from nearmetal.run.workers.coordinator import Coordinator
from nearmetal.study_file import dump_study
from nearmetal.subjects.start_stop import START
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

STUDY = Study(
    name="s",
    question="?",
    environments=(
        Environment(name="native", backend="native", placements=("one",)),
        Environment(name="box", backend="namespaces", placements=("one",)),
    ),
    placements=(Placement(name="one", instances=1, tasks=1),),
    workloads=(EventSubject(name="start", facts=START),),
    design=Design(
        baselines=("native",), margin=0.03, confidence=0.95, seed=1, max_blocks=12, target_width=1e-6
    ),
)
BLOCKS = 40
TRIALS: dict[int, list[TrialRecord]] = {}
METRICS = (SimulatedMetric(workload="start", metric="start", unit="s", better=Better.LOWER, value=0.01),)
PLAN = make_plan(STUDY, blocks=BLOCKS)
for found in simulate(STUDY, PLAN, metrics=METRICS, overheads={"box/one": 0.1}, spread=Spread()):
    TRIALS.setdefault(found.block, []).append(found)


class Notes(NullProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class Scripted:
    """Workers that end the rounds that are out in reversed order, except those that a test loses."""

    capacity = 4

    def __init__(self, losing: Mapping[int, int], directory: ResultsDirectory) -> None:
        """losing: how often each block is lost."""
        self.file = directory.writer("workers")
        self.left = dict(losing)
        self.orders: dict[int, NextBlock] = {}
        self.given: list[tuple[int, int]] = []
        self.late: list[TrialRecord] = []
        self.withdrawn: list[int] = []
        self.polls = 0

    def give(self, order: NextBlock) -> None:
        assert order.block.number not in self.orders, "a block that is out is not given twice"
        assert len(self.orders) < self.capacity, "a worker has one block at a time"
        self.orders[order.block.number] = order
        self.given.append((order.block.number, order.attempt))

    def records(self) -> Iterable[TrialRecord]:
        yield from self.written(self.late)
        self.late = []
        self.polls += 1
        if self.polls % 3:  # most of the time nothing has ended
            return
        ending = [n for n in sorted(self.orders, reverse=True) if self.left.get(n, 0) < 1][:1]
        for number in ending:
            yield from self.written(self.of(self.orders.pop(number)))

    def written(self, records: Iterable[TrialRecord]) -> Iterable[TrialRecord]:
        for record in records:
            self.file.append(record)
            yield record

    def of(self, order: NextBlock) -> list[TrialRecord]:
        trials = [replace(t, attempt=order.attempt, members=3) for t in TRIALS[order.block.number]]
        assert len(trials) == 3
        return trials

    def lost(self, out: Mapping[int, int]) -> Mapping[int, bool]:
        found = {n: True for n in out if n in self.orders and self.left.get(n, 0) > 0}
        for number in found:
            self.left[number] -= 1
            self.late += self.of(self.orders.pop(number))[:2]  # what a killed worker wrote before
        return found

    def finished(self, block: int) -> None:
        self.withdrawn.append(block)

    def drain(self) -> Collection[int]:
        return ()

    def problem(self) -> str:
        return ""


def run(tmp_path: Path, losing: Mapping[int, int]) -> tuple[Scripted, Notes, ResultsDirectory, str]:
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml=dump_study(STUDY, catalog()))
    directory.freeze(seed=1, arms=[arm.name for arm in STUDY.arms()], provenance={})
    workers, notes = Scripted(losing, directory), Notes()
    coordinator = Coordinator(
        STUDY,
        directory,
        SlicePlanner(STUDY, (), 0.0, None),
        workers,
        notes,
        known=(),
        attempts={},
        begin=time.monotonic(),
    )
    with workers.file:
        return workers, notes, directory, coordinator.run()


def test_rounds_that_end_out_of_order_count_in_their_order(tmp_path: Path) -> None:
    workers, notes, directory, stopped = run(tmp_path, {})
    assert stopped == "12 rounds are done"
    assert sorted(workers.given) == [(n, 1) for n in range(1, 13)]
    assert directory.plan().missing == () and not any("lost" in text for text in notes.notes)


class OneByOne(Scripted):
    capacity = 1


def test_the_time_of_each_round_is_known_if_one_runs_after_the_other(tmp_path: Path) -> None:
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml=dump_study(STUDY, catalog()))
    directory.freeze(seed=1, arms=[arm.name for arm in STUDY.arms()], provenance={})
    for kind, numbers in ((OneByOne, [*range(1, 13)]), (Scripted, [])):
        workers = kind({}, directory)
        planner = SlicePlanner(STUDY, (), 0.0, None)
        coordinator = Coordinator(
            STUDY, directory, planner, workers, NullProgress(), known=(), attempts={}, begin=time.monotonic()
        )
        begin = time.monotonic()
        with workers.file:
            coordinator.run()
        assert sorted(coordinator.walls) == numbers
        assert sum(coordinator.walls.values()) <= time.monotonic() - begin


def test_a_lost_round_is_given_again_as_the_next_attempt(tmp_path: Path) -> None:
    workers, notes, directory, _ = run(tmp_path, {3: 1, 7: 2})
    assert [a for n, a in workers.given if n == 3] == [1, 2]
    assert [a for n, a in workers.given if n == 7] == [1, 2, 3]
    assert notes.notes.count("round 7 was lost with its worker") == 2
    assert directory.plan().missing == () and max(n for n, _ in workers.given) == 12


def test_a_round_that_is_lost_every_time_is_missing_on_both_sides(tmp_path: Path) -> None:
    workers, notes, directory, stopped = run(tmp_path, {3: 100})
    assert [a for n, a in workers.given if n == 3] == list(range(1, MAX_ATTEMPTS + 1))
    assert directory.plan().missing == (3,) and 3 in workers.withdrawn
    assert "round 3 is given up: it was lost 3 times" in notes.notes
    assert stopped == "12 rounds are done" and max(n for n, _ in workers.given) == 13


@pytest.mark.parametrize("known", [5, 12])
def test_coordinator_continues_from_the_records(tmp_path: Path, known: int) -> None:
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml=dump_study(STUDY, catalog()))
    directory.freeze(seed=1, arms=[arm.name for arm in STUDY.arms()], provenance={})
    workers = Scripted({}, directory)
    records = [replace(t, members=3) for n in range(1, known + 1) for t in TRIALS[n]]
    records += [replace(t, members=3) for t in TRIALS[9][:1]] if known < 9 else []
    for record in records:
        workers.file.append(record)
    coordinator = Coordinator(
        STUDY,
        directory,
        SlicePlanner(STUDY, (), 0.0, None),
        workers,
        NullProgress(),
        known=directory.trials(),
        attempts={**dict.fromkeys(range(1, known + 1), 1), 9: 1},
        begin=time.monotonic(),
    )
    with workers.file:
        assert coordinator.run() == "12 rounds are done"
    expected = {(n, 2 if n == 9 else 1) for n in range(known + 1, 13)}
    assert set(workers.given) == expected


class OnTwoNodes(Scripted):
    """Each worker describes its node before its first round, as serving.serve() does."""

    def __init__(self, directory: ResultsDirectory) -> None:
        super().__init__({}, directory)
        self._directory = directory

    def of(self, order: NextBlock) -> list[TrialRecord]:
        worker = f"nearmetal-{order.block.number % 2}"
        file = self._directory.path / "nodes" / f"{worker}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'{{"run": "{worker}", "node": "{worker[-1]}", "kernel": {{"release": "6.1"}}}}')
        return [replace(t, run=worker) for t in super().of(order)]


def test_a_coordinator_learns_on_which_node_a_worker_runs(tmp_path: Path) -> None:
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml=dump_study(STUDY, catalog()))
    directory.freeze(seed=1, arms=[arm.name for arm in STUDY.arms()], provenance={})
    workers = OnTwoNodes(directory)
    coordinator = Coordinator(
        STUDY,
        directory,
        SlicePlanner(STUDY, (), 0.0, None),
        workers,
        NullProgress(),
        known=(),
        attempts={},
        begin=time.monotonic(),
    )
    with workers.file:
        coordinator.run()
    (cell,) = coordinator._running.after(coordinator._trials.now, 12)[0].cells
    assert cell.nodes is not None, "the analysis between rounds knows that there are two"
    states = node_states(directory)
    for k in (0, 1):
        assert states[f"nearmetal-{k}"] == NodeState(name=str(k), kernel="6.1")
    assert node_state(directory, "nearmetal-7") is None

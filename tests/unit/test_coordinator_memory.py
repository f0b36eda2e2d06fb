"""A coordinator keeps little of each finished round, however long the run."""

from __future__ import annotations

import functools
import gc
import time
import tracemalloc
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from tests.unit.test_coordinator import STUDY, TRIALS

from nearmetal.analysis import analyse, conclude
from nearmetal.api.catalog import catalog
from nearmetal.model.change import replace
from nearmetal.model.plan import NextBlock, Plan
from nearmetal.model.record import Status, TrialRecord
from nearmetal.model.study import Design
from nearmetal.node.progress import NullProgress
from nearmetal.plan import SlicePlanner, make_plan
from nearmetal.records import GrowingTrials, ResultsDirectory
from nearmetal.records.codec import from_line, to_line
from nearmetal.run.folded import FoldedSoFar
from nearmetal.run.workers.coordinator import Coordinator
from nearmetal.study_file import dump_study

MOST = 2048
"""Bytes for each finished round."""
SHORT, LONG = 160, 640


class Endless:
    """A worker that runs each round at once, with figures of a few others, and notes the memory in use after
    some rounds."""

    capacity = 1

    def __init__(self, directory: ResultsDirectory) -> None:
        self.file = directory.writer("worker")
        self.order: NextBlock | None = None
        self.used: dict[int, int] = {}

    def give(self, order: NextBlock) -> None:
        self.order = order

    def records(self) -> Iterable[TrialRecord]:
        order, self.order = self.order, None
        assert order is not None
        number = order.block.number
        if number in (SHORT, LONG):
            _clear_caches()
            gc.collect()
            self.used[number] = tracemalloc.get_traced_memory()[0]
        for trial in TRIALS[1 + number % 40]:
            name = trial.trial.partition(".")[2]
            record = replace(
                trial, block=number, trial=f"{number}.{name}", members=3, begin=number * 1.0, end=number + 0.9
            )
            self.file.append(record)
            yield from_line(to_line(record))  # shares nothing with others, as records that were read

    def lost(self, out: Mapping[int, int]) -> Mapping[int, bool]:
        return {}

    def finished(self, block: int) -> None:
        pass

    def drain(self) -> Collection[int]:
        return ()

    def problem(self) -> str:
        return ""


def _clear_caches() -> None:
    """Empty the caches of the statistics. Their sizes have limits of their own, and when they are filled
    depends on how fast the machine is."""
    for found in gc.get_objects():
        # Not isinstance(), which asks objects of other libraries for their class: some have none any more.
        if type(found) is functools._lru_cache_wrapper and found.__module__.startswith("nearmetal."):
            found.cache_clear()


def test_a_finished_round_takes_at_most_two_kibibytes(tmp_path: Path) -> None:
    design: Design = replace(STUDY.design, max_blocks=LONG, target_width=1e-9)
    study = replace(STUDY, design=design)
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml=dump_study(study, catalog()))
    directory.freeze(seed=1, arms=[arm.name for arm in study.arms()], provenance={})
    worker = Endless(directory)
    with worker.file:
        coordinator = Coordinator(
            study,
            directory,
            SlicePlanner(study, (), 0.0, None),
            worker,
            NullProgress(),
            known=(),
            attempts={},
            begin=time.monotonic(),
        )
        tracemalloc.start()
        try:
            assert coordinator.run() == f"{LONG} rounds are done"
        finally:
            tracemalloc.stop()
    each = (worker.used[LONG] - worker.used[SHORT]) / (LONG - SHORT)
    assert each < MOST, f"{each:.0f} bytes for each round"


def test_rounds_folded_bit_by_bit_give_the_figures_of_all_together(tmp_path: Path) -> None:
    """With late rounds, attempts that come after others, failures, rounds given up and left behind."""
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml=dump_study(STUDY, catalog()))
    directory.freeze(seed=1, arms=[arm.name for arm in STUDY.arms()], provenance={})
    plan, growing = make_plan(STUDY), GrowingTrials(directory.path / "trials")
    folded = FoldedSoFar(STUDY)
    steps: list[tuple[str, int, int, int]] = [
        *(("a", n, 1, 3) for n in (1, 2, 3)),
        ("a", 4, 1, 2),  # torn
        *(("b", n, 1, 3) for n in (5, 6, 7)),
        ("b", 4, 2, 3),
        *(("a", n, 1, 3) for n in range(8, 20)),
        ("c", 4, 1, 3),  # a late first attempt: it counts instead of the second
        ("b", 21, 1, 3),  # waits for 20, which is given up in the end
    ]
    with directory.writer("a") as a, directory.writer("b") as b, directory.writer("c") as c:
        files = {"a": a, "b": b, "c": c}
        for run, number, attempt, count in steps:
            for trial in TRIALS[number][:count]:
                bad = number % 5 == 0 and trial.arm != "native/one"
                failed = (
                    replace(trial, status=Status.FAILED, reason="it fell over", rows=()) if bad else trial
                )
                files[run].append(replace(failed, run=run, attempt=attempt, members=3))
            _require_the_same(folded, plan, growing)
        plan = replace(plan, missing=frozenset({20}))
        _require_the_same(folded, plan, growing)


def _require_the_same(folded: FoldedSoFar, plan: Plan, growing: GrowingTrials) -> None:
    trials = growing.now()
    found = conclude(STUDY, plan, trials.heads, folded.fold(plan, trials), detail=False)
    assert repr(found) == repr(analyse(STUDY, plan, list(trials), detail=False))

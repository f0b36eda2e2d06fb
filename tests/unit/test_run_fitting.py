"""The work of a slice, fitted on fake arms whose cost is known."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearmetal.errors import TrialFailedError
from nearmetal.model.plan import TrialSpec
from nearmetal.model.study import Arm, Environment, KernelWorkload, Placement
from nearmetal.node.trial import Guard, Trial
from nearmetal.plan.work import SLICE_SECONDS, SLOWEST_SECONDS
from nearmetal.run.fitting import WorkFit
from nearmetal.workloads.protocol import PartLine, SliceLine

TOKEN = 20e-6
NO_NODE: Any = None
CG = KernelWorkload(name="cg", kernel="cg", params={})


class Job:
    """The ranks of an arm whose slices take `each` seconds a unit."""

    def __init__(self, name: str, each: float, ranks: int = 2, *, works: bool = True) -> None:
        environment = Environment(name=name, backend="native", placements=("p",))
        place = Placement(name="p", instances=1, tasks=ranks)
        self.trial = Trial(
            spec=TrialSpec(id=name, block=0, position=0, arm=name, aa=False),
            arm=Arm(environment=environment, placement=place),
            node=NO_NODE,
            nodes=(),
            directory=Path("/d"),
            log=Path("/l"),
        )
        self.guard, self.ranks = Guard(self.trial), ranks
        self.each, self.works = each, works
        self.asked: list[int] = []

    def slice(self, workload: KernelWorkload, units: int) -> SliceLine:
        self.asked.append(units)
        if not self.works:
            raise TrialFailedError("no answer")
        Clock.now += TOKEN + self.each * units
        part = PartLine(metric="rate", seconds=self.each * units, comm_seconds=0.0, work=1.0)
        return SliceLine(kernel=0, name=workload.kernel, parts=(part,), used={})


class Clock:
    now = 0.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)


def fitted(*arms: Job, workload: KernelWorkload = CG) -> dict[int, int]:
    node: Any = SimpleNamespace(
        study=SimpleNamespace(design=SimpleNamespace(baselines=("native",)), least_turns=lambda: 2),
        machine=SimpleNamespace(llc=32 << 20),
    )
    jobs: Any = arms
    return dict(WorkFit(node).fit(workload, jobs))


def test_the_baseline_fixes_the_work_of_all_arms() -> None:
    native, box = Job("native", 2e-6), Job("box", 3e-6)
    assert fitted(box, native) == {2: round(SLICE_SECONDS / 2e-6)}


def test_work_is_fitted_for_each_number_of_ranks() -> None:
    assert fitted(Job("native", 1e-6, 2), Job("native", 4e-6, 4)) == {2: 1000, 4: 250}


def test_an_arm_that_is_far_slower_gets_shorter_slices_and_so_do_all() -> None:
    (units,) = fitted(Job("native", 1e-6), Job("tcp", 38e-6)).values()
    assert units * 38e-6 <= SLOWEST_SECONDS and units * 1e-6 >= 10 * TOKEN


def test_a_baseline_that_fails_leaves_the_fit_to_another_arm() -> None:
    native, box = Job("native", 1e-6, works=False), Job("box", 1e-6)
    assert fitted(native, box) == {2: 1000}
    assert not native.trial.sound and box.trial.sound
    assert fitted(Job("native", 1e-6, works=False)) == {2: 1}


def test_work_stated_in_the_study_is_not_measured() -> None:
    native = Job("native", 1e-6)
    own = KernelWorkload(name="cg", kernel="cg", params={"iterations": 7})
    assert fitted(native, workload=own) == {2: 7} and native.asked == []

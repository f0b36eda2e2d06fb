"""Copies of a program in every task: the makespan, the time of each instance, rows over all copies."""

from __future__ import annotations

import pytest

from nearmetal.model.record import Status
from nearmetal.model.study import Better, CommandWorkload, MetricSpec, VerifySpec
from nearmetal.subjects.launches.copies import CopyOutput, rows_of_copies
from nearmetal.subjects.launches.reports import instance_walls
from nearmetal.subjects.program import merged_rounds
from nearmetal.workloads.command import ResourceUse, parse, used_rows
from nearmetal.workloads.protocol import PlaceLine, RankReport

TOOK = MetricSpec(name="took", unit="s", better=Better.LOWER, regex=r"took (\d+)")


def report(rank: int, wall: float) -> RankReport:
    return RankReport(
        placed=PlaceLine(rank=rank, host="h", cpu=rank, affinity=(rank,), namespaces={}),
        wall=wall,
        user=1.0,
        system=0.5,
        max_rss=1000 * (rank + 1),
        io={},
        used={},
        status=0,
        left=(),
    )


REPORTS = [report(rank, wall) for rank, wall in enumerate((3.0, 5.0, 4.0, 2.0))]


def test_an_instance_ends_with_its_last_task() -> None:
    assert instance_walls(REPORTS, 1) == [3.0, 5.0, 4.0, 2.0]
    assert instance_walls(REPORTS, 2) == [5.0, 4.0]
    assert instance_walls(REPORTS, 4) == [5.0]


def test_the_wall_is_the_makespan_and_metrics_are_medians_over_copies() -> None:
    workload = CommandWorkload(name="w", argv=("p",), per_task=True, metrics=(TOOK,))
    outputs = [CopyOutput(stdout=f"took {n}") for n in (10, 20, 60, 30)]
    rows = {r.metric: r for r in rows_of_copies(workload, outputs, REPORTS, [5.0, 4.0])}
    assert {name: r.values for name, r in rows.items()} == {
        "wall": (5.0,),
        "user": (4.0,),
        "system": (2.0,),
        "max_rss": (4000.0,),
        "took": (25.0,),
        "instance_wall": (4.5,),
    }
    assert all(r.status is Status.OK for r in rows.values())


def test_metric_fails_if_one_copy_fails() -> None:
    workload = CommandWorkload(name="w", argv=("p",), per_task=True, metrics=(TOOK,))
    rows = {
        r.metric: r
        for r in rows_of_copies(
            workload, [CopyOutput(stdout="took 1"), CopyOutput(stdout="lost")], REPORTS[:2], [5.0]
        )
    }
    assert rows["took"].status is Status.FAILED and rows["wall"].status is Status.OK
    checked = CommandWorkload(name="w", argv=("p",), per_task=True, verify=VerifySpec(regex="^took"))
    rows = {
        r.metric: r
        for r in rows_of_copies(
            checked, [CopyOutput(stdout="took 1"), CopyOutput(stdout="lost")], REPORTS[:2], [5.0]
        )
    }
    assert {r.status for r in rows.values()} == {Status.FAILED}
    assert rows["instance_wall"].verification["ok"] is False


@pytest.mark.parametrize("tasks", [1, 2])
def test_every_instance_has_a_time(tasks: int) -> None:
    assert len(instance_walls(REPORTS, tasks)) == len(REPORTS) // tasks


def test_rounds_of_a_program_keep_the_parts_that_every_round_has() -> None:
    """Threads took more CPU time than wall time in the second round, so it has no parts."""
    took = [
        ResourceUse(wall=2.0, user=1.0, parts={"user": 1.0, "wait": 1.0}),
        ResourceUse(wall=3.0, user=4.0, parts=None),
        ResourceUse(wall=2.5, user=1.5, parts={"user": 1.5, "wait": 1.0}),
    ]
    every = [used_rows("w", used) for used in took]
    wall, user = merged_rounds(every)
    assert (wall.metric, wall.values, wall.parts) == ("wall", (2.0, 3.0, 2.5), {})
    assert (user.metric, user.values) == ("user", (1.0, 4.0, 1.5))
    (alike, _) = merged_rounds([every[0], every[2]])
    assert alike.parts == {"user": (1.0, 1.5), "wait": (1.0, 1.0)}


def test_a_metric_of_rounds_fails_if_one_round_fails() -> None:
    workload = CommandWorkload(name="w", argv=("p",), metrics=(TOOK,))
    every = [parse(workload, text, ResourceUse(wall=1.0)) for text in ("took 1", "lost", "took 3")]
    rows = {r.metric: r for r in merged_rounds(every)}
    assert rows["wall"].status is Status.OK and rows["wall"].values == (1.0, 1.0, 1.0)
    assert rows["took"].status is Status.FAILED and rows["took"].values == (1.0, 3.0)
    assert rows["took"].reason == every[1][-1].reason

"""Workloads that differ in one number: the sweeps of a study, and the curves over them."""

from __future__ import annotations

import pytest

from nearmetal.analysis import analyse
from nearmetal.api.catalog import catalog
from nearmetal.model.study import Better, Study
from nearmetal.model.sweep import Sweep, sweeps
from nearmetal.plan import make_plan
from nearmetal.report.charts.swept import swept_charts, swept_curves
from nearmetal.study_file import load_text
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

STUDY = """\
name: s
environments:
  native: {backend: native}
  box: {backend: namespaces}
placements: {1x2: {instances: 1, tasks: 2}}
workloads:
  ep: {kernel: ep, class: S}
WORKLOADS
design: {baseline: native, seed: 1}
"""


def study(workloads: str) -> Study:
    lines = "\n".join(f"  {line}" for line in workloads.splitlines())
    return load_text(STUDY.replace("WORKLOADS", lines), "s.yaml", catalog())


@pytest.mark.parametrize(
    ("workloads", "found"),
    [
        ("mpi: {kernel: pingpong, matrix: {bytes: [8 B, 1 KiB]}}", []),
        (
            "mpi: {kernel: pingpong, matrix: {bytes: [1 KiB, 8 B, 1 MiB]}}",
            [("mpi", "bytes", [8, 1024, 1 << 20])],
        ),
        (
            "mpi: {kernel: pingpong, matrix: {bytes: [0 B, 8 B, 64 B, 1 KiB], pages: [huge, 4k]}}",
            [("mpi", "bytes", [8, 64, 1024]), ("mpi", "bytes", [8, 64, 1024])],
        ),
        (
            "a: {kernel: tcp, bytes: 8 B}\nb: {kernel: tcp, bytes: 64 B}\nc: {kernel: udp, bytes: 1 KiB}",
            [],
        ),
        (
            "a: {kernel: tcp, bytes: 8 B}\nb: {kernel: tcp, bytes: 64 B}\nc: {kernel: tcp, bytes: 1 KiB}",
            [("tcp", "bytes", [8, 64, 1024])],
        ),
        (
            "moved: {subject: checkpoint, matrix: {memory: [16 MiB, 32 MiB, 64 MiB]}}",
            [("moved", "memory", [1 << 24, 1 << 25, 1 << 26])],
        ),
    ],
)
def test_workloads_that_differ_in_one_number_are_a_sweep(
    workloads: str, found: list[tuple[str, str, list[int]]]
) -> None:
    own = sweeps(study(workloads).workloads)
    assert [(s.name, s.over, list(s.points)) for s in own] == found


def test_the_points_name_their_workloads() -> None:
    own = study("mpi: {kernel: pingpong, matrix: {bytes: [8 B, 64 B, 1 KiB]}}")
    assert sweeps(own.workloads) == (
        Sweep(name="mpi", over="bytes", points={8: "mpi-8B", 64: "mpi-64B", 1024: "mpi-1KiB"}),
    )


def test_a_curve_has_the_values_of_both_sides_by_number() -> None:
    own = study("mpi: {kernel: pingpong, measure: bandwidth, matrix: {bytes: [1 MiB, 8 B, 1 KiB]}}")
    rates = {"mpi-8B": 8e6, "mpi-1KiB": 4e8, "mpi-1MiB": 2e9}
    plan = make_plan(own, blocks=12)
    metrics = [
        SimulatedMetric(workload=name, metric="bandwidth", unit="B/s", better=Better.HIGHER, value=rate)
        for name, rate in rates.items()
    ]
    records = simulate(own, plan, metrics=metrics, overheads={"box/1x2": 1.0}, spread=Spread())
    analysis = analyse(own, plan, records)
    (curve,) = swept_curves(own, analysis.cells)
    assert (curve.name, curve.over, curve.unit) == ("mpi.bandwidth", "bytes", "B/s")
    assert list(curve.sides) == ["native/1x2", "box/1x2"]
    for name, at in (("mpi-8B", 8), ("mpi-1KiB", 1024), ("mpi-1MiB", 1 << 20)):
        assert curve.sides["native/1x2"][at].centre == pytest.approx(rates[name], rel=0.05)
        assert curve.sides["box/1x2"][at].centre == pytest.approx(rates[name] / 2, rel=0.05)
    (drawn,) = swept_charts(own, analysis.cells)
    assert "KiB" in str(drawn.spec) and drawn.title == "mpi.bandwidth over bytes" and "n 12" in drawn.caption
    assert swept_curves(own, analysis.cells[:2]) == ()

"""Roofs: which stands over which metric, the share, its form in files, and that each is measured once."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.analysis.roofs import wanted, with_roofs, words
from nearmetal.errors import RunError
from nearmetal.model.environments.guest import GuestSettings
from nearmetal.model.result import Cell, Interval
from nearmetal.model.roof import ROOF_KERNELS, MeasuredRoof, RoofRequest, read_roofs, roof_record
from nearmetal.model.study import ApplicationWorkload, Better, KernelWorkload, Study
from nearmetal.report.charts.cells import absolute
from nearmetal.report.forms.markdown import markdown_text
from nearmetal.report.record_index import RecordIndex
from nearmetal.report.tables.roofs import roof_lines, share_figure
from nearmetal.run.bounds import measuring as roofs


def roof(name: str, value: float, unit: str, **more: Any) -> MeasuredRoof:
    ranks, transport = more.get("ranks", 2), more.get("transport", "")
    better, place = more.get("better", Better.HIGHER), more.get("place", "")
    return MeasuredRoof(
        name=name,
        ranks=ranks,
        transport=transport,
        value=value,
        unit=unit,
        better=better,
        measured=1.7e9,
        how="measured",
        place=place,
    )


BARE = ("native",)


def under(*known: MeasuredRoof) -> dict[str, Cell]:
    """Cells of the sample study that a roof stands over, by 'arm workload.metric'."""
    cells = with_roofs(sample.study(), sample.analysis().cells, known, BARE)
    return {f"{c.arm} {c.workload}.{c.metric}": c for c in cells if c.roof is not None}


def test_each_roof_of_a_study_is_wanted_once() -> None:
    found = wanted(sample.study())
    assert len(found) == len(set(found))
    assert {w.name for w in found} >= {"triad", "latency", "sockets", "bandwidth"}
    assert {w.transport for w in found if w.name == "latency"} == {"shm"}
    # Native over TCP uses loopback; two containers the network that they sit on.
    assert {w.place for w in found if w.name == "sockets"} == {"", "container/two"}
    assert {w.ranks for w in found if w.name == "triad"} == {2}


def test_the_route_between_guests_has_no_roof_since_its_ends_are_inside_them() -> None:
    study = sample.study()
    guests = (replace(e, guest=GuestSettings()) if e.name == "container" else e for e in study.environments)
    found = wanted(replace(study, environments=tuple(guests)))
    assert {w.place for w in found if w.name == "sockets"} == {""}


def test_a_rate_and_a_latency_as_shares() -> None:
    latency = roof("sockets", 1e-7, "s", transport="tcp", better=Better.LOWER)
    found = under(roof("triad", 80e9, "B/s"), latency)
    assert found
    for name, c in found.items():
        assert c.roof is not None
        ratio = c.roof.value / c.value.centre
        assert c.roof.share == pytest.approx(1 / ratio if c.better is Better.HIGHER else ratio)
        if "latency" in name:  # of what goes over loopback alone; the baseline shares memory
            assert c.roof.words.endswith("over loopback") and c.baseline_roof is None
        else:
            assert c.baseline_roof is not None and c.baseline_roof.words == c.roof.words
    assert not any("cg" in name for name in found)


def test_upper_bound_matches_the_transport_of_each_side() -> None:
    memory = roof("latency", 9e-8, "s", transport="shm", better=Better.LOWER)
    seats = roof("sockets", 4e-6, "s", transport="tcp", better=Better.LOWER, place="container/two")
    cells = with_roofs(sample.study(), sample.analysis().cells, (memory, seats), BARE)
    (cell,) = [
        c for c in cells if (c.baseline, c.arm, c.metric) == ("native/one", "container/two", "latency")
    ]
    assert cell.roof is not None and cell.baseline_roof is not None
    assert cell.roof.words == "latency of plain TCP sockets on the same network"
    assert cell.baseline_roof.words == "latency between ranks in shared memory"
    assert 0 < cell.roof.share < 1 and 0 < cell.baseline_roof.share < 1
    analysis = replace(sample.analysis(), cells=(cell,))
    assert [(line.arm, line.roof.partition(", ")[2]) for line in roof_lines(analysis)] == [
        ("native/one", cell.baseline_roof.words),
        ("container/two", cell.roof.words),
    ]


def test_upper_bound_applies_only_with_equal_ranks_and_unit() -> None:
    assert not under(roof("triad", 8e10, "B/s", ranks=1))
    assert not under(roof("triad", 8e10, "FLOP/s"))
    assert under(roof("triad", 8e10, "B/s", ranks=None))


def test_hpcc_and_hpl_are_under_the_peak_of_dgemm() -> None:
    """EP: a mean of ranks, each under its share; Single: one rank under its own; HPL: all together."""
    apps = [ApplicationWorkload(name=a, application=a) for a in ("hpcc", "hpl")]
    study = replace(sample.study(), workloads=tuple(apps))
    study = replace(study, environments=tuple(replace(e, workloads=()) for e in study.environments))
    assert {(w.name, w.ranks) for w in wanted(study)} == {
        ("dgemm", 1),
        ("dgemm", 2),
        ("triad", 1),
        ("triad", 2),
    }
    reached = Interval(centre=9e9, low=9e9, high=9e9)
    like = replace(sample.analysis().cells[0], unit="FLOP/s", value=reached, baseline_value=reached)
    named = [
        ("hpcc", "G-HPL"),
        ("hpcc", "EP-DGEMM"),
        ("hpcc", "Single-DGEMM"),
        ("hpl", "nb64"),
        ("hpl", "best"),
    ]
    cells = [replace(like, workload=workload, metric=metric) for workload, metric in named]
    known = [roof("dgemm", 20e9, "FLOP/s"), roof("dgemm", 12e9, "FLOP/s", ranks=1)]
    shares = [c.roof.share if c.roof else None for c in with_roofs(study, cells, known, BARE)]
    assert shares == pytest.approx([0.45, 0.9, 0.75, 0.45, 0.45])


def test_words() -> None:
    assert words(roof("triad", 1.0, "B/s", ranks=1)) == "memory bandwidth, STREAM of 1 rank"
    assert words(roof("latency", 1.0, "s", transport="shm")) == "latency between ranks in shared memory"
    assert share_figure(0.809) == "80.9 %"


def streams(**metrics: float) -> list[Cell]:
    """Cells of stream workloads by name, with what both sides reach in B/s."""
    like = next(c for c in sample.analysis().cells if c.arm == "container/one")
    return [
        replace(
            like,
            workload=name,
            metric="triad",
            unit="B/s",
            better=Better.HIGHER,
            baseline_value=Interval(centre=v, low=v, high=v),
            value=Interval(centre=v, low=v, high=v),
            baseline_values=(0.9 * v, v),
        )
        for name, v in metrics.items()
    ]


def study_of(*workloads: KernelWorkload) -> Study:
    study = replace(sample.study(), workloads=workloads)
    return replace(study, environments=tuple(replace(e, workloads=()) for e in study.environments))


BIG = KernelWorkload(name="big", kernel="stream", params={"elements": "auto"})
SMALL = KernelWorkload(name="small", kernel="stream", params={"elements": 2_000_000})


def test_only_the_same_kernel_and_size_on_bare_metal_raises_a_roof() -> None:
    cells = streams(big=30e9, small=20e9)
    big, small = with_roofs(study_of(BIG, SMALL), cells, [roof("triad", 25e9, "B/s")], BARE)
    assert big.roof is not None and big.roof.value == 30e9 and big.roof.share == 1
    assert small.roof is not None and small.roof.share == pytest.approx(2 / 3)
    big, small = with_roofs(study_of(BIG, SMALL), cells, [roof("triad", 25e9, "B/s")], ())
    assert big.roof is None, "no baseline is the bare machine, so it exceeds the roof"
    assert small.roof is not None and small.roof.share == pytest.approx(20 / 25)


def test_a_roof_that_a_workload_exceeds_is_not_shown_for_it() -> None:
    cells = streams(big=20e9, small=40e9)
    big, small = with_roofs(study_of(BIG, SMALL), cells, [roof("triad", 25e9, "B/s")], BARE)
    assert small.roof is None and small.baseline_roof is None
    assert big.roof is not None and big.roof.share == pytest.approx(0.8)


def test_upper_bound_is_the_best_of_several_rounds() -> None:
    first, second = roof("triad", 20e9, "B/s"), replace(roof("triad", 22e9, "B/s"), measured=2e9)
    both = first.with_round(second).with_round(roof("triad", 19e9, "B/s"))
    assert both.value == 22e9 and both.rounds == 3
    latency = roof("latency", 2e-7, "s", better=Better.LOWER)
    assert latency.with_round(replace(latency, value=1.9e-7)).value == 1.9e-7


def test_the_form_in_files_comes_back_and_nonsense_does_not() -> None:
    known = (roof("triad", 8e10, "B/s"), roof("dgemm", 9e10, "FLOP/s", ranks=None))
    assert read_roofs([roof_record(r) for r in known]) == known
    assert read_roofs(None) == read_roofs("x") == read_roofs([1, {}, {"value": "1"}]) == ()
    bad = {**roof_record(known[0]), "better": "more"}
    assert read_roofs([bad]) == ()


def test_tables_and_charts_show_it() -> None:
    cells = with_roofs(sample.study(), sample.analysis().cells, [roof("triad", 8e10, "B/s")], BARE)
    analysis = replace(sample.analysis(), cells=cells)
    lines = roof_lines(analysis)
    assert lines and all(line.roof.startswith("80") for line in lines)
    assert "## Upper bounds" in markdown_text(sample.study(), analysis)
    (cell, *_) = [c for c in cells if c.roof is not None]
    chart = absolute(cell, RecordIndex(()))
    assert chart is not None and "Dashed: the upper bound" in chart.caption
    assert len(chart.data["roof"]) == 1


def test_distant_upper_bound_is_not_drawn() -> None:
    cells = with_roofs(sample.study(), sample.analysis().cells, [roof("triad", 8e13, "B/s")], BARE)
    (cell, *_) = [c for c in cells if c.roof is not None]
    chart = absolute(cell, RecordIndex(()))
    assert chart is not None and "Dashed" not in chart.caption and chart.data["roof"] == []


class Quiet:
    """A progress that keeps what is said."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.notes: list[str] = []

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)


class Built:
    digest = "d"


class Mpi:
    title = "Open MPI"


class Host:
    @staticmethod
    def read(_: str) -> bytes:
        return b"boot\n"


class Machine:
    built, mpi, host, cpus = Built, Mpi, Host, (0, 1)


def test_upper_bounds_are_measured_several_times_between_blocks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[RoofRequest] = []

    def measure(_: Any, wish: RoofRequest, __: str, ___: Path) -> MeasuredRoof:
        asked.append(wish)
        if wish.name == "bandwidth":
            raise RunError("no message came")
        return roof(wish.name, 1.0, "B/s", ranks=wish.ranks, transport=wish.transport, place=wish.place)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "nearmetal").mkdir()
    monkeypatch.setattr(roofs, "MEASURES", dict.fromkeys(ROOF_KERNELS, measure))
    monkeypatch.setattr(roofs, "by_sockets", lambda _, *others: measure(*others))
    networks = {("container/two", False): "a network"}
    node = SimpleNamespace(machine=Machine(), label="label", scratch=tmp_path, networks=networks)
    said = Quiet()

    def run(steps: int) -> tuple[MeasuredRoof, ...]:
        arguments: Any = (node, wanted(sample.study()), said)
        meter = roofs.RoofMeter(*arguments)
        for _ in range(steps):
            meter.step(1000.0)
        assert steps < 50 or not meter.step(1000.0)
        found: tuple[MeasuredRoof, ...] = meter.roofs()
        return found

    assert run(0) == ()
    arguments: Any = (node, wanted(sample.study()), Quiet())
    short = roofs.RoofMeter(*arguments)
    assert short.complete() and {r.rounds for r in short.roofs()} == {1} and not short.complete()
    shutil.rmtree(tmp_path / "nearmetal")
    (tmp_path / "nearmetal").mkdir()
    asked.clear()
    first = run(50)
    assert first and all(r.rounds == roofs.ROUNDS for r in first)
    assert len(said.notes) == len({w for w in asked if w.name == "bandwidth"})
    assert "no upper bound for bandwidth: no message came" in said.notes[0]
    kept = {w for w in asked if w.name != "bandwidth" and not w.place}

    def measured(place: str) -> list[RoofRequest]:
        return [w for w in asked if w.name != "bandwidth" and w.place == place]

    assert run(50) == first
    assert len(measured("")) == roofs.ROUNDS * len(kept)  # the second time from the cache
    assert len(measured("container/two")) == 2 * roofs.ROUNDS  # a network is of one run
    monkeypatch.setattr(Built, "digest", "another")
    run(50)
    assert len(measured("")) == 2 * roofs.ROUNDS * len(kept)


def test_upper_bounds_take_a_bounded_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [0.0]

    def measure(_: Any, wish: RoofRequest, __: str, ___: Path) -> MeasuredRoof:
        now[0] += 3.0
        return roof(wish.name, 1.0, "B/s", ranks=wish.ranks, transport=wish.transport, place=wish.place)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(roofs, "MEASURES", dict.fromkeys(ROOF_KERNELS, measure))
    monkeypatch.setattr(roofs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    node = SimpleNamespace(machine=Machine(), label="label", scratch=tmp_path, networks={})
    arguments: Any = (node, wanted(sample.study()), Quiet())
    meter = roofs.RoofMeter(*arguments)
    assert meter.step(5.0)
    assert not meter.step(3.0 / roofs.SHARE - 1)
    assert meter.step(3.0 / roofs.SHARE)

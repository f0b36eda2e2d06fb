"""Roofs: which stands over which metric, the share, its form in files, and that each is measured once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.analysis.roofs import wanted, with_roofs, words
from nearmetal.errors import RunError, UnavailableError
from nearmetal.execute import roofs
from nearmetal.execute.dgemm_roof import DgemmRoof
from nearmetal.host import Unavailable
from nearmetal.model.result import Cell
from nearmetal.model.roof import MeasuredRoof, Wanted, read_roofs, roof_record
from nearmetal.model.study import ApplicationWorkload, Better, Storage, StorageKind
from nearmetal.report.chart_parts import PAGE
from nearmetal.report.charts import absolute
from nearmetal.report.markdown import markdown_text
from nearmetal.report.roofs_table import roof_lines, share_words
from nearmetal.report.seen import RecordIndex


def roof(name: str, value: float, unit: str, **more: Any) -> MeasuredRoof:
    ranks, transport = more.get("ranks", 2), more.get("transport", "")
    better = more.get("better", Better.HIGHER)
    return MeasuredRoof(
        name=name,
        ranks=ranks,
        transport=transport,
        value=value,
        unit=unit,
        better=better,
        measured=1.7e9,
        how="measured",
    )


def under(*known: MeasuredRoof) -> dict[str, Cell]:
    """Cells of the sample study that a roof stands over, by 'arm workload.metric'."""
    cells = with_roofs(sample.study(), sample.analysis().cells, known)
    return {f"{c.arm} {c.workload}.{c.metric}": c for c in cells if c.roof is not None}


def test_each_roof_of_a_study_is_wanted_once() -> None:
    found = wanted(sample.study())
    assert len(found) == len(set(found))
    assert {w.name for w in found} >= {"triad", "latency", "bandwidth"}
    assert {w.transport for w in found if w.name == "latency"} == {"shm", "tcp"}
    assert {w.ranks for w in found if w.name == "triad"} == {2}


def test_a_rate_and_a_latency_as_shares() -> None:
    latency = roof("latency", 1e-7, "s", transport="tcp", better=Better.LOWER)
    found = under(roof("triad", 80e9, "B/s"), latency)
    assert found
    for name, c in found.items():
        assert c.roof is not None
        ratio = c.roof.value / c.value.centre
        assert c.roof.share == pytest.approx(1 / ratio if c.better is Better.HIGHER else ratio)
        if "latency" in name:  # of what goes over TCP alone; the baseline may share memory
            assert c.roof.words.endswith("over loopback")
    assert not any("cg" in name for name in found)


def test_a_roof_of_other_ranks_or_units_stands_over_nothing() -> None:
    assert not under(roof("triad", 8e10, "B/s", ranks=1))
    assert not under(roof("triad", 8e10, "FLOP/s"))
    assert under(roof("triad", 8e10, "B/s", ranks=None))


def test_applications_are_under_their_roofs() -> None:
    fio = ApplicationWorkload(name="files", application="fio")
    hpcc = ApplicationWorkload(name="suite", application="hpcc")
    environments = tuple(
        replace(e, storage=Storage(kind=kind) if kind else None)
        for e, kind in zip(
            sample.study().environments, (None, StorageKind.LOOP, StorageKind.TMPFS), strict=False
        )
    )
    asked = replace(sample.study(), workloads=(fio, hpcc), environments=environments)
    found = wanted(asked)
    assert {(w.name, w.place) for w in found if w.place} == {
        ("disk-read", "/var/tmp"),
        ("disk-write", "/var/tmp"),
    }
    assert {w.ranks for w in found if w.name == "dgemm"} == {2}
    first = sample.analysis().cells[0]
    each = replace(first, workload="suite", metric="EP-DGEMM", unit="FLOP/s", better=Better.HIGHER)
    reads = replace(first, workload="files", metric="read_1MiB_bandwidth", unit="B/s")
    requests = replace(first, workload="files", metric="read_1MiB_rate", unit="op/s")
    roofs_ = (
        roof("dgemm", 9e10, "FLOP/s"),
        replace(roof("disk-read", 1e9, "B/s", ranks=None), place="/var/tmp"),
        replace(roof("disk-read", 2e9, "B/s", ranks=None), place="/elsewhere"),
    )
    dgemm, read, none = with_roofs(asked, (each, reads, requests), roofs_)
    assert dgemm.roof is not None and dgemm.roof.value == 4.5e10  # of one rank of two
    assert none.roof is None
    assert read.roof is not None
    assert (read.roof.value, read.roof.words) == (1e9, "sequential reads of the disk of /var/tmp")


def test_words() -> None:
    assert words(roof("triad", 1.0, "B/s", ranks=1)) == "memory bandwidth, STREAM Triad of 1 rank"
    assert words(roof("latency", 1.0, "s", transport="shm")) == "latency between ranks in shared memory"
    assert share_words(0.809) == "80.9 %"
    assert "beyond it" in share_words(1.4)


def test_the_form_in_files_comes_back_and_nonsense_does_not() -> None:
    known = (roof("triad", 8e10, "B/s"), roof("dgemm", 9e10, "FLOP/s", ranks=None))
    assert read_roofs([roof_record(r) for r in known]) == known
    assert read_roofs(None) == read_roofs("x") == read_roofs([1, {}, {"value": "1"}]) == ()
    bad = {**roof_record(known[0]), "better": "more"}
    assert read_roofs([bad]) == ()


def test_tables_and_charts_show_it() -> None:
    cells = with_roofs(sample.study(), sample.analysis().cells, [roof("triad", 8e10, "B/s")])
    analysis = replace(sample.analysis(), cells=cells)
    lines = roof_lines(analysis)
    assert lines and all(line.roof.startswith("80") for line in lines)
    assert "## Roofs" in markdown_text(sample.study(), analysis)
    (cell, *_) = [c for c in cells if c.roof is not None]
    chart = absolute(cell, RecordIndex(()), PAGE)
    assert chart is not None and "Dashed: the roof" in chart.caption
    layers = cast(Any, chart.spec)["layer"]
    assert any(layer["mark"].get("strokeDash") for layer in layers if isinstance(layer["mark"], dict))


def test_far_off_it_is_told_and_not_drawn() -> None:
    cells = with_roofs(sample.study(), sample.analysis().cells, [roof("triad", 8e13, "B/s")])
    (cell, *_) = [c for c in cells if c.roof is not None]
    chart = absolute(cell, RecordIndex(()), PAGE)
    assert chart is not None and "Dashed" not in chart.caption


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


def test_matrix_products_are_of_as_many_cpus_as_ranks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[int, ...]] = []

    def answer(of: DgemmRoof | Unavailable) -> None:
        def measure(_: Any, cpus: tuple[int, ...]) -> DgemmRoof | Unavailable:
            asked.append(tuple(cpus))
            return of

        monkeypatch.setattr(roofs, "measure_dgemm_roof", measure)

    machine: Any = Machine()
    answer(DgemmRoof(library="/blas", core="Zen", alone=3e9, each=(2e9, 2.5e9)))
    found = roofs.by_dgemm(machine, Wanted(name="dgemm", ranks=2, transport=""), "label", tmp_path)
    assert (found.value, found.unit, found.ranks, asked) == (4.5e9, "FLOP/s", 2, [(0, 1)])
    assert "/blas" in found.how and "Zen" in found.how
    answer(Unavailable("no BLAS"))
    with pytest.raises(UnavailableError, match="no BLAS"):
        roofs.by_dgemm(machine, Wanted(name="dgemm", ranks=1, transport=""), "label", tmp_path)
    assert asked[-1] == (0,)


def test_each_is_measured_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Wanted] = []

    def measure(_: Any, wish: Wanted, __: str, ___: Path) -> MeasuredRoof:
        asked.append(wish)
        if wish.name == "bandwidth":
            raise RunError("no message came")
        return roof(wish.name, 1.0, "B/s", ranks=wish.ranks, transport=wish.transport)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "nearmetal").mkdir()
    monkeypatch.setattr(roofs, "MEASURES", dict.fromkeys(roofs.KERNELS, measure))
    said = Quiet()

    def found() -> tuple[MeasuredRoof, ...]:
        arguments: Any = (Machine(), sample.study(), "label", tmp_path, said)
        return roofs.measured_roofs(*arguments)

    first = found()
    assert first and said.notes and "no roof bandwidth: no message came" in said.notes[0]
    before = [w for w in asked if w.name != "bandwidth"]
    assert found() == first
    assert [w for w in asked if w.name != "bandwidth"] == before  # the second time from the cache
    monkeypatch.setattr(Built, "digest", "another")
    found()
    assert len([w for w in asked if w.name != "bandwidth"]) == 2 * len(before)

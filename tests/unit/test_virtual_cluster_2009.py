"""The study of a virtual cluster of 2009: its parts, tables in the paper's layout, and guests that beat bare
metal."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.parts import near, part, planned, study

from nearmetal.analysis import analyse
from nearmetal.analysis.guest_gains import ClockAnswer, answer_of
from nearmetal.analysis.instances import instance_figures
from nearmetal.analysis.published import rate_loss
from nearmetal.analysis.roofs import with_roofs
from nearmetal.api.series.files import read_series
from nearmetal.errors import PaperFileError
from nearmetal.model.change import replace
from nearmetal.model.record import TrialRecord
from nearmetal.model.roof import DGEMM, MeasuredRoof
from nearmetal.model.scope import GUEST, Scope
from nearmetal.model.series import Scale, Series
from nearmetal.model.study import Better
from nearmetal.plan import FIXED_FROM, make_plan
from nearmetal.plan.narrowing import MachineOffer, Substitute, narrow
from nearmetal.published import published, read
from nearmetal.report.record_index import RecordIndex
from nearmetal.report.series import PartResult, series_json, series_text
from nearmetal.report.series_page import write_series
from nearmetal.report.tables.guest_gains import gains_of
from nearmetal.report.tables.instances import instances_of
from nearmetal.run.estimate import BOOT, _cost
from nearmetal.studies import find_series
from nearmetal.subjects.program import TCP
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate
from nearmetal.workloads.applications.hpcc import MESSAGE_SECONDS

NAME = "virtual-cluster-2009"
BLOCKS = 12
RATES = {
    "G-HPL": 40e9,
    "G-PTRANS": 2e9,
    "G-RandomAccess": 4e7,
    "G-FFTE": 3e9,
    "EP-STREAM-triad": 12e9,
    "EP-DGEMM": 30e9,
}


def series(cpus: int = 2, scale: Scale = Scale.SMALL) -> Series:
    found = find_series(NAME)
    assert found is not None
    offer = MachineOffer(
        cpus=tuple(range(cpus)), cores=cpus, substitutes={"qemu": Substitute(backend="qemu", own_kernel=True)}
    )
    return narrow(read_series(found, scale=scale, seed=7), offer, seed=7, max_time=3600.0)


def hpcc(overheads: dict[str, float], clocks: dict[str, float] | None = None) -> PartResult:
    """A part measured with planted overheads, by arm.

    clocks: what each guest counted of its clock.
    """
    own = part(series(), "machines")
    assert own.study is not None
    plan = make_plan(own.study, blocks=BLOCKS)
    metrics = [
        SimulatedMetric(workload="hpcc", metric=m, unit="FLOP/s", better=Better.HIGHER, value=v)
        for m, v in RATES.items()
    ]
    metrics.append(
        SimulatedMetric(
            workload="hpcc", metric="RandomRing-latency", unit="s", better=Better.LOWER, value=2e-6
        )
    )
    records = [
        replace(
            r,
            facts={"hpcc": {"n": 400, "grid": "1x2", "n_by_memory": 10300, "n_by_cpus": 14600}},
            counters={**r.counters, **(_clocks(r, clocks) if clocks else {})},
        )
        for r in simulate(own.study, plan, metrics=metrics, overheads=overheads, spread=Spread())
    ]
    return PartResult(
        part=own,
        directory=Path("x"),
        study=own.study,
        analysis=analyse(own.study, plan, records),
        records=records,
        why="done",
    )


def _clocks(r: TrialRecord, clocks: dict[str, float]) -> dict[Scope, dict[str, float | None]]:
    if r.arm.startswith("physical"):
        return {}
    return {Scope(kind=GUEST, name="vm1", runs="hpcc"): dict(clocks)}


def test_machines_run_as_many_guests_as_the_paper_where_they_fit() -> None:
    assert [a.name for a in study(series(32), "machines").arms()] == [
        "physical/emulated-16x1x2",
        "one-vm/emulated-16x1x2",
        "two-vms/emulated-16x2x1",
    ]
    assert [a.name for a in study(series(), "machines").arms()] == [
        "physical/1x2",
        "one-vm/1x2",
        "two-vms/2x1",
    ]


def test_what_needs_a_cluster_is_named_among_what_is_left_out() -> None:
    left_out = [str(o) for o in part(series(), "machines").left_out]
    assert left_out[0].startswith("pool-and-gatekeeper: ")
    assert left_out[1].startswith("many-small-jobs: ")


def test_the_problem_size_follows_from_both_equations() -> None:
    for scale, n in ((Scale.SMALL, 400), (Scale.PAPER, "auto")):
        (work,) = study(series(scale=scale), "machines").applications
        assert work.params["n"] == n and work.params["memory"] == 1 << 30


def test_tables_have_the_layout_of_the_paper() -> None:
    overheads = {"one-vm/1x2": 1.0, "two-vms/2x1": 0.25}
    found = hpcc(overheads)
    form = series_json(series(), [found], published(NAME), results_dir="r", report="r/report.html")
    json.dumps(form, allow_nan=False)
    told: Any = form["parts"]
    tables = {t["where"]: t for t in told[0]["tables"]}
    assert list(tables) == ["Table 3", "Table 4"]
    for name, arm, o in (("Table 3", "one-vm/1x2", 1.0), ("Table 4", "two-vms/2x1", 0.25)):
        table = tables[name]
        assert [c["name"] for c in table["columns"]] == [
            "physical",
            "xen",
            "xen overhead",
            "kvm",
            "kvm overhead",
        ]
        rows = {row["name"]: row["cells"] for row in table["rows"]}
        # The loss of a rate is o / (1 + o); a latency grows by o.
        assert rows["G-HPL"][4]["centre"] == pytest.approx(rate_loss(o), abs=0.01), arm
        assert rows["G-HPL"][4]["low"] < rate_loss(o) < rows["G-HPL"][4]["high"]
        assert rows["RandomRing latency"][4]["centre"] == pytest.approx(o, abs=0.02)
        assert rows["G-HPL"][0]["centre"] == pytest.approx(40e9, rel=0.02)
        assert rows["G-HPL"][1] == {
            "printed": "118.067 GFLOP/s" if o == 1 else "130.862 GFLOP/s",
            "text": None,
        }
        assert rows["EP-STREAM sys"][0]["centre"] == pytest.approx(2 * 12e9, rel=0.02), "of both processes"
        assert rows["process grid"][0] == {"printed": "7x4", "text": "1x2"}
        assert rows["problem size"][3] == {"printed": "58600", "text": "400"}
        assert rows["problem size by equation 1"][3]["text"] == "10,300"
        assert rows["problem size by equations 1 and 2"][0]["text"] == "14,600"
        assert rows["RandomRing bandwidth"][0]["text"] == "not measured"
    text = series_text(series(), [found], published(NAME))
    assert "kvm overhead: two-vms, 2 VMs × 1 task, by the paper's formula" in text
    assert "85.173 %" in text


def test_a_part_that_was_not_measured_shows_the_printed_table_alone() -> None:
    own = part(series(), "single")
    nothing = PartResult(part=own, directory=None, study=None, analysis=None, records=(), why="no image")
    text = series_text(series(), [nothing], published(NAME))
    assert "8.771 %" in text and "kvm, paper" in text and "by the paper's formula" not in text


def test_the_boot_times_of_the_paper_stand_in_the_summary() -> None:
    own = part(series(), "boot")
    nothing = PartResult(part=own, directory=None, study=None, analysis=None, records=(), why="no image")
    assert "65.4" in series_text(series(), [nothing], published(NAME))


@pytest.mark.parametrize(
    ("high", "rate", "error", "answer"),
    [
        (-0.10, -0.12, 0.001, ClockAnswer.EXPLAINS),
        (-0.10, -0.02, 0.001, ClockAnswer.PARTLY),
        (-0.10, 1e-6, 1e-5, ClockAnswer.AGREES),
        (-0.10, -1e-6, 1e-5, ClockAnswer.AGREES),
        (-0.10, 0.02, 0.001, ClockAnswer.AGREES),
        (-0.10, -0.05, 0.06, ClockAnswer.UNSURE),  # too uncertain to exclude it
        (-0.003, 0.0, 0.005, ClockAnswer.UNSURE),
    ],
)
def test_a_slow_clock_explains_what_it_shortens(
    high: float, rate: float, error: float, answer: ClockAnswer
) -> None:
    assert answer_of(high, rate, error) is answer


def test_a_guest_that_beats_bare_metal_is_asked_for_its_clock(tmp_path: Path) -> None:
    faster = {"one-vm/1x2": -0.2, "two-vms/2x1": 0.25}
    for clocks, answer in (
        ({"clock_drift": -2.0, "clock_error": 0.001, "clock_span": 10.0}, "explained by its clock"),
        ({"clock_drift": -0.001, "clock_error": 0.001, "clock_span": 10.0}, "not explained"),
        ({}, "its clock was not compared"),
    ):
        found = hpcc(faster, clocks)
        form: Any = series_json(series(), [found], None, results_dir="r", report="r")
        gains = form["parts"][0]["guest_gains"]
        assert {(g["arm"], g["answer"], g["beyond_bound"]) for g in gains} == {("one-vm/1x2", answer, False)}
        assert {g["metric"] for g in gains} == {*RATES, "RandomRing-latency"}
        assert gains[0]["clock_rate"] == (pytest.approx(clocks["clock_drift"] / 10) if clocks else None)
        page, _ = write_series(tmp_path, series(), [found], None)
        assert answer in page.read_text()
    assert "Guests faster than bare metal" not in series_text(series(), [hpcc({"one-vm/1x2": 0.2})], None)


def test_a_guest_beyond_a_bound_is_asked_too() -> None:
    found = hpcc({"one-vm/1x2": -0.5}, {"clock_drift": 0.0, "clock_error": 1e-4, "clock_span": 10.0})
    assert found.study is not None and found.analysis is not None
    roof = MeasuredRoof(
        name=DGEMM,
        ranks=2,
        transport="",
        value=50e9,
        unit="FLOP/s",
        better=Better.HIGHER,
        measured=1.0,
        how="planted",
    )
    cells = with_roofs(found.study, found.analysis.cells, [roof], {"physical"})
    beyond = {(c.arm, c.metric) for c in cells if c.beyond is not None}
    assert beyond == {("one-vm/1x2", "G-HPL")}
    assert all(c.roof is None for c in cells), "what is exceeded bounds nothing"
    analysis = replace(found.analysis, cells=cells)
    gains = gains_of(found.study, analysis, instances_of(found.study, RecordIndex(found.records)))
    (one,) = [g for g in gains if g.beyond]
    assert one.gain[0] == pytest.approx(-0.375, abs=0.01) and one.answer is ClockAnswer.AGREES


def test_a_clock_rate_is_the_drift_over_the_time_between_two_comparisons() -> None:
    found = hpcc({}, {"clock_drift": 0.01, "clock_error": 0.001, "clock_span": 5.0})
    assert found.study is not None
    arm = next(a for a in found.study.arms() if a.name == "one-vm/1x2")
    own = [r for r in found.records if r.arm == arm.name]
    figures = instance_figures(arm, "hpcc", own)
    assert figures is not None and figures.clock_rate == pytest.approx(0.002)
    assert figures.clock_rate_error == pytest.approx(0.0004)
    old = [replace(r, counters={k: {"clock_drift": 0.01} for k in r.counters}) for r in own]
    before = instance_figures(arm, "hpcc", old)
    assert before is not None and before.clock_rate is None, "older records have no span"


TABLE = """
[paper]
key = "own"
title = "t"
authors = "a"
year = 2020
where = "w"
setting = "s"
[[table]]
name = "one"
what = "what"
source = "Table 1"
columns = ["bare", "vm", "loss"]
[table.rows]
HPL = [1.0, 2.0, 3.0]
[table.shown]
rows = "metric"
part = "p"
quantity = "value"
likeness = "like it"
differs = "all"
workloads = ["hpcc"]
overheads = ["loss"]
baseline = "bare"
[table.shown.metrics]
HPL = "G-HPL"
[table.shown.environments]
bare = "bare"
vm = "vm"
loss = "vm"
[table.shown.facts.size]
fact = "n"
printed = ["1", "2", ""]
"""


@pytest.mark.parametrize(
    ("old", "new", "said", "line"),
    [
        ('quantity = "value"', 'quantity = "overhead"', "a table in the paper's layout has values", 19),
        ('HPL = "G-HPL"', 'HLP = "G-HPL"', 'no such name: "HLP"; did you mean "HPL"', 25),
        ('vm = "vm"\n', 'vn = "vm"\n', 'no such name: "vn"; known: bare, vm, loss', 27),
        ('overheads = ["loss"]', 'overheads = ["los"]', 'no such name: "los"; did you mean "loss"', 23),
        ('baseline = "bare"\n', "", "overheads need the baseline", 23),
        ('["1", "2", ""]', '["1", "2"]', "2 texts for 3 columns", 33),
        ("HPL = [1.0, 2.0, 3.0]", "HPL = [1.0, nan, 3.0]", "must be a finite number", 15),
    ],
)
def test_a_mistake_in_a_table_is_reported_at_its_place(old: str, new: str, said: str, line: int) -> None:
    assert old in TABLE
    assert len(read(TABLE, "own.toml").tables) == 1
    with pytest.raises(PaperFileError) as caught:
        read(TABLE.replace(old, new), "own.toml")
    text = str(caught.value)
    assert said in text and f"own.toml:{line}:" in text


def test_the_range_of_an_overhead_without_an_interval_is_open() -> None:
    short = hpcc({})
    assert short.analysis is not None
    cells = tuple(replace(c, low=-1.0, high=math.inf) for c in short.analysis.cells)
    form: Any = series_json(
        series(),
        [replace(short, analysis=replace(short.analysis, cells=cells))],
        published(NAME),
        results_dir="r",
        report="r",
    )
    json.dumps(form, allow_nan=False)
    row = next(r for r in form["parts"][0]["tables"][0]["rows"] if r["name"] == "G-HPL")
    assert row["cells"][4]["low"] is None and "no interval yet" in row["cells"][4]["text"]


def test_a_plan_of_the_curve_is_within_a_factor_of_two_of_a_run_on_two_cores() -> None:
    """What was run in 100 s on two cores where guests are emulated, without other work."""
    guess = planned(series(), "curve", 100.0)
    assert near(guess, 103, 5.5), guess


def test_a_plan_says_how_few_rounds_there_are_if_the_first_look_is_not_reached() -> None:
    """What was run in 309 s on two cores where guests are emulated: 5 rounds of 40.6 s."""
    guess = planned(series(), "machines", 309.0)
    assert 4 <= guess.least_blocks <= 10 and guess.block_seconds == pytest.approx(40.6, rel=0.25)
    assert planned(series(), "machines", 900.0).least_blocks > FIXED_FROM


def test_the_estimate_counts_messages_over_tcp_and_guests_that_boot_at_the_same_time() -> None:
    """HPCC by two ranks through the memory of one guest, and over the network of two; two boots overlap."""
    machines = study(series(), "machines")
    costs = {a.name: _cost(machines, a).once for a in machines.arms()}
    messages = (TCP - 1) * MESSAGE_SECONDS
    assert costs["two-vms/2x1"] - costs["one-vm/1x2"] == pytest.approx(messages + BOOT / 2)
    assert costs["one-vm/1x2"] - costs["physical/1x2"] == pytest.approx(BOOT)

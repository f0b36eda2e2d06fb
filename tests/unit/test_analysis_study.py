"""Whole analyses of simulated runs: planted answers come out, attribution says what intervals carry, rules
stop."""

import math
import random
from collections.abc import Mapping

import pytest

from nearmetal.analysis import (
    StateCell,
    analyse,
    compare_boots,
    compare_states,
    decided,
    half_width,
    least_boots,
    verdict_state,
)
from nearmetal.analysis.published import published_column
from nearmetal.analysis.two_level import LeastBoots, StateQuantity
from nearmetal.model.change import replace
from nearmetal.model.record import Fold, Row, Status, TrialRecord
from nearmetal.model.result import Analysis, Attribution, Cell, Verdict
from nearmetal.model.study import (
    Attachment,
    Better,
    Design,
    Environment,
    EventSubject,
    KernelWorkload,
    Placement,
    Study,
)
from nearmetal.plan import make_plan
from nearmetal.run.decide import Clock, should_stop
from nearmetal.subjects.start_stop import START

DESIGN = Design(baselines=("native", "tcp"), margin=0.03, confidence=0.95, seed=5)
STUDY = Study(
    name="s",
    question="what does it cost?",
    environments=(
        Environment(name="native", backend="native", placements=("one",)),
        Environment(name="tcp", backend="native", attachment=Attachment.LOOPBACK, placements=("one",)),
        Environment(
            name="box", backend="namespaces", attachment=Attachment.VETH_BRIDGE, placements=("one", "two")
        ),
    ),
    placements=(
        Placement(name="one", instances=1, tasks=2),
        Placement(name="two", instances=2, tasks=1),
    ),
    workloads=(
        KernelWorkload(name="cg", kernel="cg", params={}),
        KernelWorkload(name="triad", kernel="stream", params={}),
        EventSubject(name="start", facts=START),
    ),
    design=DESIGN,
)
Planted = Mapping[str, tuple[float, float]]
"""By arm: extra computation and extra communication, shares of the baseline's time."""
COMM = 0.2


def run(
    blocks: int,
    planted: Planted,
    *,
    study: Study = STUDY,
    spread: float = 0.01,
    drift: float = 0.0,
    seed: int = 0,
    level: float = 0.0,
    aa: float = 0.0,
    detail: bool = True,
    disturbance: Mapping[str, float | None] | None = None,
) -> Analysis:
    records = simulated(
        blocks,
        planted,
        study=study,
        spread=spread,
        drift=drift,
        seed=seed,
        level=level,
        aa=aa,
        disturbance=disturbance,
    )
    return analyse(study, make_plan(study, blocks=blocks), records, detail=detail)


def simulated(
    blocks: int,
    planted: Planted,
    *,
    study: Study = STUDY,
    spread: float = 0.01,
    drift: float = 0.0,
    seed: int = 0,
    level: float = 0.0,
    aa: float = 0.0,
    disturbance: Mapping[str, float | None] | None = None,
) -> list[TrialRecord]:
    """cg in seconds with MPI times, triad as a rate, start in seconds; aa: planted in the second baseline
    run."""
    rng = random.Random(seed)
    out = []
    for block in make_plan(study, blocks=blocks).blocks:
        for spec in block.trials:
            compute, comm = planted.get(spec.arm, (0.0, 0.0))
            compute += aa * spec.aa

            def noise(block_number: int = block.number) -> float:
                return math.exp(level + rng.gauss(0, spread) + drift * block_number)

            seconds, inside = [], []
            for _ in range(4):
                n = noise()
                seconds.append(n * (1 + compute + comm))
                inside.append(n * (COMM + comm))
            rows = (
                Row(
                    workload="cg",
                    metric="seconds",
                    unit="s",
                    better=Better.LOWER,
                    values=tuple(seconds),
                    status=Status.OK,
                    parts={"comm": tuple(inside)},
                ),
                Row(
                    workload="triad",
                    metric="rate",
                    unit="B/s",
                    better=Better.HIGHER,
                    values=tuple(1e9 / (noise() * (1 + compute)) for _ in range(4)),
                    status=Status.OK,
                ),
                Row(
                    workload="start",
                    metric="start",
                    unit="s",
                    better=Better.LOWER,
                    values=(0.001 * noise() * (5 if spec.arm.startswith("box") else 1),),
                    status=Status.OK,
                ),
            )
            out.append(
                TrialRecord(
                    run="r",
                    trial=spec.id,
                    block=spec.block,
                    attempt=1,
                    arm=spec.arm,
                    aa=spec.aa,
                    position=spec.position,
                    begin=100.0 + 2 * spec.block,
                    end=101.8 + 2 * spec.block,
                    fold=Fold.PAIRED,
                    status=Status.OK,
                    reason="",
                    rows=rows,
                    disturbance=disturbance or {"steal_share": None, "other_cpu_share": 0.001},
                    flags=("disturbed",) if spec.block == 1 else (),
                )
            )
    return out


def cell(analysis: Analysis, arm: str, baseline: str, workload: str = "cg") -> Cell:
    return next(c for c in analysis.cells if (c.arm, c.baseline, c.workload) == (arm, baseline, workload))


def test_planted_overheads_are_recovered() -> None:
    a = run(27, {"box/one": (0.10, 0.0), "tcp/one": (0.0, 1.5), "box/two": (0.0, 1.5)})
    assert (a.blocks, a.torn_blocks, a.failed_trials) == (27, 0, 0)
    slow = cell(a, "box/one", "native/one")
    assert slow.verdict is Verdict.SLOWER and slow.low < 0.10 < slow.high and slow.n == 27
    assert slow.overhead == pytest.approx(0.10, abs=0.01)
    assert slow.difference.low < 0.10 < slow.difference.high
    rate = cell(a, "box/one", "native/one", "triad")
    assert rate.verdict is Verdict.SLOWER and rate.low < 0.10 < rate.high
    assert rate.difference.high < 0 < rate.baseline_value.low
    lost = published_column(rate)
    assert lost.low < 0.1 / 1.1 < lost.high and published_column(slow).low == slow.low
    same = cell(a, "box/two", "tcp/one")
    assert same.verdict is Verdict.EQUIVALENT
    for c in (slow, rate, same):
        assert c.sign.low <= math.log1p(c.overhead) <= c.sign.high
        assert c.mean.low <= math.log1p(c.overhead) <= c.mean.high
        assert c.value.low <= c.value.centre <= c.value.high
        assert [look.n for look in c.looks] == [8, 12, 18, 27]
        assert len(c.d) == len(c.blocks) == len(c.values) == len(c.baseline_values) == 27
    assert a.noise_floor.trusted and a.noise_floor.proven and a.noise_floor.reason == ""
    assert {c.workload for c in a.noise_floor.cells} == {"cg", "triad", "start"}
    assert all(c.arm == c.baseline == "native/one" for c in a.noise_floor.cells)
    assert a.disturbance == {"flagged": pytest.approx(1 / 27), "other_cpu_share": 0.001, "steal_share": None}
    assert a.block_seconds == pytest.approx(2.0) and a.elapsed == pytest.approx(2 * 26 + 1.8)


def test_cells_stand_in_the_order_of_the_study() -> None:
    a = run(12, {})
    assert [c.key for c in a.cells[:3]] == [
        "tcp/one|native/one|cg.seconds",
        "tcp/one|native/one|triad.rate",
        "tcp/one|native/one|start.start",
    ]
    assert [(c.arm, c.baseline) for c in a.cells[::3]] == [(c.arm, c.baseline) for c in STUDY.comparisons()]


def test_start_has_quantiles_and_others_have_none() -> None:
    a = run(30, {})
    start = cell(a, "box/one", "native/one", "start")
    assert start.quantiles is not None and start.quantiles.n == 30 and start.events == "starts"
    assert start.quantiles.p90 is not None and start.quantiles.p95 is None
    assert start.overhead == pytest.approx(4.0, abs=0.1) and start.difference.centre == pytest.approx(
        0.004, rel=0.05
    )
    assert cell(a, "box/one", "native/one").quantiles is None


def test_starts_that_failed_count_as_longer_than_all_others() -> None:
    records = simulated(30, {})
    lost = {"box/one": 3, "native/one": 5}
    for arm, count in lost.items():
        for r in [r for r in records if r.arm == arm and not r.aa and r.block > 30 - count]:
            records[records.index(r)] = replace(r, status=Status.FAILED, reason="no answer for 60 s", rows=())
    start = cell(analyse(STUDY, make_plan(STUDY, blocks=30), records), "box/one", "native/one", "start")
    found = start.quantiles
    assert found is not None and (found.n, len(found.values), len(found.baseline_values)) == (30, 27, 25)
    assert found.p50 is not None and found.p50.centre == sorted(found.values)[14]
    assert found.p90 is None, "three of thirty may have taken any time"


def test_without_detail_the_verdicts_are_the_same() -> None:
    planted: Planted = {"box/one": (0.1, 0.0), "box/two": (0.02, 0.0)}
    full, short = run(20, planted), run(20, planted, detail=False)
    assert full.noise_floor.trusted == short.noise_floor.trusted
    for a, b in zip(
        (*full.cells, *full.noise_floor.cells), (*short.cells, *short.noise_floor.cells), strict=True
    ):
        for name in (
            "key",
            "n",
            "overhead",
            "low",
            "high",
            "verdict",
            "reason",
            "blocks_needed",
            "d",
            "looks",
        ):
            assert getattr(a, name) == getattr(b, name)
        assert b.p_holm is None and b.attribution is None and b.quantiles is None
        assert math.isinf(b.sign.high) and math.isinf(b.difference.high)
        assert b.baseline_value.centre == a.baseline_value.centre


def test_a_confirmatory_study_divides_alpha_among_the_named() -> None:
    named = replace(STUDY, design=replace(DESIGN, primary=("cg.seconds",)))
    a, plain = run(27, {}, study=named), run(27, {})
    m = len(STUDY.comparisons())
    for c, p in zip(a.cells, plain.cells, strict=True):
        primary = c.workload == "cg"
        assert c.exploratory is not primary and p.exploratory
        assert 1 - c.confidence == pytest.approx(0.05 / m if primary else 0.05)
        assert (half_width(c) > half_width(p)) if primary else (half_width(c) == half_width(p))
    assert all(c.exploratory and c.confidence == 0.95 for c in a.noise_floor.cells)


def test_holm_is_a_column_and_overturns_nothing() -> None:
    a = run(27, {"box/one": (0.10, 0.0)})
    ps = [c.p_holm for c in a.cells]
    assert all(p is not None and 0 < p <= 1 for p in ps)
    slow = cell(a, "box/one", "native/one")
    assert slow.p_holm is not None and slow.p_holm < 0.05
    assert all(c.p_holm is None for c in run(7, {}).cells)


def test_slices_of_less_work_are_weighed_per_unit_of_work() -> None:
    """Over a slower transport a slice holds less work: its raw seconds say nothing about the extra time."""
    out = []
    for record in simulated(27, {"box/one": (0.0, 0.5)}):
        work = 1.0 if record.arm.startswith("native") else 0.25
        row = record.rows[0]
        assert row.metric == "seconds"
        rate = replace(
            row,
            metric="rate",
            unit="op/s",
            better=Better.HIGHER,
            values=tuple(1e6 / v for v in row.values),
            seconds=tuple(v * work for v in row.values),
            parts={"comm": tuple(v * work for v in row.parts["comm"])},
        )
        out.append(replace(record, rows=(rate,)))
    plan = make_plan(STUDY, blocks=27)
    found = next(c for c in analyse(STUDY, plan, out).cells if c.arm == "box/one")
    assert found.attribution is not None
    by_name = {p.name: p.overhead for p in found.attribution.parts}
    assert by_name["communication"].low < 0.5 < by_name["communication"].high
    assert by_name["computation"].low < 0.0 < by_name["computation"].high
    assert found.attribution.sentence == "communication"


def test_overhead_of_a_start_is_attributed_to_its_steps() -> None:
    """Three planted steps of 1, 2 and 1.5 ms, native has one of them; 0.1 ms is none of them."""
    rng = random.Random(1)
    out = []
    for record in simulated(27, {}):
        mine = {"step.spawn": 1e-3} if record.arm.startswith("native") else STEPS
        steps = {k: tuple(v * math.exp(rng.gauss(0, 0.01)) for _ in range(4)) for k, v in mine.items()}
        values = tuple(1e-4 + sum(s) for s in zip(*steps.values(), strict=True))
        row = replace(
            record.rows[0], workload="start", metric="start", values=values, seconds=(), parts=steps
        )
        out.append(replace(record, rows=(row,)))
    analysis = analyse(STUDY, make_plan(STUDY, blocks=27), out)
    found = next(c for c in analysis.cells if c.arm == "box/one").attribution
    assert found is not None and found.residual is not None
    by_name = {p.name: p.overhead for p in found.parts}
    # Shares of the baseline's 1.1 ms; 3.5 ms more in all.
    assert by_name["root file system"].centre == pytest.approx(2.0 / 1.1, rel=0.02)
    assert by_name["mine"].centre == pytest.approx(1.5 / 1.1, rel=0.02)
    assert abs(by_name["start of the process"].centre) < 0.05 and abs(found.residual.centre) < 0.05
    assert found.sentence == "root file system 57 %, mine 43 %"


STEPS = {"step.spawn": 1e-3, "step.root": 2e-3, "step.mine": 1.5e-3}


def profiled(compute: float, comm: float, init: float, rest: float) -> Attribution:
    """Planted into the parts of a profiled command, box/one against the baseline; shares of its time."""
    rng = random.Random(1)
    out = []
    for record in simulated(27, {}):
        extra = record.arm == "box/one"
        parts = {
            "compute": 0.5 + extra * compute,
            "comm": 0.25 + extra * comm,
            "init": 0.125 + extra * init,
        }
        n = math.exp(rng.gauss(0, 0.01))
        wall = Row(
            workload="cg",
            metric="wall",
            unit="s",
            better=Better.LOWER,
            values=(n * (sum(parts.values()) + 0.125 + extra * rest),),
            status=Status.OK,
            parts={kind: (n * seconds,) for kind, seconds in parts.items()},
        )
        out.append(replace(record, rows=(wall,)))
    plan = make_plan(STUDY, blocks=27)
    found = next(c for c in analyse(STUDY, plan, out).cells if c.arm == "box/one").attribution
    assert found is not None
    return found


def test_the_parts_of_a_profiled_run_and_the_residual_are_the_overhead() -> None:
    found = profiled(0.02, 0.40, 0.05, 0.03)
    by_name = {p.name: p.overhead for p in found.parts}
    assert list(by_name) == ["communication", "computation", "start of MPI"]
    planted = {"communication": 0.40, "computation": 0.02, "start of MPI": 0.05}
    for name, share in planted.items():
        assert by_name[name].low <= share <= by_name[name].high
        assert by_name[name].half_width < 0.02
    assert found.residual is not None
    assert found.residual.low <= 0.03 <= found.residual.high and found.residual.half_width < 0.01
    assert sum(i.centre for i in by_name.values()) + found.residual.centre == pytest.approx(0.50, abs=0.01)
    assert found.sentence == "communication"


def test_overhead_outside_the_profile_is_not_explained() -> None:
    """Of the parts communication has nearly all, of the overhead less than half."""
    found = profiled(0.0, 0.10, 0.0, 0.15)
    assert found.sentence == "not explained"


def test_attribution_separates_communication_from_computation() -> None:
    a = run(27, {"box/one": (0.01, 0.30), "box/two": (0.4, 0.02)})
    comm = cell(a, "box/one", "native/one").attribution
    assert comm is not None and comm.residual is not None
    by_name = {p.name: p.overhead for p in comm.parts}
    assert by_name["communication"].low < 0.30 < by_name["communication"].high
    assert by_name["computation"].low < 0.01 < by_name["computation"].high
    assert comm.residual.low <= 0 <= comm.residual.high
    assert comm.sentence == "communication"
    compute = cell(a, "box/two", "native/one").attribution
    assert compute is not None and compute.sentence == "computation"
    quiet = cell(a, "tcp/one", "native/one").attribution
    assert quiet is not None and quiet.sentence == ""


def test_attribution_separates_lost_shared_memory_from_the_container() -> None:
    """The further baseline MPI without shared memory too; what is left against it is the container's own."""
    a = run(27, {"tcp/one": (1.2, 1.0), "box/two": (1.2, 1.0)})
    told = cell(a, "box/two", "native/one").attribution
    assert told is not None
    assert (
        told.sentence == "MPI without shared memory; native over TCP: ×3.2; the container itself: within ±3 %"
    )
    b = run(27, {"tcp/one": (0.1, 1.0), "box/two": (0.1, 1.5)})
    told = cell(b, "box/two", "native/one").attribution
    assert told is not None
    assert told.sentence == "communication; native over TCP: ×2.1; the container itself: +24 %"
    # TCP costs something and the container far more: shared memory is not what it was about.
    c = cell(run(27, {"tcp/one": (0.1, 0.1), "box/two": (1.5, 1.5)}), "box/two", "native/one").attribution
    assert c is not None
    assert c.sentence == "native over TCP: +20 %; the container itself: ×3.3"
    rate = cell(a, "box/two", "native/one", "triad").attribution
    assert rate is not None and rate.sentence.startswith("MPI without shared memory") and rate.parts == ()


def test_attribution_without_evidence_is_not_explained() -> None:
    # TCP costs nothing here, so leaving shared memory explains nothing; a rate has no measured parts.
    a = run(27, {"box/two": (0.5, 0.0)})
    rate = cell(a, "box/two", "native/one", "triad").attribution
    assert rate is not None and rate.sentence == "not explained"
    # Half and half: neither part holds two thirds of it.
    b = cell(run(27, {"box/one": (0.2, 0.2)}), "box/one", "native/one").attribution
    assert b is not None and b.sentence == "not explained"


def test_noise_floor_is_not_trusted_if_the_baseline_differs_from_itself() -> None:
    a = run(27, {}, aa=0.1)
    assert not a.noise_floor.trusted and not a.noise_floor.proven
    assert a.noise_floor.reason.startswith("the baseline differs from itself in cg.seconds, triad.rate")
    assert "neither drift nor load" in a.noise_floor.reason and "steal" in a.noise_floor.reason
    drifting = run(40, {}, aa=0.1, drift=0.02)
    assert "drift" in drifting.noise_floor.reason and "likely cause" in drifting.noise_floor.reason
    stolen = run(27, {}, aa=0.1, disturbance={"steal_share": 0.08, "other_cpu_share": 0.02})
    assert "steal" in stolen.noise_floor.reason and "8 %" in stolen.noise_floor.reason


def test_drift_alone_does_not() -> None:
    a = run(40, {}, drift=0.02)
    assert a.noise_floor.trusted and a.noise_floor.proven


def test_an_undecided_aa_is_neither_proven_nor_distrusted() -> None:
    a = run(12, {}, spread=0.3)
    assert a.noise_floor.trusted and not a.noise_floor.proven
    assert a.noise_floor.reason == "2 of 2 comparisons of the baseline with itself are not decided yet"


def test_trials_that_do_not_count_are_listed_with_reasons() -> None:
    records = [r for r in simulated(14, {}) if not (r.arm == "box/two" and r.block == 14)]
    records = [
        replace(r, status=Status.FAILED, reason="time-out", rows=())
        if (r.arm, r.block) == ("box/one", 3)
        else r
        for r in records
    ]
    a = analyse(STUDY, make_plan(STUDY, blocks=14), records)
    assert (a.blocks, a.torn_blocks, a.failed_trials) == (13, 1, 1)
    assert {(u.what, u.reason, u.count) for u in a.unused} == {
        ("trials of attempts that were not finished or were run again", "incomplete round", 4),
        ("trials of box/one", "time-out", 1),
    }
    c = cell(a, "box/one", "native/one")
    assert (c.n, c.failed, c.failed_blocks) == (13, 1, (3,)) and 3 not in c.blocks


def test_a_row_that_never_works_is_listed_and_is_no_cell() -> None:
    records = []
    for r in simulated(12, {}):
        rows = r.rows
        if r.arm == "box/one":
            rows = (replace(rows[0], status=Status.FAILED, reason="wrong zeta"), *rows[1:])
        records.append(replace(r, rows=rows))
    a = analyse(STUDY, make_plan(STUDY, blocks=12), records)
    assert not any(c.arm == "box/one" and c.workload == "cg" for c in a.cells)
    assert ("box/one: cg.seconds", "wrong zeta", 12) in {(u.what, u.reason, u.count) for u in a.unused}
    assert ("box/one against native/one: cg.seconds", 12) in {(u.what, u.count) for u in a.unused}


def stopped(a: Analysis, study: Study, elapsed: float, block_seconds: float) -> str | None:
    clock = Clock(elapsed=elapsed, block_seconds=block_seconds)
    stop = should_stop(study.design, verdict_state(a, study), a.blocks, clock)
    return None if stop is None else stop.reason


def test_analysis_of_no_records_is_empty() -> None:
    a = analyse(STUDY, make_plan(STUDY, blocks=3), [])
    assert (a.blocks, a.cells, a.elapsed, a.block_seconds) == (0, (), 0.0, 0.0)
    assert not a.noise_floor.proven and not decided(a)
    assert stopped(a, STUDY, 0.0, 0.0) is None


def test_pauses_do_not_count_as_elapsed() -> None:
    records = [
        replace(r, begin=r.begin + 86_400 * (r.block > 6), end=r.end + 86_400 * (r.block > 6))
        for r in simulated(12, {})
    ]
    a = analyse(STUDY, make_plan(STUDY, blocks=12), records)
    assert a.elapsed == pytest.approx(2 * 10 + 2 * 1.8) and a.block_seconds == pytest.approx(2.0)


def test_time_in_which_two_workers_run_counts_once() -> None:
    records = [
        replace(
            r,
            run=f"w{r.block % 2}",
            begin=r.begin - 2 * (r.block % 2 == 0),
            end=r.end - 2 * (r.block % 2 == 0),
        )
        for r in simulated(12, {})
    ]
    a = analyse(STUDY, make_plan(STUDY, blocks=12), records)
    one_of_two = analyse(STUDY, make_plan(STUDY, blocks=12), [r for r in simulated(12, {}) if r.block <= 11])
    assert a.elapsed == pytest.approx(one_of_two.elapsed)
    assert a.block_seconds == pytest.approx(4.0), "from one start to the next of the same worker"


def test_stops_at_verdicts_but_never_before_the_blocks_that_the_study_asks_for() -> None:
    early = run(8, {}, spread=0.001)
    assert decided(early) and stopped(early, STUDY, 16.0, 2.0) == "every comparison has its verdict"
    asked = replace(STUDY, design=replace(DESIGN, min_blocks=12))
    few = run(10, {}, spread=0.001, study=asked)
    assert stopped(few, asked, 20.0, 2.0) is None
    assert cell(few, "box/one", "native/one").blocks_needed == 2
    assert cell(few, "box/one", "native/one").seconds_needed == pytest.approx(4.0)
    done = run(12, {}, spread=0.001, study=asked)
    assert decided(done) and stopped(done, STUDY, 24.0, 2.0) == "every comparison has its verdict"
    open_ = run(12, {}, spread=0.2)
    assert not decided(open_) and stopped(open_, STUDY, 24.0, 2.0) is None


def test_stops_at_width_blocks_and_time() -> None:
    a = run(12, {}, spread=0.001)
    narrow = replace(STUDY, design=replace(DESIGN, target_width=1e-5))
    assert stopped(a, narrow, 24.0, 2.0) is None
    wide = replace(STUDY, design=replace(DESIGN, target_width=0.01))
    assert stopped(a, wide, 24.0, 2.0) == "every interval is at most ±1 % wide"
    assert stopped(run(7, {}, spread=0.001), wide, 14.0, 2.0) is None
    noisy = run(12, {}, spread=0.2)
    assert (
        stopped(noisy, replace(STUDY, design=replace(DESIGN, max_blocks=12)), 24.0, 2.0)
        == "12 rounds are done"
    )
    three = replace(STUDY, design=replace(DESIGN, max_blocks=3))
    assert stopped(run(3, {}, spread=0.2), three, 6.0, 2.0) == "3 rounds are done, too few for an interval"
    timed = replace(STUDY, design=replace(DESIGN, max_time=90.0))
    assert stopped(noisy, timed, 87.9, 2.0) is None
    assert stopped(noisy, timed, 88.1, 2.0) == "the time budget of 90 s is used up"


def test_only_a_limit_that_was_set_beforehand_allows_a_closing_look() -> None:
    def planned(a: Analysis, study: Study, elapsed: float) -> bool:
        clock = Clock(elapsed=elapsed, block_seconds=2.0)
        stop = should_stop(study.design, verdict_state(a, study), a.blocks, clock)
        assert stop is not None
        return stop.planned

    noisy, quiet = run(12, {}, spread=0.2), run(12, {}, spread=0.001)
    assert planned(noisy, replace(STUDY, design=replace(DESIGN, max_time=90.0)), 89.0)
    assert planned(noisy, replace(STUDY, design=replace(DESIGN, max_blocks=12)), 24.0)
    assert not planned(quiet, STUDY, 24.0)
    assert not planned(quiet, replace(STUDY, design=replace(DESIGN, target_width=0.01)), 24.0)


def test_a_run_that_may_overrun_its_time_ends_at_its_next_look() -> None:
    timed = replace(STUDY, design=replace(DESIGN, max_time=10.0))

    def goes_on(blocks: int) -> bool:
        verdicts = verdict_state(run(blocks, {}, spread=0.2), timed)
        clock = Clock(elapsed=20.0, block_seconds=2.0, overrun=True)
        return should_stop(timed.design, verdicts, blocks, clock) is None

    assert goes_on(5) and goes_on(7) and not goes_on(8)
    assert goes_on(9) and goes_on(11) and not goes_on(12)


def states(levels: list[float], *, seed: int) -> list[list[Analysis]]:
    return [[run(12, {}, level=x, seed=seed + i, spread=0.002)] for i, x in enumerate(levels)]


def state(cells: tuple[StateCell, ...], workload: str = "cg") -> StateCell:
    return next(c for c in cells if c.arm == "native/one" and c.workload == workload)


def test_boot_states_count_boots_not_blocks() -> None:
    before, after = states([0.0, 0.05, -0.05, 0.02], seed=1), states([0.04, -0.02, 0.05, 0.0], seed=50)
    c = state(compare_states(before, after, margin=0.03, confidence=0.95))
    assert c.boots == (4, 4) and c.verdict is Verdict.NONE and c.low < 0 < c.high
    # 48 blocks a side pooled as independent would give an interval some ten times as narrow.
    assert c.high - c.low > 0.05


def test_a_plain_difference_between_boot_states_is_found() -> None:
    levels = [0.0, 0.01, -0.01, 0.005, -0.005, 0.0, 0.01]
    before, after = states(levels, seed=1), states([0.2 + x for x in levels], seed=50)
    cells = compare_states(before, after, margin=0.03, confidence=0.95)
    c = state(cells)
    assert c.verdict is Verdict.SLOWER and c.low < math.expm1(0.2) < c.high
    assert c.after / c.before == pytest.approx(math.exp(0.2), rel=0.02)
    assert state(cells, "triad").verdict is Verdict.SLOWER


def test_one_boot_each_is_shown_and_never_a_verdict() -> None:
    cells = compare_states(states([0.0], seed=1), states([0.5], seed=9), margin=0.03, confidence=0.95)
    c = state(cells)
    assert c.overhead == pytest.approx(math.expm1(0.5), abs=0.02)
    assert (c.low, c.high, c.verdict) == (-1.0, math.inf, Verdict.NONE)
    assert "no verdict, which needs at least 4 on each side" in c.reason
    with pytest.raises(ValueError):
        compare_boots([], [1.0], Better.LOWER, 0.05)


def test_one_boot_against_many_is_no_verdict_either() -> None:
    """One boot against 39 attains 5 % by ranks, and says nothing about the spread of its state."""
    shift = compare_boots([0.0], [0.5 + n / 1000 for n in range(39)], Better.LOWER, 0.05)
    assert (shift.low, shift.high) == (-math.inf, math.inf) and shift.centre == pytest.approx(0.519)


def test_a_slowdown_of_bare_metal_is_no_cost_of_the_others() -> None:
    """All arms become slower by 20 %: bare metal is, and what the others cost stays as it was."""
    before, after = states([0.0] * 8, seed=1), states([0.2] * 8, seed=50)
    cells = compare_states(before, after, margin=0.03, confidence=0.95)
    assert {c.verdict for c in cells if c.quantity is StateQuantity.VALUE} == {Verdict.SLOWER}
    assert {c.verdict for c in cells if c.quantity is StateQuantity.COST} == {Verdict.EQUIVALENT}


def test_among_many_comparisons_a_verdict_needs_more_boots() -> None:
    """Four boots a side attain 2/70 < 5 %, and no share of it."""
    levels = [0.0, 0.01, -0.01, 0.005]
    before, after = states(levels, seed=1), states([0.2 + x for x in levels], seed=50)
    c = state(compare_states(before, after, margin=0.03, confidence=0.95))
    assert (c.alone, c.verdict) == (Verdict.SLOWER, Verdict.NONE)
    assert f"among {c.family} comparisons that may be chance" in c.reason
    only = compare_states(
        before, after, margin=0.03, confidence=0.95, deciding=lambda w, m: (w, m) == (c.workload, c.metric)
    )
    assert state(only).family == 4 and state(only).deciding and not state(only, "triad").deciding
    assert least_boots(0.95, 1) == LeastBoots(any_verdict=4, material=4)
    assert least_boots(0.95, 18) == LeastBoots(any_verdict=4, material=6)
    assert least_boots(0.95, 49) == LeastBoots(any_verdict=4, material=7)


def test_one_boot_on_both_sides_gives_no_verdict() -> None:
    side = states([0.0] * 8, seed=1)
    cells = compare_states(side, side, margin=0.03, confidence=0.95, one_boot=True)
    assert {c.verdict for c in cells} == {Verdict.NONE} and {c.high for c in cells} == {math.inf}
    assert cells[0].reason == "a boot is on both sides: no verdict"


def test_left_out_workloads_and_arms_are_not_compared() -> None:
    side = states([0.0] * 4, seed=1)
    cells = compare_states(side, side, margin=0.03, confidence=0.95, left_out={"cg", "box/two"})
    assert "cg" not in {c.workload for c in cells} and "box/two" not in {c.arm for c in cells}


def test_runs_of_one_boot_are_one_replicate() -> None:
    before, after = states([0.0, 0.01, -0.01], seed=1), states([0.21, 0.2, 0.19], seed=50)
    one_boot = [[a for boot in after for a in boot]]
    c = state(compare_states(before, one_boot, margin=0.03, confidence=0.95))
    assert c.boots == (3, 1) and c.verdict is Verdict.NONE and c.high == math.inf
    assert c.overhead == pytest.approx(math.expm1(0.2), abs=0.03)


def test_an_arm_of_one_boot_state_against_another_of_the_other() -> None:
    before, after = states([0.0, 0.01, -0.01], seed=1), states([0.21, 0.2, 0.19], seed=50)
    cells = compare_states(before, after, margin=0.03, confidence=0.95)
    arms = {c.arm for c in cells}
    assert {(c.arm, c.baseline) for c in cells if c.quantity is StateQuantity.VALUE} == {("native/one", "")}
    assert {c.baseline for c in cells if c.quantity is StateQuantity.COST} == {"native/one"}
    other = next(a for a in sorted(arms) if not a.startswith("native"))
    environment = other.partition("/")[0]

    def pairs(*against: tuple[str, str]) -> set[tuple[str, str]]:
        cells = compare_states(before, after, margin=0.03, confidence=0.95, against=against)
        return {(c.arm, c.other) for c in cells}

    assert pairs(("native/one", other)) == {("native/one", other)}
    found = pairs(("native", environment))
    assert ("native/one", other) in found
    assert found <= {("native/one", f"{environment}/one"), ("native/two", f"{environment}/two")}
    assert pairs((other, other)) == {(other, other)} and pairs(("native/one", "nothing")) == set()


def test_every_verdict_says_after_which_block_and_second_it_was_reached() -> None:
    """Blocks take 1.8 s of every 2 s from second 102 on; of the baseline against itself the first two metrics
    are equivalent at the second look, the third is left open."""
    plan = make_plan(STUDY, blocks=27, started=95.0)
    records = simulated(27, {"box/one": (0.30, 0.0)}, spread=0.03)
    a = analyse(STUDY, plan, records)
    early = cell(a, "box/one", "native/one")
    assert early.decided_block == 8 and early.decided_seconds == pytest.approx(117.8 - 95.0)
    floor = a.noise_floor.cells
    assert [c.decided_block for c in floor] == [12, 12, None]
    assert floor[0].decided_seconds == pytest.approx(125.8 - 95.0) and floor[2].decided_seconds is None
    assert all((c.verdict is Verdict.NONE) == (c.decided_block is None) for c in a.cells)
    unknown = analyse(STUDY, replace(plan, started=None), records)
    assert cell(unknown, "box/one", "native/one").decided_seconds == pytest.approx(2 * 7 + 1.8)


def test_a_pause_before_the_run_was_resumed_does_not_delay_a_verdict() -> None:
    records = [
        replace(r, begin=r.begin + 86_400 * (r.block > 6), end=r.end + 86_400 * (r.block > 6))
        for r in simulated(12, {"box/one": (0.30, 0.0)})
    ]
    a = analyse(STUDY, make_plan(STUDY, blocks=12, started=100.0), records)
    assert cell(a, "box/one", "native/one").decided_seconds == pytest.approx(2 + 2 * 5 + 1.8 + 2 + 1.8)


def test_a_verdict_waits_for_the_blocks_that_the_study_asks_for() -> None:
    asked = replace(STUDY, design=replace(DESIGN, min_blocks=10))
    slow = cell(run(12, {"box/one": (0.3, 0.0)}, study=asked), "box/one", "native/one")
    assert (slow.verdict, slow.decided_block) == (Verdict.SLOWER, 10)


def aa_of_rates(extra: Mapping[int, float], rows: int, blocks: int = 12) -> Analysis:
    """The baseline against itself in several metrics, with a planted difference in some of them."""
    rng = random.Random(3)
    plan = make_plan(STUDY, blocks=blocks)
    records = []
    for r in simulated(blocks, {}):
        values = [math.exp(rng.gauss(0, 0.005)) for _ in range(rows)]
        told = tuple(
            replace(
                r.rows[0],
                metric=f"m{i}",
                values=(v * (1 + extra.get(i, 0.0) * r.aa),),
                parts={},
            )
            for i, v in enumerate(values)
        )
        records.append(replace(r, rows=told))
    return analyse(STUDY, plan, records)


def test_aa_cells_are_corrected_for_their_number() -> None:
    """A difference that is material at 95 % alone may be chance among fifteen comparisons: after 8 blocks
    their shares of 5 % attain no interval at all."""
    one = aa_of_rates({0: 0.2}, rows=1, blocks=8).noise_floor
    assert [c.verdict for c in one.cells] == [Verdict.SLOWER] and not one.trusted
    many = aa_of_rates({0: 0.2}, rows=15, blocks=8)
    odd = many.noise_floor.cells[0]
    assert odd.low > odd.margin and odd.verdict is Verdict.NONE and odd.decided_block is None
    assert odd.reason == (
        "material: slower by itself, but among 15 comparisons of the baseline with itself that may be chance"
    )
    assert many.noise_floor.trusted and not many.noise_floor.proven
    assert "1 of 15 comparisons" in many.noise_floor.reason
    assert decided(replace(many, cells=tuple(c for c in many.cells if c.verdict is not Verdict.NONE)))
    later = aa_of_rates({0: 0.2}, rows=15, blocks=18).noise_floor
    assert later.cells[0].verdict is Verdict.SLOWER and not later.trusted


def test_equivalence_of_aa_cells_needs_no_correction() -> None:
    floor = aa_of_rates({}, rows=15, blocks=8).noise_floor
    assert floor.proven and all(c.confidence == 0.95 for c in floor.cells)

"""Arms that have all their verdicts are left out of further blocks, and what stands stays as it stood."""

from __future__ import annotations

from tests.unit.small_study import RATE, small_study

from nearmetal.analysis import analyse, settled
from nearmetal.model.change import replace
from nearmetal.model.plan import GrowingLooks
from nearmetal.model.record import TrialRecord
from nearmetal.model.result import Analysis, Cell, Verdict
from nearmetal.model.study import KernelWorkload
from nearmetal.plan import make_block, make_plan
from nearmetal.records import completed_blocks
from nearmetal.testing.simulate import Spread, simulate

NAMES = ("native", "slow", "near")
STUDY = small_study(*NAMES)
NOISY = Spread(instance=0.12)
PLAN = make_plan(STUDY, blocks=24)


def run(blocks: int) -> list[TrialRecord]:
    """'slow' is so slow that it is decided at the first look; 'near' is left open by the noise."""
    plan = make_plan(STUDY, blocks=blocks)
    return simulate(STUDY, plan, metrics=(RATE,), overheads={"slow/one": 2.0}, spread=NOISY)


def test_workload_is_settled_if_no_open_comparison_needs_it() -> None:
    analysis = analyse(STUDY, PLAN, run(16), detail=False)
    verdicts = {c.environment: c.verdict for c in analysis.cells}
    assert verdicts == {"slow": Verdict.SLOWER, "near": Verdict.NONE}
    assert settled(analysis, STUDY) == {"slow/one": {"ep"}}
    assert settled(analyse(STUDY, PLAN, run(6), detail=False), STUDY) == {}


def test_the_baseline_is_settled_with_the_last_comparison_and_its_own_second_run() -> None:
    """Of two kernels one is decided everywhere; the other is open in one arm, and so in the baseline."""
    study = replace(STUDY, workloads=(*STUDY.workloads, KernelWorkload(name="cg", kernel="cg", params={})))
    metrics = (RATE, replace(RATE, workload="cg"))
    quiet = simulate(
        study, make_plan(study, blocks=16), metrics=metrics, overheads={"slow/one": 2.0}, spread=Spread()
    )
    noisy = simulate(
        study, make_plan(study, blocks=16), metrics=metrics, overheads={"slow/one": 2.0}, spread=NOISY
    )
    mixed = [replace(q, rows=(q.rows[0], n.rows[1])) for q, n in zip(quiet, noisy, strict=True)]
    found = settled(analyse(study, PLAN, mixed, detail=False), study)
    assert found == {"slow/one": {"ep", "cg"}, "near/one": {"ep"}, "native/one": {"ep"}}


def test_a_wanted_width_counts_instead_of_verdicts() -> None:
    analysis = analyse(STUDY, PLAN, run(16), detail=False)
    everything = {name: {"ep"} for name in ("native/one", "slow/one", "near/one")}
    for width, expected in ((0.001, {}), (5.0, everything)):
        wide = replace(STUDY, design=replace(STUDY.design, target_width=width))
        assert settled(analysis, wide) == expected


def test_the_others_keep_their_order_and_the_block_is_whole() -> None:
    whole, rest = make_block(STUDY, 17), make_block(STUDY, 17, without={"slow/one"})
    assert [t.id for t in rest.trials] == [t.id for t in whole.trials if t.arm != "slow/one"]
    assert [t.position for t in rest.trials] == [0, 1, 2]
    records = [r for r in run(20) if r.block <= 16 or r.arm != "slow/one"]
    assert completed_blocks(records, 4) == set(range(1, 17))
    told = [replace(r, members=4 if r.block <= 16 else 3) for r in records]
    assert completed_blocks(told, 4) == set(range(1, 21))
    torn = [r for r in told if (r.block, r.arm) != (20, "near/one")]
    assert completed_blocks(torn, 4) == set(range(1, 20))


def test_verdict_of_a_settled_arm_stays() -> None:
    before = analyse(STUDY, PLAN, run(16))
    told = [
        replace(r, members=4 if r.block <= 16 else 3) for r in run(24) if r.block <= 16 or r.arm != "slow/one"
    ]
    after = analyse(STUDY, PLAN, told)
    assert after.blocks == 24 and after.torn_blocks == 0
    old, new = ({c.environment: c for c in a.cells} for a in (before, after))
    assert (new["slow"].n, new["slow"].verdict) == (16, Verdict.SLOWER)
    assert new["slow"].failed == 0 and "fails" not in new["slow"].reason
    assert (new["slow"].low, new["slow"].high) == (old["slow"].low, old["slow"].high)
    assert new["near"].n == 24
    assert all(c.n == 24 for c in after.noise_floor.cells)


def test_workloads_that_are_left_out_one_by_one_keep_their_answers_too() -> None:
    """Kernels share a launch: the trial is there, and says which of them it left out."""
    study = replace(STUDY, workloads=(*STUDY.workloads, KernelWorkload(name="cg", kernel="cg", params={})))
    both = (RATE, replace(RATE, workload="cg"))
    slow = {"slow/one": {"ep.rate": 2.0}}
    plan = make_plan(study, blocks=24)
    whole = simulate(study, plan, metrics=both, overheads=slow, spread=NOISY)
    told = [
        replace(r, left_out=("ep",), rows=tuple(row for row in r.rows if row.workload != "ep"))
        if r.arm == "slow/one" and r.block > 16
        else r
        for r in whole
    ]
    before = analyse(study, plan, [r for r in whole if r.block <= 16])
    after = analyse(study, plan, told)

    def cell(analysis: Analysis, workload: str) -> Cell:
        return next(c for c in analysis.cells if (c.environment, c.workload) == ("slow", workload))

    assert cell(after, "ep") == replace(
        cell(before, "ep"),
        seconds_needed=cell(after, "ep").seconds_needed,
        discovered=cell(after, "ep").discovered,
        p_holm=cell(after, "ep").p_holm,
        spread=cell(after, "ep").spread,
        attribution=cell(after, "ep").attribution,
    )
    assert (cell(after, "ep").n, cell(after, "ep").failed) == (16, 0)
    assert (cell(after, "cg").n, cell(after, "cg").failed) == (24, 0)
    assert not [u for u in after.unused if u.failed]


def test_a_closing_look_is_not_for_arms_that_were_left_out_by_then() -> None:
    """Where their blocks ended depended on what was found in them."""
    told = [
        replace(r, members=4 if r.block <= 16 else 3) for r in run(24) if r.block <= 16 or r.arm != "slow/one"
    ]
    plan = replace(PLAN, schedule=GrowingLooks(closing=(21,)))
    cells = {c.environment: c for c in analyse(STUDY, plan, told).cells}
    assert [look.n for look in cells["slow"].looks] == [8, 12]
    assert [look.n for look in cells["near"].looks] == [8, 12, 18, 21]

"""Simulated records carry the truth that was planted."""

from math import log
from statistics import median

import pytest

from nearmetal.model.plan import GROWING, Block, Plan, TrialSpec
from nearmetal.model.record import Fold, TrialRecord
from nearmetal.model.study import Better, Design, Mode, Study
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

ARMS = ("native/1x2", "ns/1x2")
TRIAD = SimulatedMetric(workload="stream", metric="triad", unit="B/s", better=Better.HIGHER, value=7e10)
CG = SimulatedMetric(workload="cg", metric="time", unit="s", better=Better.LOWER, value=0.01, comm=0.2)
NO_SPREAD = Spread(instance=0.0, run=0.0)


def study(mode: Mode) -> Study:
    design = Design(baselines=("native",), margin=0.03, confidence=0.95, seed=1, mode=mode, slices=4, runs=3)
    return Study(name="s", question="", environments=(), placements=(), workloads=(), design=design)


def plan(blocks: int) -> Plan:
    def block(n: int) -> Block:
        names = [(f"{n}.{a}", a, False) for a in ARMS] + [(f"{n}.{ARMS[0]}.aa", ARMS[0], True)]
        trials = tuple(
            TrialSpec(id=i, block=n, position=p, arm=a, aa=aa) for p, (i, a, aa) in enumerate(names)
        )
        return Block(number=n, trials=trials, slice_seed=n)

    sides = frozenset((t.arm, t.aa) for t in block(1).trials)
    return Plan(seed=3, schedule=GROWING, sides=sides, blocks=tuple(block(n) for n in range(1, blocks + 1)))


def medians(records: list[TrialRecord], arm: str, row: int) -> list[float]:
    return [median(r.rows[row].values) for r in records if r.arm == arm and not r.aa]


@pytest.mark.parametrize("mode", list(Mode))
def test_without_spread_the_overhead_is_exact(mode: Mode) -> None:
    records = simulate(study(mode), plan(3), metrics=[TRIAD, CG], overheads={ARMS[1]: 0.05}, spread=NO_SPREAD)
    assert len(records) == 9
    assert {len(r.rows[0].values) for r in records} == {4 if mode is Mode.SLICES else 3}
    assert {r.fold for r in records} == {Fold.PAIRED if mode is Mode.SLICES else Fold.MEDIAN}
    assert medians(records, ARMS[0], 0) == pytest.approx([7e10] * 3)
    assert medians(records, ARMS[1], 0) == pytest.approx([7e10 / 1.05] * 3)
    assert medians(records, ARMS[1], 1) == pytest.approx([0.01 * 1.05] * 3)


def test_the_overhead_is_planted_in_the_communication() -> None:
    records = simulate(
        study(Mode.SLICES), plan(1), metrics=[CG], overheads={ARMS[1]: {"cg.time": 0.1}}, spread=NO_SPREAD
    )
    base, other = (next(r for r in records if r.arm == arm).rows[0] for arm in ARMS)
    assert base.parts["comm"][0] == pytest.approx(0.002)
    assert other.parts["comm"][0] - base.parts["comm"][0] == pytest.approx(0.001)


def test_the_same_seed_gives_the_same_records() -> None:
    def made(run: str) -> list[TrialRecord]:
        return simulate(study(Mode.SLICES), plan(2), metrics=[TRIAD], overheads={}, spread=Spread(), run=run)

    assert made("a") == made("a")
    assert [r.rows for r in made("a")] != [r.rows for r in made("b")]


def test_spread_of_the_block_cancels_by_pairing() -> None:
    spread = Spread(instance=0.0, run=0.0, block=0.3, shared=0.2, drift=0.1)
    records = simulate(study(Mode.SLICES), plan(5), metrics=[CG], overheads={ARMS[1]: 0.02}, spread=spread)
    for n in range(1, 6):
        a, b = (next(r for r in records if r.block == n and r.arm == arm) for arm in ARMS)
        ratios = [log(y / x) for x, y in zip(a.rows[0].values, b.rows[0].values, strict=True)]
        assert ratios == pytest.approx([log(1.02)] * 4)
    assert len({r.rows[0].values[0] for r in records if r.arm == ARMS[0]}) == 5

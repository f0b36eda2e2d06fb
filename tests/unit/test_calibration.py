"""A calibration is judged by the planted truth: pure, on simulated records."""

from nearmetal.analysis import analyse
from nearmetal.api.calibrating import Calibration
from nearmetal.cli.measure.calibrate import table
from nearmetal.model.change import replace
from nearmetal.model.study import Arm, Better, Environment, KernelWorkload, Limits, Mode, Placement, Study
from nearmetal.plan import make_plan
from nearmetal.run.calibration import judge, likely_misses, planted_overhead
from nearmetal.studies import builtin
from nearmetal.study_file import load_text
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

METRIC = SimulatedMetric(workload="ep", metric="rate", unit="op/s", better=Better.HIGHER, value=1e9)


def study() -> Study:
    found = load_text(builtin("calibrate"), "calibrate", None, seed=3)
    return replace(found, workloads=(KernelWorkload(name="ep", kernel="ep", params={}),))


def arm(*, tasks: int, quota: float | None = None, extra: float = 0.0) -> Arm:
    environment = Environment(
        name="h",
        backend="handicap",
        placements=("p",),
        limits=Limits(cpu_quota=quota),
        extra_work=extra,
    )
    return Arm(environment=environment, placement=Placement(name="p", instances=1, tasks=tasks))


def test_planted_overhead_follows_from_extra_work_and_quota() -> None:
    assert planted_overhead(arm(tasks=2)) == 0
    assert round(planted_overhead(arm(tasks=2, extra=0.03)), 12) == 0.03
    assert round(planted_overhead(arm(tasks=1, quota=0.8)), 12) == 0.25
    assert round(planted_overhead(arm(tasks=2, quota=1.6)), 12) == 0.25
    assert planted_overhead(arm(tasks=1, quota=1.5)) == 0, "more than the ranks can use slows nothing"


def found(overheads: dict[str, float]) -> dict[str, bool]:
    asked = study()
    plan = make_plan(asked, blocks=40)
    spread = Spread(block=0.02, shared=0.01, instance=0.005, run=0.005)
    records = simulate(asked, plan, metrics=[METRIC], overheads=overheads, spread=spread)
    checks = judge(asked, analyse(asked, plan, records), Mode.SLICES)
    made = Calibration(checks=tuple(checks), confidence=0.95, directories=(), unchecked=())
    assert len(table(made)) == len(checks) + 2
    return {c.environment: c.passed for c in checks}


def test_how_many_misses_are_chance() -> None:
    assert [likely_misses(n, 0.05) for n in (1, 2, 20, 26)] == [0, 1, 3, 3]  # binomial quantiles at 95 %


def test_planted_truths_are_found_and_a_liar_is_caught() -> None:
    truth = {"handicap-3/1x2": 0.03, "handicap-10/1x2": 0.1}
    assert all(found(truth).values())
    assert not found({**truth, "handicap-3/1x2": 0.06})["handicap-3"]
    assert not found({**truth, "handicap-0/1x2": 0.05})["handicap-0"]

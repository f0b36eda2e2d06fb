"""A study of one kernel on one placement, whose environments all are the machine itself, and its metric."""

from __future__ import annotations

from nearmetal.model.study import Better, Design, Environment, KernelWorkload, Placement, Study
from nearmetal.testing.simulate import SimulatedMetric

RATE = SimulatedMetric(workload="ep", metric="rate", unit="op/s", better=Better.HIGHER, value=1e6)


def small_study(*names: str) -> Study:
    """Return the study with these environments; the first is the baseline."""
    return Study(
        name="s",
        question="",
        environments=tuple(Environment(name=n, backend="native", placements=("one",)) for n in names),
        placements=(Placement(name="one", instances=1, tasks=1),),
        workloads=(KernelWorkload(name="ep", kernel="ep", params={}),),
        design=Design(baselines=(names[0],), margin=0.03, confidence=0.95, seed=2),
    )

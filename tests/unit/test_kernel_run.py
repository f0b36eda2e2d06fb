"""What one run of a kernel says: operations where they are counted, the kernel's own metrics elsewhere."""

from __future__ import annotations

from dataclasses import replace

from nearmetal.run.kernel_run import KernelResult, MetricValue, rank_cpus

CG = KernelResult(
    kernel="cg",
    ranks=2,
    threads=1,
    parameters={"class": "S"},
    verified=True,
    expected={"zeta": 8.5},
    found={"zeta": 8.5},
    seconds=0.5,
    work=1e9,
    metrics={},
    transport={"kind": "shm"},
)
RING = replace(
    CG,
    kernel="ring",
    parameters={},
    metrics={"latency": MetricValue(value=4e-7, unit="s", best=3e-7)},
    work=32.0,
)


def test_operations_per_second_of_a_nas_benchmark() -> None:
    assert CG.as_json()["mops"] == 2000.0
    assert str(CG) == "cg (class S) on 2 ranks: 500 ms, 2000.0 Mop/s, verified"


def test_metrics_of_a_kernel_that_counts_no_operations() -> None:
    told = RING.as_json()
    assert "mops" not in told and told["metrics"] == {"latency": {"value": 4e-7, "unit": "s", "best": 3e-7}}
    assert str(RING) == "ring on 2 ranks: latency 0.40 µs, verified"


def test_a_failed_verification_says_what_was_found() -> None:
    spoiled = replace(CG, verified=False, found={"zeta": 9.0})
    assert "NOT VERIFIED: expected {'zeta': 8.5}, found {'zeta': 9.0}" in str(spoiled)


def test_threads_per_rank_are_shown_if_there_are_several() -> None:
    assert "on 2 ranks of 4 threads:" in str(replace(CG, threads=4))
    assert CG.as_json()["threads"] == 1


def test_each_rank_has_as_many_cpus_as_threads() -> None:
    assert rank_cpus((0, 2, 4, 6, 8), 2, 1) == [(0,), (2,)]
    assert rank_cpus((0, 2), 3, 1) == [(0,), (2,), (0,)], "ranks share CPUs"
    assert rank_cpus((0, 2, 4, 6, 8), 2, 2) == [(0, 2), (4, 6)]

"""Analysis and report of 100,000 trial records: seconds and peak memory, and how both grow.

By hand: python -m benchmarks.analysis [records]. Each size has a process of its own, the two sizes in turn.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.paired import interval, ratio, shown

ROUNDS = 6
MYSELF = (sys.executable, "-m", "benchmarks.analysis")
LIMIT_SECONDS, LIMIT_BYTES = 10.0, 1 << 30


def fill(directory: Path, trials: int) -> None:
    """A results directory of so many simulated trials of quick's first workload."""
    from nearmetal.cli.common import catalog, study_from
    from nearmetal.model.change import replace
    from nearmetal.model.study import Better
    from nearmetal.plan import make_plan
    from nearmetal.records import PlanMeta
    from nearmetal.records.codec import to_line
    from nearmetal.records.directory import plan_form
    from nearmetal.study_file import dump_study
    from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

    study = study_from("quick", 7)
    study = replace(
        study,
        environments=tuple(replace(e, workloads=()) for e in study.environments),
        workloads=tuple(w for w in study.workloads if w.name in ("ep", "latency")),
    )
    blocks = trials // 5
    metrics = (
        SimulatedMetric(
            workload="ep", metric="rate", unit="op/s", better=Better.HIGHER, value=4e8, comm=0.01
        ),
        SimulatedMetric(workload="latency", metric="latency", unit="s", better=Better.LOWER, value=1e-6),
    )
    spread = Spread(block=0.02, shared=0.01, instance=0.01, run=0.01)
    records = simulate(
        study,
        make_plan(study, blocks=blocks),
        metrics=metrics,
        overheads={"namespaces/2x1": 0.03},
        spread=spread,
    )
    (directory / "trials").mkdir(parents=True)
    (directory / "study.yaml").write_text(dump_study(study, catalog()))
    arms = [a.name for a in study.arms()]
    plan = PlanMeta(study="quick", seed=7, arms=tuple(arms), created=0.0)
    (directory / "plan.json").write_text(json.dumps(plan_form(plan)))
    (directory / "provenance.json").write_text("{}")
    (directory / "trials" / "local.jsonl").write_bytes(b"".join(map(to_line, records)))


def measure(directory: Path) -> None:
    """Read, analyse, write the report; prints seconds and peak bytes as JSON."""
    begin = time.perf_counter()
    from nearmetal.cli.common import analysed, open_results
    from nearmetal.cli.present import write_report

    found = open_results(directory)
    study, analysis, records = analysed(found)
    write_report(found, study, analysis, records)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": time.perf_counter() - begin, "bytes": peak, "cells": len(analysis.cells)}))


def main(trials: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        places = {n: Path(scratch) / str(n) for n in (trials, trials // 2)}
        for n, place in places.items():
            subprocess.run([*MYSELF, "--fill", str(place), str(n)], check=True)
        seconds: dict[int, list[float]] = {n: [] for n in places}
        peak: dict[int, list[float]] = {n: [] for n in places}
        for _ in range(ROUNDS):
            for n, place in places.items():
                done = subprocess.run(
                    [*MYSELF, "--measure", str(place)],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                out = json.loads(done.stdout.splitlines()[-1])
                seconds[n].append(out["seconds"])
                peak[n].append(out["bytes"])
    for n in places:
        median, most = sorted(seconds[n])[ROUNDS // 2], max(peak[n])
        print(f"{n} records: median {median:.2f} s (limit {LIMIT_SECONDS:g} s at 100,000),", end=" ")
        print(f"peak {most / 2**20:.0f} MiB (limit {LIMIT_BYTES / 2**20:.0f} MiB), n {ROUNDS}")
    half = trials // 2
    growth = interval([a / b for a, b in zip(seconds[trials], seconds[half], strict=True)])
    print(
        f"twice the records: time x{growth.centre:.2f} (limit 2),"
        f" memory {shown(ratio(peak[trials], peak[half]))}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fill"]:
        fill(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] == ["--measure"]:
        measure(Path(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)

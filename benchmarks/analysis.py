"""Time and peak memory of the analysis and report of long runs, and how both grow with the number of records.

By hand: python -m benchmarks.analysis [--records N] [--like RESULTS] [--rounds R]. The records are simulated,
1.2 kB each, or with --like those of a real run, whose blocks are repeated with noise of 2 %. Two sizes are
measured in turn, each in a process of its own; memory includes the processes that it starts. The first
reading of results, as at the end of a run, stores the folded pieces in a cache (here a separate one), and
later readings use them; both times are printed. The code that draws the charts is cached beforehand, as on
every machine that has written a report before."""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.paired import interval, ratio, shown

from nearmetal.model.change import replace
from nearmetal.model.record import Row, TrialRecord, slice_values

MYSELF = (sys.executable, "-m", "benchmarks.analysis")
NOISE = 0.02
LIMITS = {True: (100_000, 10.0, 1 << 30), False: (1_000_000, 60.0, 2 << 30)}
"""Limits for real (True) and simulated (False) records: (number of records, seconds, bytes of memory)."""


def fill(directory: Path, trials: int) -> None:
    """Write a results directory with this number of simulated trials of quick's first workload."""
    from nearmetal.api.catalog import catalog
    from nearmetal.api.studies import study_from
    from nearmetal.model.study import Better
    from nearmetal.plan import make_plan
    from nearmetal.records import PlanMeta
    from nearmetal.records.codec import to_line
    from nearmetal.records.plan_file import plan_form
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


def fill_like(directory: Path, trials: int, like: Path) -> None:
    """Write a results directory with this number of trials that resemble those of a real run (directory
    `like`)."""
    from nearmetal.records import ResultsDirectory
    from nearmetal.records.codec import to_line

    real = ResultsDirectory.open(like)
    blocks: dict[int, list[TrialRecord]] = {}
    for record in real.trials():
        blocks.setdefault(record.block, []).append(record)
    (directory / "trials").mkdir(parents=True)
    for name in ("study.yaml", "plan.json", "provenance.json", "roofs.json"):
        if (like / name).exists():
            (directory / name).write_bytes((like / name).read_bytes())
    with (directory / "trials" / "local.jsonl").open("wb") as file:
        file.writelines(map(to_line, _repeated(list(blocks.values()), trials)))


def _repeated(blocks: list[list[TrialRecord]], trials: int) -> Iterator[TrialRecord]:
    rng = random.Random(1)
    done, number = 0, 0
    length = max(r.end for b in blocks for r in b) - min(r.begin for b in blocks for r in b)
    while done < trials:
        turn, which = divmod(number, len(blocks))
        number += 1
        for r in blocks[which]:
            trial = r.trial.replace(f"{r.block}.", f"{number}.", 1)
            late = turn * (length + 1)
            yield replace(
                r,
                trial=trial,
                block=number,
                begin=r.begin + late,
                end=r.end + late,
                rows=tuple(_noisy(row, rng) for row in r.rows),
            )
            done += 1


def _noisy(row: Row, rng: random.Random) -> Row:
    def noisy(values: Iterable[float]) -> tuple[float, ...]:
        return tuple(v * math.exp(rng.gauss(0, NOISE)) for v in values)

    seconds = tuple(round(v, 9) for v in noisy(row.seconds))
    if not row.work:
        return replace(row, values=noisy(row.values), seconds=seconds)
    return replace(row, values=slice_values(row.better, row.work, seconds), seconds=seconds)


def measure(directory: Path) -> None:
    """Read and analyse results, and write their report. Print seconds and peak bytes as JSON."""
    begin = time.perf_counter()
    from nearmetal.api.results import load, write_report

    found = load(directory)
    write_report(found)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # The kernel tells the largest process only; all do the same work.
    others = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * len(os.sched_getaffinity(0))
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "bytes": peak, "others": others, "cells": len(found.cells)}))


def main(trials: int, like: Path | None, rounds: int) -> None:
    usual, most_seconds, most_bytes = LIMITS[like is not None]
    sizes = (trials, trials // 2)
    with tempfile.TemporaryDirectory() as scratch:
        places = {n: Path(scratch) / str(n) for n in sizes}
        for n, place in places.items():
            subprocess.run([*MYSELF, "--fill", place, "--records", str(n), *_like(like)], check=True)
        lines = (places[trials] / "trials" / "local.jsonl").stat().st_size / trials
        seconds: dict[int, list[float]] = {n: [] for n in places}
        peak: dict[int, list[float]] = {n: [] for n in places}
        first: dict[int, float] = {}
        others: list[float] = []
        for number in range(rounds + 1):
            for n, place in places.items():
                done = subprocess.run(
                    [*MYSELF, "--measure", place],
                    check=True,
                    capture_output=True,
                    text=True,
                    env={**os.environ, "XDG_CACHE_HOME": str(Path(scratch) / "cache")},
                )
                out = json.loads(done.stdout.splitlines()[-1])
                if number == 0:
                    first[n] = out["seconds"]
                else:
                    seconds[n].append(out["seconds"])
                peak[n].append(out["bytes"])
                others.append(out["others"])
    print(f"records of {lines / 1000:.1f} kB; limits at {usual:,}: {most_seconds:g} s,", end=" ")
    print(f"{most_bytes / 2**20:.0f} MiB")
    for n in places:
        median, most = sorted(seconds[n])[rounds // 2], max(peak[n])
        print(f"{n:,} records: first {first[n]:.2f} s, then median {median:.2f} s, n {rounds},", end=" ")
        print(f"peak {most / 2**20:.0f} MiB")
    print(f"processes started beside: at most {max(others) / 2**20:.0f} MiB together")
    if rounds > 1:
        half = trials // 2
        growth = interval([a / b for a, b in zip(seconds[trials], seconds[half], strict=True)])
        print(
            f"twice the records: time x{growth.centre:.2f} (limit 2),"
            f" memory {shown(ratio(peak[trials], peak[half]))}"
        )


def _like(like: Path | None) -> list[str]:
    return [] if like is None else ["--like", str(like)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--records", type=int)
    parser.add_argument("--like", type=Path)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--fill", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    number = asked.records or LIMITS[asked.like is not None][0]
    if asked.measure:
        measure(asked.measure)
    elif asked.fill and asked.like:
        fill_like(asked.fill, number, asked.like)
    elif asked.fill:
        fill(asked.fill, number)
    else:
        main(number, asked.like, asked.rounds)

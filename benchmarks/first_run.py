"""Measures what a first user gets from `nearmetal quick`.

It prints when the first block begins, the number of blocks, which share of their time is measured work, and
which comparisons are decided when.

By hand: python -m benchmarks.first_run [--runs 6] [--time 90s]. Runs follow each other, on a machine that has
run the command before. Times count from the start of the command.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearmetal.model.record import TrialRecord
from nearmetal.records import ResultsDirectory

FACTOR, SECONDS = 0.5, 45.0
"""Overheads above FACTOR must have a verdict after this number of SECONDS."""
GROUPS = {"stream": "memory", "latency": "MPI", "bandwidth": "MPI", "start": "start"}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run.

    first: seconds until its first block began.
    timed: share of the time from the first to the last block that was spent in timed slices and starts.
    cells, decided: number of comparisons, and number of those with a verdict.
    late: comparisons with an overhead above FACTOR that had no verdict after SECONDS.
    floor: largest half-width of the interval of the baseline against itself, by kind of metric, as a
    fraction.
    """

    first: float
    blocks: int
    timed: float
    cells: int
    decided: int
    late: tuple[str, ...]
    floor: Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--time", default="90s")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs = [run(Path(scratch), asked.time, seed) for seed in range(1, asked.runs + 1)]
    for name, good in (
        ("first block within 8 s", [r.first <= 8 for r in runs]),
        ("at least 18 blocks", [r.blocks >= 18 for r in runs]),
        ("at least 60 % of the time timed", [r.timed >= 0.6 for r in runs]),
        (f"everything beyond x{1 + FACTOR:g} decided by {SECONDS:g} s", [not r.late for r in runs]),
        ("half of all comparisons decided", [2 * r.decided >= r.cells for r in runs]),
    ):
        print(f"{name}: {sum(good)} of {len(good)}")


def run(place: Path, budget: str, seed: int) -> Run:
    program = Path(sys.executable).parent / "nearmetal"
    words = ["quick", "--time", budget, "--seed", str(seed), "--results", str(place), "--json"]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    directory = ResultsDirectory.open(max(place.iterdir(), key=lambda path: path.stat().st_mtime))
    records, started = tuple(directory.trials()), directory.plan().started
    begin, end = min(r.begin for r in records), max(r.end for r in records)
    cells = found["cells"]
    out = Run(
        first=begin - (started or begin),
        blocks=found["blocks"],
        timed=timed_seconds(records) / (end - begin),
        cells=len(cells),
        decided=sum(c["verdict"] != "no verdict yet" for c in cells),
        late=tuple(f"{c['arm']} {c['workload']}.{c['metric']}" for c in cells if is_late(c)),
        floor=floor(found["noise_floor"]["cells"]),
    )
    wide = ", ".join(f"{kind} ±{100 * half:.1f} %" for kind, half in out.floor.items())
    print(
        f"first block {out.first:.1f} s, {out.blocks} blocks, {100 * out.timed:.0f} % timed,"
        f" {out.decided} of {out.cells} decided; noise {wide}"
        + (f"; late: {', '.join(out.late)}" if out.late else ""),
        flush=True,
    )
    return out


def timed_seconds(records: Iterable[TrialRecord]) -> float:
    """Return the seconds that were spent in timed slices and in starts."""
    total = 0.0
    for record in records:
        for row in record.rows:
            total += sum(row.seconds or (row.values if row.unit == "s" else ()))
    return total


def is_late(cell: Mapping[str, Any]) -> bool:
    beyond = cell["overhead"] is not None and cell["overhead"] > FACTOR
    at = cell["decided_seconds"]
    return beyond and (at is None or at > SECONDS)


def floor(cells: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    out: dict[str, float] = {}
    for c in cells:
        kind = next((k for name, k in GROUPS.items() if c["workload"].startswith(name)), "compute")
        low, high = c["low"], c["high"]
        half = float("inf") if low is None or high is None else (high - low) / 2
        out[kind] = max(out.get(kind, 0.0), half)
    return out


if __name__ == "__main__":
    main()

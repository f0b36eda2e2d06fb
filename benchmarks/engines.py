"""Measures what an engine costs, when workers are submitted and in each round.

The time to submit many workers is compared with that of the engine's own command. The duration of rounds with
a worker is compared with that of a run without an engine.

By hand: python -m benchmarks.engines submit --engine slurm [--workers 10000] [--runs 5]
         python -m benchmarks.engines rounds [--engine local] [--rounds 12] [--runs 6]

The first needs a machine on which jobs can be submitted to the engine. All jobs are held, and then cancelled,
so no worker starts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from benchmarks.paired import difference, interleaved, ratio, shown

from nearmetal.engines import Job, load_engine
from nearmetal.host import LocalHost
from nearmetal.records import ResultsDirectory

HELD = {"slurm": "--hold", "htcondor": "hold = true"}
"""By engine, the value of its option `extra` that makes it hold the jobs."""
SCRIPT = "#!/bin/sh\nexec sleep 1\n"
DESCRIPTION = """\
executable = /bin/sleep
arguments = 1
transfer_executable = false
should_transfer_files = no
output = $(Process).out
error = $(Process).out
log = own.log
"""
# Its rounds take a third of a second, so that what a worker adds is not hidden by them.
STUDY = """\
name: rounds
question: What does a container cost?
environments:
  native: {backend: native, attachment: host}
  namespaces: {backend: namespaces, attachment: host}
placements:
  1x1: {instances: 1, tasks: 1}
workloads:
  ep: {kernel: ep, class: S}
  memory: {kernel: stream, elements: 1000000}
  start: {subject: start}
design: {baseline: native, margin: 3 %, target_width: 0.001 %, slices: 2}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("submit", "rounds"))
    parser.add_argument("--engine", default="local")
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--runs", type=int, default=6)
    asked = parser.parse_args()
    if asked.what == "submit":
        submit(asked.engine, asked.workers, asked.runs)
    else:
        rounds(asked.engine, asked.rounds, asked.runs)


def submit(engine: str, workers: int, runs: int) -> None:
    """Print the seconds that nearmetal and the engine's own command need to submit the workers."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        place = Path(scratch)
        job = Job(
            name="nearmetal-submit",
            argv=("/bin/sleep", "1"),
            workers=workers,
            directory=place,
            logs=place,
            cpus=1,
            seconds=None,
        )
        ways: dict[str, Callable[[], float]] = {
            "ours": partial(by_us, engine, job),
            "own": partial(by_itself, engine, workers, place),
        }
        found = interleaved(ways, runs)
    own, ours = statistics.median(found["own"]), statistics.median(found["ours"])
    result = {"engine": engine, "workers": workers, "own": own, "ours": ours, "ratio": ours / own}
    print(f"{shown(ratio(found['ours'], found['own']))} x the command of {engine}")
    print(json.dumps(result))


def by_us(engine: str, job: Job) -> float:
    begin = time.monotonic()
    ids = load_engine(engine).submit(LocalHost(), job, {"extra": HELD[engine]})
    seconds = time.monotonic() - begin
    load_engine(engine).cancel(LocalHost(), ids, {})
    return seconds


def by_itself(engine: str, workers: int, place: Path) -> float:
    """Submit the same number of jobs by the engine's own command, and return the seconds. The jobs keep their
    output, and have no other options than necessary."""
    if engine == "slurm":
        argv = ["sbatch", "--parsable", f"--array=1-{workers}", HELD[engine], "--output=%a.out"]
        stdin = SCRIPT
    else:
        argv, stdin = ["condor_submit", "-terse", "-"], f"{DESCRIPTION}{HELD[engine]}\nqueue {workers}\n"
    begin = time.monotonic()
    done = subprocess.run(argv, input=stdin, cwd=place, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begin
    if done.returncode:
        raise SystemExit(done.stderr)
    load_engine(engine).cancel(LocalHost(), (done.stdout.split()[0].partition(".")[0],), {})
    return seconds


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Seconds from the start of a run to the end of its first round, and median seconds between the
    beginnings of later rounds."""

    first: float
    further: float


def rounds(engine: str, number: int, runs: int) -> None:
    """Print how long rounds take with a worker of an engine, and in a run without an engine."""
    with tempfile.TemporaryDirectory() as scratch:
        ways: dict[str, Callable[[], Rounds]] = {
            "run": partial(measured, Path(scratch), number),
            "worker": partial(measured, Path(scratch), number, "--engine", engine, "--workers", "1"),
        }
        found = interleaved(ways, runs)
    worker, run = found["worker"], found["run"]
    first, further = (
        ([getattr(r, name) for r in worker], [getattr(r, name) for r in run]) for name in ("first", "further")
    )
    print(
        f"first round: {statistics.median(first[1]):.2f} s by run, later by {shown(difference(*first), 's')}"
    )
    print(f"a further round: {statistics.median(further[1]):.2f} s by run, {shown(ratio(*further))} x that")


def measured(place: Path, number: int, *more: str) -> Rounds:
    results = place / "results"
    shutil.rmtree(results, ignore_errors=True)
    (place / "rounds.yaml").write_text(STUDY)
    words = ["run", "rounds.yaml", "--seed", "3", "--max-blocks", str(number), *more]
    words += os.environ.get("FORCE", "").split()
    begin = time.time()
    done = subprocess.run(
        [sys.executable, "-m", "nearmetal", *words], cwd=place, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    records = list(ResultsDirectory.open(next(results.iterdir())).trials())
    begins = [min(r.begin for r in records if r.block == k) for k in range(1, number + 1)]
    return Rounds(
        first=max(r.end for r in records if r.block == 1) - begin,
        further=statistics.median(b - a for a, b in pairwise(begins[1:])),
    )


if __name__ == "__main__":
    main()

"""Resolution of `nearmetal quick` in 90 s, and how often a planted 3 % is found at a margin of 1 %.

By hand: python -m benchmarks.resolution [--tries 10] [--runs 1] [--against PROGRAM]. Each run has two parts
of 90 s, which use their whole budget: native against one container with the same transport, with the four
kernels of the claim; and the complete quick. It prints the half-widths of the named metrics' intervals, and
the noise floor. With --against, the runs of another nearmetal PROGRAM, such as that of an older checkout, are
interleaved, and the ratios of half-widths are printed too. Then a native handicap of 3 % extra work runs
--tries times (0: not at all).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PLANTED = """\
name: planted
question: Is a planted 3 % found?
environments:
  native: {backend: native}
  handicap: {backend: handicap, extra_work: 3 %}
placements:
  1x2: {instances: 1, tasks: 2}
workloads:
  triad: {kernel: stream, elements: 2 M, metrics: [triad]}
  ep: {kernel: ep, class: S}
  cg: {kernel: cg, class: S}
design: {baseline: native, margin: 1 %, max_time: 90 s}
"""
SAME = """\
name: same
question: What does a container cost these four in the same transport?
environments:
  native: {backend: native}
  namespaces: {backend: namespaces, attachment: veth-bridge}
placements:
  1x2: {instances: 1, tasks: 2}
workloads:
  stream-2m: {kernel: stream, elements: 2 M, metrics: [triad]}
  ep: {kernel: ep, class: S}
  cg: {kernel: cg, class: S}
  latency: {kernel: pingpong, bytes: 8 B, measure: latency}
design: {baseline: native, warm_up: 0, target_width: 0.01 %}
"""
LIMIT = 0.007
ARM = "namespaces/1x2"
OURS = Path(sys.executable).parent / "nearmetal"
NAMED = (
    "stream-2m.triad",
    "stream-big.triad",
    "ep.rate",
    "cg.rate",
    "latency.latency",
    "bandwidth.bandwidth",
)


def nearmetal(*words: str, cwd: Path, program: Path = OURS) -> dict[str, Any]:
    """Run a command of nearmetal, and return its result as data. A study may stop early when all verdicts are
    reached."""
    done = subprocess.run([program, *words, "--json"], cwd=cwd, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def half_width(cell: dict[str, Any]) -> float:
    """Return the half-width of the interval of ln(ratio); infinite before the first look."""
    low, high = cell["low"], cell["high"]
    return math.inf if low is None or high is None else (math.log1p(high) - math.log1p(low)) / 2


def widths(found: dict[str, Any]) -> dict[str, float]:
    """Return the half-widths of the named metrics, for one container with the same transport."""
    return {
        name: half_width(c)
        for c in found["cells"]
        if c["arm"] == ARM and (name := f"{c['workload']}.{c['metric']}") in NAMED
    }


def floor(found: dict[str, Any]) -> str:
    """Return as text the largest half-width of the baseline against itself, and the disturbance of the
    run."""
    widest = max((half_width(c) for c in found["noise_floor"]["cells"]), default=math.inf)
    told = {k: round(v, 4) for k, v in found["disturbance"].items() if v}
    return f"A/A at most ±{widest * 100:.2f} %, {told}"


def resolution(cwd: Path, runs: int, against: Path | None) -> None:
    """Print the half-widths of runs of this and the other program, in an order that changes from run to
    run."""
    parts = {"four kernels": ("run", "same.yaml"), "quick": ("quick", "--width", "0.01 %")}
    sides = {"ours": OURS, **({"theirs": against} if against else {})}
    for part, words in parts.items():
        found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
        for run in range(runs):
            for name in sorted(sides, reverse=run % 2 == 1):
                result = nearmetal(*words, "--time", "90s", cwd=cwd, program=sides[name])
                found[name].append(widths(result))
                shown = ", ".join(f"{metric} ±{100 * w:.2f}" for metric, w in found[name][-1].items())
                print(f"{part}, {name}, {result['blocks']} blocks: {shown} %; {floor(result)}", flush=True)
        for metric in found["ours"][0]:
            own = [run.get(metric, math.inf) for run in found["ours"]]
            good = sum(w <= LIMIT for w in own)
            line = f"{part}: {metric} median ±{100 * statistics.median(own):.2f} %, {good} of {runs} within"
            line += f" {100 * LIMIT:g} %"
            if against:
                other = [run.get(metric, math.inf) for run in found["theirs"]]
                ratios = [a / b for a, b in zip(own, other, strict=True) if math.isfinite(b)]
                middle = statistics.median(ratios) if ratios else math.nan
                line += f", theirs ±{100 * statistics.median(other):.2f} %, ratio {middle:.2f}"
            print(line)


def planted(cwd: Path, tries: int) -> None:
    """Print in how many tries the planted 3 % is material in every metric."""
    (cwd / "planted.yaml").write_text(PLANTED)
    hits: dict[str, int] = {}
    for i in range(tries):
        found = nearmetal("run", "planted.yaml", "--seed", str(i + 1), cwd=cwd)
        for cell in found["cells"]:
            name = f"{cell['workload']}.{cell['metric']}"
            hits[name] = hits.get(name, 0) + (cell["verdict"] == "material: slower")
        print(f"  try {i + 1}: " + ", ".join(f"{n} {k} of {i + 1}" for n, k in hits.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--against", type=Path, help="another nearmetal program")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "same.yaml").write_text(SAME)
        resolution(Path(scratch), asked.runs, asked.against)
        if asked.tries:
            print(f"planted 3 %, margin 1 %, {asked.tries} tries")
            planted(Path(scratch), asked.tries)


if __name__ == "__main__":
    main()

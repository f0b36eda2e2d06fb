"""How fine `nearmetal quick` sees in 90 seconds, and how often a planted 3 % is found at a margin of 1 %.

By hand: python -m benchmarks.resolution [tries]. Two runs of 90 s each, to the end of their budget: native
against one container in the same transport, with the four kernels of the claim, and the whole of quick; with
the half-width of every metric, the noise floor and what disturbed the run. Then a native handicap of 3 %
extra work that many times (0: not at all).
"""

from __future__ import annotations

import json
import math
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
design: {baseline: native, margin: 1 %, slices: 8, max_time: 90 s}
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
NAMED = (
    "stream-2m.triad",
    "stream-big.triad",
    "ep.rate",
    "cg.rate",
    "latency.latency",
    "bandwidth.bandwidth",
)


def nearmetal(*words: str, cwd: Path) -> dict[str, Any]:
    """The result of a run as data; a study whose verdicts are reached may stop early."""
    program = Path(sys.executable).parent / "nearmetal"
    done = subprocess.run([program, *words, "--json"], cwd=cwd, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def half_width(cell: dict[str, Any]) -> float:
    """Of ln(ratio); infinite before the first look."""
    low, high = cell["low"], cell["high"]
    return math.inf if low is None or high is None else (math.log1p(high) - math.log1p(low)) / 2


def widths(what: str, arm: str, *words: str, cwd: Path) -> None:
    """One run to the end of its budget."""
    found = nearmetal(*words, "--time", "90s", cwd=cwd)
    print(
        f"{what}, 90 s, {found['blocks']} blocks; half-widths in %, limit {LIMIT * 100:g} for the named ones"
    )
    for cell in found["noise_floor"]["cells"]:
        name = f"{cell['workload']}.{cell['metric']}"
        print(f"  A/A {name:<22} ±{half_width(cell) * 100:.2f}  n {cell['n']}")
    for cell in found["cells"]:
        name = f"{cell['workload']}.{cell['metric']}"
        if cell["arm"] == arm:
            mark = "" if name not in NAMED else ("ok" if half_width(cell) <= LIMIT else "TOO WIDE")
            print(f"      {name:<22} ±{half_width(cell) * 100:.2f}  n {cell['n']}  {mark}")
    print(f"  disturbance: {found['disturbance']}")


def planted(cwd: Path, tries: int) -> None:
    """How many of the tries call the planted 3 % material in every metric."""
    (cwd / "planted.yaml").write_text(PLANTED)
    hits: dict[str, int] = {}
    for i in range(tries):
        found = nearmetal("run", "planted.yaml", "--seed", str(i + 1), cwd=cwd)
        for cell in found["cells"]:
            name = f"{cell['workload']}.{cell['metric']}"
            hits[name] = hits.get(name, 0) + (cell["verdict"] == "material: slower")
        print(f"  try {i + 1}: " + ", ".join(f"{n} {k} of {i + 1}" for n, k in hits.items()), flush=True)


def main(tries: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "same.yaml").write_text(SAME)
        widths("same transport", "namespaces/1x2", "run", "same.yaml", cwd=Path(scratch))
        widths("quick", "namespaces/1x2", "quick", "--width", "0.01 %", cwd=Path(scratch))
        if tries:
            print(f"planted 3 %, margin 1 %, {tries} tries")
            planted(Path(scratch), tries)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)

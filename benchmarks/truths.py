"""Checks on this machine whether intervals contain the true overhead: 0, and planted 1, 3 and 5 % extra work.

By hand: python -m benchmarks.truths [--runs 6] [--time 90s]. Each run compares bare metal with itself twice
(the baseline's second run in each block, and another environment that is bare metal too) and with three
handicaps. It prints which cells without planted work were called material, and in how many cells with planted
work the interval contains the truth.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

from benchmarks.resolution import nearmetal

KERNELS = ("ep", "cg", "is", "mg", "lu", "ft")
PLANTED = {"one": 0.01, "three": 0.03, "five": 0.05}
STUDY = """\
name: truths
question: Are planted costs found, and none where there is none?
environments:
  native: {backend: native}
  again: {backend: native}
  one: {backend: handicap, extra_work: 1 %}
  three: {backend: handicap, extra_work: 3 %}
  five: {backend: handicap, extra_work: 5 %}
placements:
  1x2: {instances: 1, tasks: 2}
workloads:
  triad: {kernel: stream, elements: 2 M, metrics: [triad]}
  latency: {kernel: pingpong, bytes: 8 B, measure: latency}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--time", default="90s")
    asked = parser.parse_args()
    text = STUDY + "".join(f"  {k}: {{kernel: {k}, class: S}}\n" for k in KERNELS)
    text += "design: {baseline: native, warm_up: 0, target_width: 0.01 %}\n"
    nothing = material = planted = inside = 0
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "truths.yaml").write_text(text)
        for seed in range(1, asked.runs + 1):
            found = nearmetal(
                "run", "truths.yaml", "--seed", str(seed), "--time", asked.time, cwd=Path(scratch)
            )
            same = [
                *found["noise_floor"]["cells"],
                *(c for c in found["cells"] if c["arm"].startswith("again")),
            ]
            nothing += len(same)
            material += sum(c["verdict"].startswith("material") for c in same)
            for c in found["cells"]:
                truth = PLANTED.get(c["arm"].split("/")[0])
                if truth is None:
                    continue
                planted += 1
                low = -math.inf if c["low"] is None else c["low"]
                high = math.inf if c["high"] is None else c["high"]
                if low <= truth <= high:
                    inside += math.isfinite(high)
                else:
                    missed.append(
                        f"{c['workload']} +{100 * truth:g} %: [{100 * low:.2f} ... {100 * high:.2f}]"
                    )
            print(
                f"run {seed}, {found['blocks']} blocks: {material} of {nothing} without a cost are material;"
                f" {inside} of {planted} planted inside",
                flush=True,
            )
    for text in missed:
        print(f"  missed: {text}")


if __name__ == "__main__":
    main()

"""CPU of the 1 Hz sampler against that of `vmstat 1`, interleaved. By hand: python benchmarks/sampler.py [rounds]

Each round runs both side by side for the same seconds, in an order drawn anew, and takes the CPU time of what
samples only: for vmstat its process less what it had used when it was warm; for the sampler a bare process that
does nothing else, in the same way, and its thread inside."""

from __future__ import annotations

import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 12.0
WARM = 2.0

_SAMPLE = """
import sys, time
from pathlib import Path
from nearmetal.samplers import Sampler
with Sampler(Path(sys.argv[1])) as sampler:
    for name in sys.argv[2:]:
        sampler.add_instance(name, {"cpuacct": Path("/sys/fs/cgroup/cpuacct"),
                                    "memory": Path("/sys/fs/cgroup/memory")})
    time.sleep(3600)
"""


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process so far, by the scheduler's clock (schedstat, ns)."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def measure_round(scratch: Path) -> tuple[float, float]:
    """CPU seconds per second of (sampler, vmstat), both running at the same time."""
    commands = {
        "sampler": [sys.executable, "-c", _SAMPLE, str(scratch)],
        "vmstat": ["vmstat", "1"],
    }
    names = random.sample(sorted(commands), 2)
    children = {}
    try:
        for name in names:
            children[name] = subprocess.Popen(commands[name], stdout=subprocess.DEVNULL)
            time.sleep(random.random() * 0.4)  # not on the same beat
        time.sleep(WARM)
        before = {name: cpu_seconds(child.pid) for name, child in children.items()}
        begin = time.monotonic()
        time.sleep(SECONDS)
        after = {name: cpu_seconds(child.pid) for name, child in children.items()}
        seconds = time.monotonic() - begin
    finally:
        for child in children.values():
            child.kill()
            child.wait()
    return tuple((after[name] - before[name]) / seconds for name in ("sampler", "vmstat"))  # type: ignore[return-value] # two names, two numbers


def main(rounds: int) -> None:
    print(f"{rounds} rounds of {SECONDS:.0f} s, {os.cpu_count()} CPUs")
    ratios, shares = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(rounds):
            sampler, vmstat = measure_round(Path(scratch) / str(number))
            ratios.append(sampler / vmstat)
            shares.append(sampler)
            print(f"  sampler {sampler * 1e6:6.0f} us/s   vmstat 1 {vmstat * 1e6:6.0f} us/s   x{ratios[-1]:.2f}")
    logs = [math.log(r) for r in ratios]
    half = 2.0 * statistics.stdev(logs) / math.sqrt(rounds) if rounds > 1 else math.inf
    centre = statistics.mean(logs)
    print(
        f"ratio x{math.exp(centre):.2f} [{math.exp(centre - half):.2f} … {math.exp(centre + half):.2f}] (limit 1.2);"
        f" {statistics.median(shares) * 100:.4f} % of a core (limit 0.05 %)"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)

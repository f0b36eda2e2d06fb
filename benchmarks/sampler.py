"""Compares the CPU time of the 1 Hz sampler with that of `vmstat 1`.

By hand: python -m benchmarks.sampler [rounds]. Each round starts three programs, in random order and at
random distances: nm-sample with all files of the node; nm-sample with two instances in addition, each with a
process in control groups like those of a run; and vmstat, which reads a part of the node's files. When they
are warm, their CPU time over the same seconds is read from the scheduler."""

from __future__ import annotations

import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nearmetal.environments.instance import CONTROLLERS
from nearmetal.errors import UnavailableError
from nearmetal.host import LocalHost, MissingValue, cgroups
from nearmetal.host.runtime import cache_directory
from nearmetal.node.machine import new_label
from nearmetal.samplers import Sampler
from nearmetal.workloads.build import build_tools

SECONDS = 15.0
WARM = 2.0
NAMES = ("node", "node + 2 instances", "vmstat 1")
INSTANCES = ("a", "b")
Groups = Mapping[str, Path]


@contextmanager
def lived_in_groups(label: str) -> Iterator[Groups]:
    """Yield control groups like those of an instance. A process in them wakes up ten times per second."""
    parents = cgroups.machine_parents()
    if isinstance(parents, MissingValue):
        raise UnavailableError(f"no control group can be made here: {parents.reason}")
    made = cgroups.directories(parents, label, CONTROLLERS - {"cpuset"})
    try:
        cgroups.create(made, cgroups.GroupLimits())
        process = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(0.1)"])
        try:
            cgroups.take(made, process.pid)
            yield made
        finally:
            process.kill()
            process.wait()
    finally:
        cgroups.remove(cgroups.unique(made))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time in seconds of all threads of a process so far, from schedstat, which counts in
    ns."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def measure_round(scratch: Path, program: str, groups: Mapping[str, Groups]) -> dict[str, float]:
    """Run all programs at the same time, and return their CPU seconds per second by name.

    groups: control groups of each instance.
    """
    host = LocalHost()
    pids: dict[str, int] = {}
    samplers = {
        name: Sampler(scratch, writer=str(i), host=host, program=program) for i, name in enumerate(NAMES[:2])
    }
    vmstat = None
    try:
        for name in random.sample(NAMES, len(NAMES)):
            if name in samplers:
                sampler = samplers[name].__enter__()
                pids[name] = newest_child()
                if name != "node":
                    for label, own in groups.items():
                        sampler.add_instance(label, own)
            else:
                vmstat = subprocess.Popen(["vmstat", "1"], stdout=subprocess.DEVNULL)
                pids[name] = vmstat.pid
            time.sleep(random.random() * 0.3)  # not on the same beat
        time.sleep(WARM)
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        begin = time.monotonic()
        time.sleep(SECONDS)
        after = {name: cpu_seconds(pid) for name, pid in pids.items()}
        seconds = time.monotonic() - begin
    finally:
        if vmstat is not None:
            vmstat.kill()
            vmstat.wait()
        for sampler in samplers.values():
            sampler.__exit__(None, None, None)
    return {name: (after[name] - before[name]) / seconds for name in NAMES}


def newest_child() -> int:
    """Return the PID of the child process that was started last."""
    return int(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()[-1])


def main(rounds: int) -> None:
    tools = build_tools(LocalHost(), cache_directory(), progress=print)
    print(f"{rounds} rounds of {SECONDS:.0f} s, {os.cpu_count()} CPUs; CPU microseconds per second")
    found = []
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        label = new_label()
        groups = {name: stack.enter_context(lived_in_groups(f"{label}-{name}")) for name in INSTANCES}
        for _ in range(rounds):
            found.append(measure_round(Path(scratch), str(tools.directory / "nm-sample"), groups))
            print("  " + "   ".join(f"{name} {found[-1][name] * 1e6:.0f}" for name in NAMES))
    for name in NAMES[:2]:
        logs = [math.log(f[name] / f[NAMES[2]]) for f in found]
        centre = statistics.mean(logs)
        half = 2.0 * statistics.stdev(logs) / math.sqrt(rounds) if rounds > 1 else math.inf
        share = statistics.median(f[name] for f in found) * 100
        low, high = math.exp(centre - half), math.exp(centre + half)
        print(
            f"{name}: x{math.exp(centre):.2f} [{low:.2f} … {high:.2f}] of "
            f"vmstat 1 (limit 1.2); {share:.4f} % of a core (limit 0.05 %)"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)

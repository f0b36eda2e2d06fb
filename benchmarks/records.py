"""Time that nearmetal needs to record a trial, compared with that of the fsync alone.

By hand: python -m benchmarks.records [trials [directory]]. A trial is recorded as in a run: counters of the
node and of two instances before and after, their differences, the disturbance, and one record of two rows of
eight slices, which is written as a line and synced. In turn with it, the same bytes are appended to another
file and synced."""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nearmetal.host import LocalHost
from nearmetal.host.counters.trial import delta, disturbance, flags, snapshot
from nearmetal.model.change import replace
from nearmetal.model.record import TrialRecord
from nearmetal.model.scope import NODE, Scope
from nearmetal.records import ResultsDirectory, TrialWriter
from nearmetal.records.codec import to_line
from nearmetal.testing.simulate import PLAIN

INSTANCES = {
    Scope.instance("a"): {"cpuacct": Path("/sys/fs/cgroup/cpuacct"), "memory": Path("/sys/fs/cgroup/memory")},
    Scope.instance("b"): {"cpuacct": Path("/sys/fs/cgroup/cpuacct"), "memory": Path("/sys/fs/cgroup/memory")},
}
SLICES = tuple(0.01 + i / 1e5 for i in range(8))
ROW = replace(PLAIN.rows[0], values=SLICES, seconds=SLICES, parts={"comm": SLICES})


def recorded(host: LocalHost, writer: TrialWriter) -> TrialRecord:
    """Do everything that a run does for a trial, except running it. Return the record."""
    begin = time.time()
    own = time.process_time()
    before = {name: snapshot(host, cgroups) for name, cgroups in INSTANCES.items()}
    node = snapshot(host)
    seconds = max(time.time() - begin, 1e-6)
    node_delta = delta(node, snapshot(host), seconds)
    instances = {name: delta(before[name], snapshot(host, c), seconds) for name, c in INSTANCES.items()}
    noise = disturbance(node_delta, instances.values(), time.process_time() - own, seconds, 2)
    record = replace(
        PLAIN,
        begin=begin,
        end=time.time(),
        rows=(ROW, replace(ROW, metric="copy")),
        counters={NODE: node_delta, **instances},
        disturbance=noise,
        flags=flags(noise),
    )
    writer.append(record)
    return record


def timed(what: Callable[[], object]) -> float:
    begin = time.perf_counter()
    what()
    return (time.perf_counter() - begin) * 1e3


def interval(values: Sequence[float]) -> str:
    """Return the median with its 95 % order-statistic interval as text."""
    ordered, n = sorted(values), len(values)
    reach = 0.98 * n**0.5
    low, high = ordered[max(0, int(n / 2 - reach))], ordered[min(n - 1, int(n / 2 + reach))]
    return f"{statistics.median(ordered):.3f} ms [{low:.3f} … {high:.3f}]"


def main(trials: int, parent: Path) -> None:
    host = LocalHost()
    with tempfile.TemporaryDirectory(dir=parent) as scratch:
        directory = ResultsDirectory.create(Path(scratch), "cost", study_yaml="")
        directory.freeze(seed=1, arms=["a"], provenance={})
        fd = os.open(Path(scratch) / "alone", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with directory.writer() as writer:
            line = to_line(recorded(host, writer))

            def alone() -> None:
                os.write(fd, line)
                os.fsync(fd)

            found: dict[str, list[float]] = {"whole": [], "fsync alone": []}
            for _ in range(trials):
                for name in random.sample(sorted(found), 2):
                    found[name].append(timed(alone if name != "whole" else lambda: recorded(host, writer)))
        os.close(fd)
    print(f"{trials} trials of {len(line)} bytes, 3 scopes of counters, in {parent}")
    for name, values in found.items():
        print(f"  {name}: {interval(values)}")
    pairs = [a - b for a, b in zip(found["whole"], found["fsync alone"], strict=True)]
    print(f"  own cost beyond the fsync: {interval(pairs)} (limit 3 ms)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300, Path(sys.argv[2] if len(sys.argv) > 2 else "."))

"""Compares EP-DGEMM of HPCC, with the chosen BLAS, with this machine's upper bound of DGEMM.

By hand: python -m benchmarks.hpcc [rounds] [n]. Each round runs HPCC natively on all CPUs, pinned, and
measures the upper bound, in random order. The ratio is EP-DGEMM / mean of the CPUs' upper bounds, pair by
pair. n: order of HPL's matrix; the matrices of DGEMM have the order n / sqrt(3 ranks). If a run fails its
verification, the exit status is 1.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.paired import interleaved, ratio, shown

from nearmetal.host import LocalHost
from nearmetal.launchers import MpiJob
from nearmetal.model.study import Transport
from nearmetal.node.machine import Machine, prepare_machine
from nearmetal.node.progress import NullProgress
from nearmetal.run.bounds.dgemm import measure_dgemm
from nearmetal.run.kernel_run import rank_cpus
from nearmetal.subjects.launches.rank_argv import rank_argv
from nearmetal.workloads.applications.contract import Output, Parsed, Place
from nearmetal.workloads.applications.hpcc import OUTPUT, Hpcc
from nearmetal.workloads.parameter import Choices

LIMIT = 1800.0
METRIC = "EP-DGEMM"


def main(rounds: int, n: int) -> int:
    machine = prepare_machine(LocalHost(), NullProgress())
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        found = interleaved(
            {"hpcc": lambda: ep_dgemm(machine, Path(scratch), n), "roof": lambda: roof(machine)}, rounds
        )
    measured = statistics.median(found["hpcc"]) / 1e9
    print(f"{METRIC} {measured:.4g} GFLOP/s of each of {len(machine.cpus)} CPUs, n {n}, {rounds} rounds")
    print(f"{METRIC} / roof {shown(ratio(found['hpcc'], found['roof']))} (at least 0.9)")
    return 0


def roof(machine: Machine) -> float:
    """Measure the upper bound on all CPUs at the same time, and return their mean in FLOP/s."""
    each = measure_dgemm(machine, machine.cpus).best()
    return sum(each) / len(each)


def ep_dgemm(machine: Machine, scratch: Path, n: int) -> float:
    """Run HPCC once, and return the FLOP/s of a rank in EP-DGEMM, in which all ranks compute at the same
    time."""
    found = run(machine, scratch, n)
    value = next(m.value for m in found.metrics if m.name == METRIC)
    if not found.ok or value is None:
        sys.exit(f"HPCC is not verified: {found.found}")
    return value


def run(machine: Machine, scratch: Path, n: int) -> Parsed:
    known, ranks = Hpcc(), len(machine.cpus)
    choices = Choices(values={p.name: p.default for p in known.parameters} | {"n": n})
    with tempfile.TemporaryDirectory(dir=scratch) as here:
        place = Place(
            nodes=1,
            instances=1,
            tasks=ranks,
            directory=Path(here),
            storage=None,
            memory=machine.hardware.memory,
            cpu_flags=machine.hardware.cpu_flags,
        )
        invocation = known.command(choices, place)
        for name, text in invocation.files.items():
            (place.directory / name).write_text(text)
        cpus = rank_cpus(machine.cpus, ranks, 1)
        rank = rank_argv(machine.tools, cpus, invocation.argv, directory=Path(here))
        job = MpiJob(
            argv=tuple(rank),
            box=machine.tools / "nm-box",
            ranks=ranks,
            transport=Transport.SHM,
            interface="lo",
            scratch=here,
            forward=tuple(invocation.env),
        )
        launch = machine.mpi.launch(job)
        done = machine.host.run(launch.argv, env={**launch.env, **invocation.env}, timeout=LIMIT)
        written = place.directory / OUTPUT
        text = written.read_text(errors="replace") if written.exists() else ""
    return known.parse(choices, place, Output(stdout=done.stdout, stderr=done.stderr, files={OUTPUT: text}))


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(given + [10, 4000][len(given) :])))

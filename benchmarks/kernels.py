"""Compares STREAM triad and ping-pong of nm-micro with the simplest possible loops (plain.c), compiled with
the same flags.

By hand: python -m benchmarks.kernels [rounds]. Both sides run in fresh processes in turn. A launch gives the
median of fifteen repetitions. Ratios of seconds are nm-micro / plain, pair by pair.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.paired import interleaved, ratio, shown

from nearmetal.host import LocalHost
from nearmetal.launchers import MpiJob
from nearmetal.model.study import Transport
from nearmetal.node.machine import Machine, prepare_machine
from nearmetal.node.progress import NullProgress
from nearmetal.subjects.launches.job import RankJob

REPETITIONS = 15
ELEMENTS, SWEEPS, BYTES, TRIPS = 2_000_000, 4, 8, 10_000
SOURCE = Path(__file__).with_name("plain.c")


def main(rounds: int) -> None:
    machine = prepare_machine(LocalHost(), NullProgress())
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        plain = Path(scratch) / "plain"
        flags = machine.built.flags.split()
        subprocess.run(["mpicc", *flags, "-D_GNU_SOURCE", "-o", str(plain), str(SOURCE)], check=True)
        triad = f"stream:elements={ELEMENTS}:pages=huge"
        trips = f"pingpong:bytes={BYTES}"
        found = interleaved(
            {
                "triad": lambda: ours(machine, scratch, triad, ELEMENTS * SWEEPS, "triad"),
                "plain triad": lambda: theirs(
                    machine, scratch, [str(plain), "triad", str(ELEMENTS), str(SWEEPS)]
                ),
                "latency": lambda: ours(machine, scratch, trips, TRIPS, "messages"),
                "plain latency": lambda: theirs(
                    machine, scratch, [str(plain), "pingpong", str(BYTES), str(TRIPS)]
                ),
            },
            rounds,
        )
    for name, limit in (("triad", "within 2 %"), ("latency", "within 5 %")):
        seconds = statistics.median(found[name])
        print(f"{name}: ours / plain {shown(ratio(found[name], found['plain ' + name]))} ({limit}),", end=" ")
        print(f"ours {seconds * 1e3:.3f} ms, n {rounds}")


def ours(machine: Machine, scratch: str, spec: str, units: int, metric: str) -> float:
    """Launch nm-micro once, and return the median seconds of its slices."""
    with tempfile.TemporaryDirectory(dir=scratch) as here, RankJob(Path(here), 2, Path(here)) as job:
        program = (machine.tools / "nm-micro", "--tokens", here, spec)
        launch = machine.mpi.launch(mpi_job(machine, program, here))
        job.launch(machine.host, launch.argv, launch.env)
        job.ready()
        job.slice(0, units)
        values = [
            part.seconds
            for _ in range(REPETITIONS)
            for part in job.slice(0, units).parts
            if part.metric == metric
        ]
        job.quit()
        job.ended()
    return statistics.median(values)


def theirs(machine: Machine, scratch: str, program: list[str]) -> float:
    """Launch the plain program once, and return the median seconds of its repetitions."""
    launch = machine.mpi.launch(mpi_job(machine, tuple(program), scratch))
    done = machine.host.run(launch.argv, env=launch.env, timeout=60)
    return statistics.median(float(line) for line in done.stdout.splitlines())


def mpi_job(machine: Machine, program: tuple[str, ...], scratch: str) -> MpiJob:
    """Return a job of two pinned ranks that communicate through shared memory."""
    wrapper = (machine.tools / "nm-rank", "--cpus", ",".join(map(str, machine.cpus[:2])), "--")
    return MpiJob(
        argv=(*wrapper, *program),
        box=machine.tools / "nm-box",
        ranks=2,
        transport=Transport.SHM,
        interface="lo",
        scratch=scratch,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)

"""Time that the profile adds to an MPI call, measured with calls that do little (calls.c).

By hand: python -m benchmarks.profile [rounds]. Fresh processes run with and without the profile in turn. Each
gives the minimum over five hundred repetitions of 2,000 calls. Differences are with - without, pair by pair.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.paired import difference, interleaved, shown

from nearmetal.host import LocalHost
from nearmetal.launchers import MpiJob
from nearmetal.model.study import Transport
from nearmetal.node.machine import Machine, prepare_machine
from nearmetal.node.progress import NullProgress

SOURCE = Path(__file__).with_name("calls.c")
CALLS = ("MPI_Iprobe", "MPI_Sendrecv", "MPI_Sendrecv in another communicator")


def main(rounds: int) -> None:
    machine = prepare_machine(LocalHost(), NullProgress())
    for threads, words in ((0, "one thread"), (1, "MPI_THREAD_MULTIPLE")):
        with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
            program = Path(scratch) / "calls"
            flags = machine.built.flags.split()
            subprocess.run(["mpicc", *flags, "-D_GNU_SOURCE", "-o", str(program), str(SOURCE)], check=True)
            found = costs(machine, scratch, [str(program), str(threads)], rounds)
        for call, (with_it, without) in zip(CALLS, found, strict=True):
            added = difference(with_it, without)
            print(f"{call}, {words}: {shown(added, 'ns', 1e9)} added (at most 100 ns), ", end="")
            print(f"{1e9 * min(without):.0f} ns without, n {rounds}")


def costs(
    machine: Machine, scratch: str, program: list[str], rounds: int
) -> list[tuple[list[float], list[float]]]:
    """Return for each kind of call the seconds per call with the profile and without it, by round."""
    kept: dict[str, list[list[float]]] = {"with": [], "without": []}

    def run(which: str) -> float:
        preload = ("--preload", machine.tools / "libnm-profile.so", "--profile", scratch)
        rank = (machine.tools / "nm-rank", "--cpus", str(machine.cpus[-1]))
        argv = (*rank, *(preload if which == "with" else ()), "--", *program)
        box = machine.tools / "nm-box"
        job = MpiJob(argv=argv, box=box, ranks=1, transport=Transport.SHM, interface="lo", scratch=scratch)
        launch = machine.mpi.launch(job)
        done = machine.host.run(launch.argv, env=launch.env, timeout=60)
        kept[which].append([float(line) for line in done.stdout.splitlines()])
        return kept[which][-1][0]

    interleaved({"with": lambda: run("with"), "without": lambda: run("without")}, rounds)
    return [
        ([r[call] for r in kept["with"]], [r[call] for r in kept["without"]]) for call in range(len(CALLS))
    ]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)

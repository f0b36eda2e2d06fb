"""BLAST divided among ranks: two against one, and one against the unsplit search.

By hand: python -m benchmarks.blast [--rounds 6] [--program blastp] [--sequences 40000] [--queries 32]
[--fragments 12]. Every round runs, in random order: nm-blast on one rank and on two ranks, over the same
fragments of one database, and the unsplit search on one CPU. Every run is a fresh launch, whose hits are
compared with those of the unsplit search; if they differ, the exit status is 1. Ratios are formed pair by
pair, with the exact signed-rank interval, which is finite from six rounds on.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.launched import LIMIT, launched
from benchmarks.paired import interleaved, ratio, shown

from nearmetal.host import LocalHost
from nearmetal.node.machine import Machine, prepare_machine
from nearmetal.node.progress import NullProgress
from nearmetal.workloads.applications.blast import ENV, PROGRAMS, WHOLE, Blast
from nearmetal.workloads.applications.contract import Output, Place
from nearmetal.workloads.parameter import Choices

BLAST = Blast()
ONE, TWO, UNSPLIT = "one rank", "two ranks", "unsplit"


def main() -> int:
    asked = arguments()
    own = {key: getattr(asked, key) for key in ("program", "sequences", "queries", "fragments")}
    choices = Choices(values={p.name: p.default for p in BLAST.parameters} | own)
    machine = prepare_machine(LocalHost(), NullProgress())
    with tempfile.TemporaryDirectory(dir="/dev/shm") as there:
        directory = Path(there)
        prepare(machine, choices, directory)
        found = interleaved(
            {
                ONE: partial(search, machine, choices, directory, 1),
                TWO: partial(search, machine, choices, directory, 2),
                UNSPLIT: partial(unsplit, machine, choices, directory),
            },
            asked.rounds,
        )
    for name, seconds in found.items():
        print(f"{name:<10}{statistics.median(seconds):8.3f} s")
    print(f"one rank / two ranks    {shown(ratio(found[ONE], found[TWO]))}")
    print(f"one rank / unsplit      {shown(ratio(found[ONE], found[UNSPLIT]))}")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blast")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--program", default="blastp", choices=tuple(PROGRAMS))
    parser.add_argument("--sequences", type=int, default=40_000)
    parser.add_argument("--queries", type=int, default=32)
    parser.add_argument("--fragments", type=int, default=12)
    return parser.parse_args()


def place(directory: Path, ranks: int) -> Place:
    return Place(nodes=1, instances=1, tasks=ranks, directory=directory, storage=None, memory=8 << 30)


def prepare(machine: Machine, choices: Choices, directory: Path) -> None:
    for step in BLAST.prepare(choices, place(directory, 1)):
        argv = (machine.tools / step.argv[0], *step.argv[1:]) if step.own else step.argv
        run(machine, [str(word) for word in argv], directory)


def search(machine: Machine, choices: Choices, directory: Path, ranks: int) -> float:
    """Run nm-blast, and return the seconds that it reports."""
    there = place(directory, ranks)
    command = BLAST.command(choices, there)
    program = (machine.tools / command.argv[0], *command.argv[1:])
    done, _ = launched(machine, directory, ranks, program, directory=directory, env=command.env)
    found = BLAST.parse(choices, there, Output(stdout=done.stdout))
    if not found.ok or found.metrics[0].value is None:
        raise SystemExit(f"NOT VERIFIED: expected {found.expected}, found {found.found}")
    return found.metrics[0].value


def unsplit(machine: Machine, choices: Choices, directory: Path) -> float:
    """Run the unsplit search of the reference on one CPU, and return its seconds."""
    step = BLAST.prepare(choices, place(directory, 1))[-1]
    return run(machine, [*step.argv[: step.argv.index(WHOLE)], "/dev/null"], directory)


def run(machine: Machine, argv: Sequence[str], directory: Path) -> float:
    pinned = ["taskset", "--cpu-list", str(machine.cpus[0]), *argv]
    done = machine.host.run(pinned, timeout=LIMIT, cwd=directory, env=ENV)
    if not done.ok:
        raise SystemExit(done.failure())
    return done.seconds


if __name__ == "__main__":
    sys.exit(main())

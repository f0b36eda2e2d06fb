"""Time that nearmetal itself needs for a trial of `true`, beyond the launched command and the fsync.

By hand: python -m benchmarks.trial_cost [rounds] [path of the reframe program]. Every round does, in random
order: a block of two trials as in a run (instance, counters, command, record, fsync, running analysis); the
command line that a trial launches (nm-box enter, nm-rank, true), twice by itself; `true` alone, twice; and
the fsync of the same number of bytes. With ReFrame: 20 tests of `true`, run serially, minus its start-up, per
test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from benchmarks.paired import difference, interleaved, interval, shown

from nearmetal.host import LocalHost
from nearmetal.meters.inside import counted_everywhere
from nearmetal.model.plan import NextBlock
from nearmetal.model.record import TrialRecord
from nearmetal.model.study import CommandWorkload, Design, Environment, Mode, Placement, Study
from nearmetal.node.machine import new_label, prepare_machine
from nearmetal.node.node import open_node
from nearmetal.node.progress import NullProgress
from nearmetal.node.survey.available import usable_arms
from nearmetal.plan import make_plan
from nearmetal.records import GrowingTrials, TrialWriter
from nearmetal.records.codec import to_line
from nearmetal.run.block import Recording, run_block
from nearmetal.run.decide import Verifications, next_block
from nearmetal.run.rehearsal import rehearse
from nearmetal.run.running import RunningAnalysis
from nearmetal.workloads.protocol import EVENTS

TRIALS = 2  # of one block: the baseline and the baseline again
STUDY = Study(
    name="cost",
    question="",
    environments=(Environment(name="native", backend="native", placements=("1x1",)),),
    placements=(Placement(name="1x1", instances=1, tasks=1),),
    workloads=(CommandWorkload(name="true", argv=("true",)),),
    design=Design(
        baselines=("native",), margin=0.03, confidence=0.95, seed=1, mode=Mode.PLAIN, runs=1, warm_up=0
    ),
)
REFRAME_TEST = """\
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class trivial(rfm.RunOnlyRegressionTest):
    number = parameter(range(20))
    valid_systems = ['*']
    valid_prog_environs = ['*']
    executable = 'true'

    @sanity_function
    def always(self):
        return sn.assert_true(1)
"""


def main(rounds: int, reframe: str | None) -> None:
    machine = prepare_machine(LocalHost(), NullProgress())
    arms, backends, _ = usable_arms(machine, STUDY, NullProgress())
    del arms
    records: list[TrialRecord] = []
    running = RunningAnalysis(STUDY, make_plan(STUDY))
    numbers = count(1)
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as here,
        open_node(machine, STUDY, backends, new_label(), NullProgress()) as node,
        TrialWriter(Path(here) / "local.jsonl", directory=Path(here)) as writer,
    ):
        rehearsal = rehearse(node, Recording(logs=node.scratch, events=EVENTS), NullProgress()).records
        # As in a run: the events that this kernel has, not all that were tried.
        recording = Recording(logs=node.scratch, events=counted_everywhere(EVENTS, rehearsal))
        written = GrowingTrials(Path(here))
        alone = os.open(Path(here) / "alone", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def whole() -> float:
            begin = time.perf_counter()
            for record in run_block(node, order(next(numbers)), recording):
                writer.append(record)
                records.append(record)
            running.after(written.now, len(records) // TRIALS)
            return (time.perf_counter() - begin) / TRIALS

        tools = machine.tools
        enter = [tools / "nm-box", "enter", "--pid", "0", "--label", node.label, "--cpus", "0", "--"]
        rank = [tools / "nm-rank", "--cpus", "0", "--report", str(node.scratch), "--"]

        def launched(argv: list[str]) -> float:
            begin = time.perf_counter()
            for _ in range(TRIALS):
                subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)
            return (time.perf_counter() - begin) / TRIALS

        def synced() -> float:
            line = to_line(records[-1])
            begin = time.perf_counter()
            for _ in range(TRIALS):
                os.write(alone, line)
                os.fsync(alone)
            return (time.perf_counter() - begin) / TRIALS

        whole()
        found = interleaved(
            {
                "whole": whole,
                "launched": lambda: launched([*enter, *rank, "true"]),
                "true": lambda: launched(["true"]),
                "fsync": synced,
            },
            rounds,
        )
        os.close(alone)
    for name, values in found.items():
        print(f"{name:<8} {shown(interval(values), 'ms per trial', 1e3)}")
    for command, limit in (("launched", " (limit 3 ms)"), ("true", "")):
        beyond = [w - c for w, c in zip(found["whole"], found[command], strict=True)]
        own = shown(difference(beyond, found["fsync"]), "ms per trial", 1e3)
        print(f"own cost beyond `{command}` and the fsync: {own}{limit}, n {rounds}")
    if reframe:
        cost = shown(interval(reframe_cost(reframe, 6)), "ms per test", 1e3)
        print(f"ReFrame beyond its start-up: {cost}, n 6")


def order(number: int) -> NextBlock:
    return next_block(
        STUDY,
        number,
        1,
        slices={},
        work={},
        settled={},
        verifications=Verifications(),
        verify_all=False,
    )


def reframe_cost(program: str, rounds: int) -> list[float]:
    """Return the seconds per trivial test, run serially, minus the start-up (listing the same tests)."""
    out = []
    with tempfile.TemporaryDirectory() as here:
        test = Path(here) / "trivial.py"
        test.write_text(REFRAME_TEST)
        for _ in range(rounds):
            seconds = []
            for words in (["-l"], ["-r", "--exec-policy=serial"]):
                begin = time.perf_counter()
                subprocess.run([program, "-c", str(test), *words], cwd=here, check=True, capture_output=True)
                seconds.append(time.perf_counter() - begin)
            out.append((seconds[1] - seconds[0]) / 20)
    return out


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40, sys.argv[2] if len(sys.argv) > 2 else None)

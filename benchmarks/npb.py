"""Our NAS kernels in full, each verified; with --reference against NPB's own binaries, both sides in turn.

By hand: python -m benchmarks.npb [--class A] [--ranks 1 2] [--kernels cg mg] [--rounds 1]
[--reference NPB3.4-MPI/bin --rounds 6]. Every run is a fresh launch; options of MPI, pinning and the program
beside each rank are the same on both sides. Ratios are Mop/s ours / theirs by pair, with the exact
signed-rank interval, which takes six rounds; memory is the largest of all ranks and runs. A wrong result ends
it with 1.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.launched import launched
from benchmarks.paired import interleaved, interval, ratio, shown

from nearmetal.execute.machine import Machine
from nearmetal.execute.progress import Silent
from nearmetal.execute.session import prepare_machine
from nearmetal.host import LocalHost
from nearmetal.model.result import Interval
from nearmetal.model.study import KernelWorkload
from nearmetal.study_file.npb import Benchmark, Program, Size, find_program, npb_command
from nearmetal.workloads.command import parse
from nearmetal.workloads.kernel import CLASSES
from nearmetal.workloads.kernels import argument, kernel, kernel_names, parameters
from nearmetal.workloads.protocol import RankReport, VerifyLine, parse_line

LIMIT = 3600.0
HEAD = f"{'kernel':<8}{'ranks':>5}  {'verified':<9}{'seconds':>9}{'Mop/s':>10}{'MiB/rank':>9}"
HEAD_REFERENCE = f"  | {'verified':<9}{'seconds':>9}{'Mop/s':>10}{'MiB/rank':>9}  ours / reference"


@dataclass(frozen=True, kw_only=True)
class Case:
    """program: the reference's, None without one."""

    kernel: str
    size: str
    ranks: int
    program: Program | None


@dataclass(frozen=True, kw_only=True)
class Run:
    """wrong: what is wrong with the result, empty where it is verified; seconds: of the timed section; mops:
    million operations a second; memory: bytes of the largest rank."""

    wrong: str
    seconds: float
    mops: float
    memory: int


def main() -> int:
    asked = arguments()
    machine = prepare_machine(LocalHost(), Silent())
    ratios: list[list[float]] = []
    wrong: list[str] = []
    print(f"class {asked.size}, {asked.rounds} rounds")
    print(HEAD + (HEAD_REFERENCE if asked.reference else ""))
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        for case in cases(asked, len(machine.cpus)):
            both = both_sides(machine, Path(scratch), case, asked.rounds)
            wrong += [
                f"{case.kernel} on {case.ranks} ranks: {r.wrong}" for runs in both for r in runs if r.wrong
            ]
            line = f"{case.kernel + '.' + case.size:<8}{case.ranks:>5}  {side(both[0])}"
            if len(both) == 2:
                mops = [[r.mops for r in runs] for runs in both]
                ratios.append([math.log(x / y) for x, y in zip(*mops, strict=True)])
                line += f"  | {side(both[1])}  {shown(ratio(*mops))}"
            elif asked.reference:
                line += f"  | no binary for {case.ranks} ranks"
            print(line, flush=True)
    if ratios:
        print(f"geometric mean of {len(ratios)} ratios: {shown(geometric_mean(ratios))}, n {asked.rounds}")
    for text in dict.fromkeys(wrong):
        print(f"NOT VERIFIED: {text}", file=sys.stderr)
    return 1 if wrong else 0


def arguments() -> argparse.Namespace:
    own = [name for name in kernel_names() if "class" in parameters(name)]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.npb")
    parser.add_argument("--class", dest="size", default="A", choices=CLASSES)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--kernels", nargs="+", default=own, choices=own)
    parser.add_argument("--reference", type=Path, help="directory of NPB's binaries: cg.A.x or cg.A.2")
    parser.add_argument("--rounds", type=int, help="6 with a reference, else 1")
    asked = parser.parse_args()
    asked.rounds = asked.rounds or (6 if asked.reference else 1)
    return asked


def cases(asked: argparse.Namespace, cpus: int) -> list[Case]:
    """Each kernel on the numbers of ranks that its definition and this machine allow."""
    out = []
    for name in asked.kernels:
        program = None
        if asked.reference:
            program = find_program(asked.reference.absolute(), Benchmark(name), Size(asked.size))
        for ranks in asked.ranks:
            if kernel(name).ranks.allow(ranks) and ranks <= cpus:
                there = program if program is not None and program.misfit(ranks) is None else None
                out.append(Case(kernel=name, size=asked.size, ranks=ranks, program=there))
    return out


def both_sides(machine: Machine, scratch: Path, case: Case, rounds: int) -> list[list[Run]]:
    """Our runs, and the reference's where it has the case, round by round in random order."""
    what = {"ours": lambda: ours(machine, scratch, case)}
    program = case.program
    if program is not None:
        what["theirs"] = lambda: theirs(machine, scratch, case, program)
    return list(interleaved(what, rounds).values())


def ours(machine: Machine, scratch: Path, case: Case) -> Run:
    workload = KernelWorkload(name=case.kernel, kernel=case.kernel, params={"class": case.size})
    spec = argument(workload, ranks=case.ranks, llc_bytes=machine.llc, extra=0.0)
    # nm-micro ends with 1 where the verification failed.
    program = (machine.tools / "nm-micro", "--once", spec)
    done, reports = launched(machine, scratch, case.ranks, program, failed_well='"event":"verify"')
    lines = [parse_line(text) for text in done.stdout.splitlines() if text.startswith("{")]
    (found,) = (line for line in lines if isinstance(line, VerifyLine))
    wrong = "" if found.ok else f"expected {dict(found.expected)}, found {dict(found.found)}"
    mops = found.work / found.seconds / 1e6
    return Run(wrong=wrong, seconds=found.seconds, mops=mops, memory=most(reports))


def theirs(machine: Machine, scratch: Path, case: Case, program: Program) -> Run:
    workload = npb_command(case.kernel, program, env={}, time_limit=LIMIT)
    done, reports = launched(machine, scratch, case.ranks, workload.argv_on(case.ranks))
    rows = {r.metric: r for r in parse(workload, done.stdout, wall=1.0, user=None, system=None, max_rss=None)}
    rate, seconds = rows["rate"], rows["seconds"]
    if not rate.values:
        raise SystemExit(f"{workload.argv[0]}: {rate.reason}")
    return Run(
        wrong="" if rate.verification["ok"] else f"the reference: {rate.reason}",
        seconds=seconds.values[0] if seconds.values else 0.0,  # it prints hundredths, in class S none
        mops=rate.values[0] / 1e6,
        memory=most(reports),
    )


def most(reports: Sequence[RankReport]) -> int:
    """Bytes of the largest rank."""
    return max(r.max_rss for r in reports)


def side(runs: Sequence[Run]) -> str:
    """One side of a line: medians of the runs."""
    verified = "NO" if any(r.wrong for r in runs) else "yes"
    seconds, mops = (statistics.median(v) for v in zip(*((r.seconds, r.mops) for r in runs), strict=True))
    return f"{verified:<9}{seconds:>9.3f}{mops:>10.1f}{max(r.memory for r in runs) / 2**20:>9.1f}"


def geometric_mean(ratios: Sequence[Sequence[float]]) -> Interval:
    """Over all cases, round by round. ratios: logarithms by case and round."""
    found = interval([statistics.fmean(one_round) for one_round in zip(*ratios, strict=True)])
    return Interval(centre=math.exp(found.centre), low=math.exp(found.low), high=math.exp(found.high))


if __name__ == "__main__":
    sys.exit(main())

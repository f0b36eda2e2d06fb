"""NAS kernels of nm-micro, each verified, for several values of -march; optionally compared with NPB itself.

By hand: python -m benchmarks.npb [--class A] [--ranks 1 2] [--kernels cg mg] [--rounds 1]
[--march native x86-64-v3] [--reference NPB3.4-MPI/bin] [--reference x86-64-v3=NPB3.4-MPI-v3/bin].

Without --march, nm-micro is compiled for this machine and, if its processor has AVX-512, also without
AVX-512. Every run is a fresh launch. MPI options, pinning and the program beside each rank are the same on
both sides; -march should be. In each round all sides run once, in random order. Ratios are Mop/s ours /
reference, pair by pair, with the exact signed-rank interval, which is finite from six rounds on. Memory is
the largest of all ranks and runs. The exit status is 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.launched import launched
from benchmarks.paired import interleaved, interval, ratio, shown

from nearmetal.environments import Tools
from nearmetal.host import LocalHost
from nearmetal.host.facts.provenance import cpu_summary, provenance
from nearmetal.host.runtime import cache_directory
from nearmetal.model.result import Interval
from nearmetal.model.study import KernelWorkload
from nearmetal.node.machine import Machine, prepare_machine
from nearmetal.node.progress import NullProgress
from nearmetal.study_file.workloads.npb import Benchmark, NasProgram, Size, find_program, npb_command
from nearmetal.workloads.build import build_tools, compiler_flags
from nearmetal.workloads.command import ResourceUse, parse
from nearmetal.workloads.kernels.contract import CLASSES
from nearmetal.workloads.kernels.registry import argument, kernel, kernel_names, parameters
from nearmetal.workloads.protocol import RankReport, VerifyLine, parse_line

LIMIT = 3600.0
NATIVE, WITHOUT_AVX512 = "native", "x86-64-v3"
HEAD = f"{'kernel':<8}{'ranks':>5}  {'march':<11}{'verified':<9}{'seconds':>9}{'Mop/s':>10}{'MiB/rank':>9}"
HEAD_REFERENCE = f"  | {'verified':<9}{'seconds':>9}{'Mop/s':>10}{'MiB/rank':>9}  ours / reference"
#: What NPB prints of its compile options.
MARCH = re.compile(r"^ *[CF]FLAGS *=.*-march=(\S+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kernel to run.

    program: path of the reference's program; None if there is none.
    tools: nearmetal's programs, compiled for `march`.
    """

    kernel: str
    size: str
    ranks: int
    march: str
    tools: Tools
    program: NasProgram | None


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of one side.

    wrong: error in the result; empty if it is verified.
    seconds: duration of the timed section.
    mops: million operations per second.
    memory: bytes of the largest rank.
    march: the -march of the program, if it reports it.
    """

    wrong: str
    seconds: float
    mops: float
    memory: int
    march: str


def main() -> int:
    asked = arguments()
    machine = prepare_machine(LocalHost(), NullProgress())
    marches = asked.march or default_marches(machine.hardware.cpu_flags)
    references = {march: reference_of(asked.reference, march) for march in marches}
    print(machine_line(machine))
    tools = {march: tools_for(machine, march) for march in marches}
    print(f"class {asked.size}, {asked.rounds} rounds")
    print(HEAD + (HEAD_REFERENCE if asked.reference else ""))
    ratios: dict[str, list[list[float]]] = {march: [] for march in marches}
    notes: list[str] = []
    verified = True
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        for name, ranks in sizes(asked, len(machine.cpus)):
            cases = [case_of(name, asked.size, ranks, m, tools[m], references[m]) for m in marches]
            sides = all_sides(machine, Path(scratch), cases, asked.rounds)
            for case, (own, theirs) in zip(cases, sides, strict=True):
                line = f"{name + '.' + asked.size:<8}{ranks:>5}  {case.march:<11}{side(own)}"
                if theirs:
                    mops = [r.mops for r in own], [r.mops for r in theirs]
                    ratios[case.march].append([math.log(x / y) for x, y in zip(*mops, strict=True)])
                    line += f"  | {side(theirs)}  {shown(ratio(*mops))}"
                elif references[case.march]:
                    line += f"  | no binary for {ranks} ranks"
                print(line, flush=True)
                notes += notes_on(case, own, theirs)
                verified = verified and not any(r.wrong for r in own + theirs)
    for march, logarithms in ratios.items():
        if logarithms:
            mean = shown(geometric_mean(logarithms))
            print(f"geometric mean of {len(logarithms)} ratios, {march}: {mean}, n {asked.rounds}")
    for text in dict.fromkeys(notes):
        print(text, file=sys.stderr)
    return 0 if verified else 1


def notes_on(case: Case, own: Sequence[Run], theirs: Sequence[Run]) -> list[str]:
    """Return remarks on why a line of the table is wrong or unfair."""
    what = f"{case.kernel} for {case.march} on {case.ranks} ranks"
    notes = [f"NOT VERIFIED: {what}: {run.wrong}" for run in (*own, *theirs) if run.wrong]
    others = {run.march for run in theirs} - {case.march, ""}
    return notes + [f"UNFAIR: {case.march} against a reference compiled for {other}" for other in others]


def arguments() -> argparse.Namespace:
    own = [name for name in kernel_names() if "class" in parameters(name)]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.npb")
    parser.add_argument("--class", dest="size", default="A", choices=CLASSES)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--kernels", nargs="+", default=own, choices=own)
    parser.add_argument(
        "--march", nargs="+", action="extend", help="values of GCC's -march to compile our programs with"
    )
    parser.add_argument(
        "--reference",
        nargs="+",
        action="extend",
        default=[],
        metavar="[MARCH=]DIR",
        help="directory of NPB's binaries (cg.A.x or cg.A.2), for one value of --march or for all",
    )
    parser.add_argument("--rounds", type=int, help="6 with a reference, else 1")
    asked = parser.parse_args()
    asked.rounds = asked.rounds or (6 if asked.reference else 1)
    return asked


def default_marches(cpu_flags: frozenset[str]) -> list[str]:
    """Return the values of -march to compare: native and, if the processor has AVX-512, one without it."""
    return [NATIVE, WITHOUT_AVX512] if "avx512f" in cpu_flags else [NATIVE]


def reference_of(given: Sequence[str], march: str) -> Path | None:
    """Return the directory of the reference that was given for this -march, or else for all; None if there is
    none."""
    parts = (re.fullmatch(r"(?:([\w.-]+)=)?(.+)", text) for text in given)
    named = {part[1]: part[2] for part in parts if part}
    directory = named.get(march, named.get(None))
    return None if directory is None else Path(directory).absolute()


def machine_line(machine: Machine) -> str:
    """Return a description of the machine, with the vector extensions on which -march=native depends."""
    flags = machine.hardware.cpu_flags
    extensions = [f"{'' if name in flags else 'no '}{name}" for name in ("avx2", "avx512f")]
    versions = {"versions": {"mpi": machine.built.mpi}}
    return ", ".join([cpu_summary(provenance(machine.host) | versions), machine.built.compiler, *extensions])


def tools_for(machine: Machine, march: str) -> Tools:
    """Compile nearmetal's programs for one -march. Each value has its own entry in the cache."""
    if march == NATIVE:
        return machine.tools
    built = build_tools(
        machine.host,
        cache_directory(),
        progress=print,
        mpicc=machine.mpi.mpicc,
        flags=compiler_flags(march),
    )
    return Tools(directory=built.directory)


def sizes(asked: argparse.Namespace, cpus: int) -> list[tuple[str, int]]:
    """Return each kernel with each number of ranks that its definition and this machine allow."""
    return [
        (name, ranks)
        for name in asked.kernels
        for ranks in asked.ranks
        if kernel(name).ranks.allow(ranks) and ranks <= cpus
    ]


def case_of(name: str, size: str, ranks: int, march: str, tools: Tools, reference: Path | None) -> Case:
    program = find_program(reference, Benchmark(name), Size(size)) if reference else None
    if program is not None and program.misfit(ranks) is not None:
        program = None
    return Case(kernel=name, size=size, ranks=ranks, march=march, tools=tools, program=program)


def all_sides(
    machine: Machine, scratch: Path, cases: Sequence[Case], rounds: int
) -> list[tuple[list[Run], list[Run]]]:
    """Run both sides of all cases once in each round, in random order.

    Return for each case the runs of nm-micro and those of the reference, which are empty if it has no
    program.
    """
    what: dict[str, Callable[[], Run]] = {}
    for case in cases:
        what[f"ours {case.march}"] = partial(ours, machine, scratch, case)
        if case.program is not None:
            what[f"theirs {case.march}"] = partial(theirs, machine, scratch, case, case.program)
    found = interleaved(what, rounds)
    return [(found[f"ours {c.march}"], found.get(f"theirs {c.march}", [])) for c in cases]


def ours(machine: Machine, scratch: Path, case: Case) -> Run:
    workload = KernelWorkload(name=case.kernel, kernel=case.kernel, params={"class": case.size})
    spec = argument(workload, ranks=case.ranks, llc_bytes=machine.llc, extra=0.0)
    # nm-micro ends with 1 where the verification failed.
    program = (case.tools / "nm-micro", "--once", spec)
    done, reports = launched(machine, scratch, case.ranks, program, failed_well='"event":"verify"')
    lines = [parse_line(text) for text in done.stdout.splitlines() if text.startswith("{")]
    (found,) = (line for line in lines if isinstance(line, VerifyLine))
    wrong = "" if found.ok else f"expected {dict(found.expected)}, found {dict(found.found)}"
    mops = found.work / found.seconds / 1e6
    return Run(wrong=wrong, seconds=found.seconds, mops=mops, memory=most(reports), march=case.march)


def theirs(machine: Machine, scratch: Path, case: Case, program: NasProgram) -> Run:
    workload = npb_command(case.kernel, program, env={}, time_limit=LIMIT)
    done, reports = launched(machine, scratch, case.ranks, workload.argv_on(case.ranks))
    rows = {r.metric: r for r in parse(workload, done.stdout, ResourceUse(wall=1.0))}
    rate, seconds = rows["rate"], rows["seconds"]
    if not rate.values:
        raise SystemExit(f"{workload.argv[0]}: {rate.reason}")
    compiled = MARCH.search(done.stdout)
    return Run(
        wrong="" if rate.verification["ok"] else f"the reference: {rate.reason}",
        seconds=seconds.values[0] if seconds.values else 0.0,  # it prints hundredths, in class S none
        mops=rate.values[0] / 1e6,
        memory=most(reports),
        march=compiled[1] if compiled else "",
    )


def most(reports: Sequence[RankReport]) -> int:
    """Return the bytes of the largest rank."""
    return max(r.max_rss for r in reports)


def side(runs: Sequence[Run]) -> str:
    """Return the columns of one side in the table: medians of its runs."""
    verified = "NO" if any(r.wrong for r in runs) else "yes"
    seconds, mops = (statistics.median(v) for v in zip(*((r.seconds, r.mops) for r in runs), strict=True))
    return f"{verified:<9}{seconds:>9.3f}{mops:>10.1f}{max(r.memory for r in runs) / 2**20:>9.1f}"


def geometric_mean(ratios: Sequence[Sequence[float]]) -> Interval:
    """Return the geometric mean over all cases, with its interval over the rounds.

    ratios: logarithms of ratios, by case and round.
    """
    found = interval([statistics.fmean(one_round) for one_round in zip(*ratios, strict=True)])
    return Interval(centre=math.exp(found.centre), low=math.exp(found.low), high=math.exp(found.high))


if __name__ == "__main__":
    sys.exit(main())

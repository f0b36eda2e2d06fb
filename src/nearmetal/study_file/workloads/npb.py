"""A user's own NAS Parallel Benchmarks as commands: finds the binary, parses its output, and checks the
number of ranks.

The output has the same form from NPB 2 to 3.4, in Fortran and C: a summary of `name = value` lines at the
end. Up to NPB 3.3, the number of ranks is fixed at compile time and is part of the file's name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ...model.keys import SOME_TEXT, key, one_of
from ...model.study import RANKS, Arm, Better, CommandWorkload, MetricSpec, VerifySpec
from ...model.workloads.kernel import Ranks
from ...model.workloads.programs import ENVIRONMENT, TIME_LIMIT


class Benchmark(StrEnum):
    """The eight benchmarks of the MPI version."""

    EP = "ep"
    IS = "is"
    CG = "cg"
    MG = "mg"
    FT = "ft"
    LU = "lu"
    BT = "bt"
    SP = "sp"


class Size(StrEnum):
    """The problem classes of the benchmarks."""

    S = "S"
    W = "W"
    A = "A"
    B = "B"
    C = "C"
    D = "D"
    E = "E"


@dataclass(frozen=True, kw_only=True)
class NpbBinary:
    """The user's binary that a workload runs."""

    bin: str = field(
        metadata=key(
            SOME_TEXT,
            "directory of the binaries, seen from where nearmetal is started: cg.A.x, or one for each"
            " number of ranks, as in NPB 3.3 and before: cg.A.2",
            "./NPB3.4-MPI/bin",
        )
    )
    benchmark: Benchmark = field(metadata=key(one_of(Benchmark), "which benchmark", "cg"))
    size: Size = field(metadata=key(one_of(Size), "class of the problem", "A", name="class"))


@dataclass(frozen=True, kw_only=True)
class NpbEntry:
    """A workload of a study file that runs one of the NAS Parallel Benchmarks, built by the user."""

    npb: NpbBinary = field(
        metadata=key(
            NpbBinary,
            "one of the NAS Parallel Benchmarks (MPI) as you built it: rate and seconds as printed;"
            " a run that does not verify itself counts as failed",
            {"bin": "./NPB3.4-MPI/bin", "benchmark": "cg", "class": "A"},
        )
    )
    env: Mapping[str, str] = field(default_factory=dict, metadata=ENVIRONMENT)
    time_limit: float = field(default=CommandWorkload.time_limit, metadata=TIME_LIMIT)


_SQUARE = (Benchmark.BT, Benchmark.SP)
_RATE = MetricSpec(
    name="rate", unit="op/s", better=Better.HIGHER, regex=r"^ *Mop/s total *= *(\S+)", scale=1e6
)
_SECONDS = MetricSpec(name="seconds", unit="s", better=Better.LOWER, regex=r"^ *Time in seconds *= *(\S+)")
_VERIFY = VerifySpec(regex=r"^ *Verification *= *(\S.*?) *$", expected="SUCCESSFUL")


@dataclass(frozen=True, kw_only=True)
class NasProgram:
    """The binary of one benchmark and class.

    path: path of the binary, with a placeholder for the number of ranks if there is one binary for each.
    built: numbers of ranks with a binary; None if one binary runs on any number of ranks.
    """

    path: Path
    benchmark: Benchmark
    built: frozenset[int] | None

    def misfit(self, ranks: int) -> str | None:
        """Return why the program cannot run on this number of ranks; None if it can."""
        allowed = ranks_of(self.benchmark)
        if not allowed.allow(ranks):
            return f"{self.benchmark} runs on {allowed} ranks, not on {ranks}"
        if self.built is not None and ranks not in self.built:
            name, *there = (self.path.name.replace(RANKS, str(n)) for n in (ranks, *sorted(self.built)))
            return f"no {name} in {self.path.parent}; of this class it holds {', '.join(there)}"
        return None


def ranks_of(benchmark: Benchmark) -> Ranks:
    """Return the numbers of ranks that both the benchmark and its reference implementation support."""
    if benchmark is Benchmark.EP:
        return Ranks.ANY
    return Ranks.SQUARES if benchmark in _SQUARE else Ranks.POWERS


def find_program(directory: Path, benchmark: Benchmark, size: Size) -> NasProgram | None:
    """Find cg.A.x, or else cg.A.<ranks>, in upper or lower case; None if the directory contains neither.

    Raises OSError if the directory cannot be read.
    """
    wanted = re.compile(rf"({benchmark}\.{size})\.(x|[1-9][0-9]{{0,5}})", re.IGNORECASE)
    files = [path for path in directory.iterdir() if path.is_file()]  # trusted: only names are read
    matches = [m for path in files if (m := wanted.fullmatch(path.name))]
    # If there are several spellings, prefer the usual one.
    matches.sort(key=lambda m: (m[1] != f"{benchmark}.{size}", m[0]))
    for match in matches:
        if match[2] in "xX":
            return NasProgram(path=directory / match[0], benchmark=benchmark, built=None)
    if not matches:
        return None
    stem = matches[0][1]
    built = frozenset(int(m[2]) for m in matches if m[1] == stem)
    return NasProgram(path=directory / f"{stem}.{RANKS}", benchmark=benchmark, built=built)


def npb_command(
    name: str, program: NasProgram, *, env: Mapping[str, str], time_limit: float
) -> CommandWorkload:
    """Return the binary as a workload with this name.

    time_limit: seconds.
    """
    return CommandWorkload(
        name=name,
        argv=(str(program.path),),
        mpi=True,
        env=env,
        metrics=(_RATE, _SECONDS),
        verify=_VERIFY,
        time_limit=time_limit,
    )


def misfits(name: str, program: NasProgram, arms: Iterable[Arm]) -> tuple[str, ...]:
    """Return the reasons why a workload cannot run on some of its arms, each with the placements that it
    concerns."""
    found: dict[str, dict[str, None]] = {}
    for arm in arms:
        what = program.misfit(arm.placement.ranks) if arm.environment.takes(name) else None
        if what is not None:
            found.setdefault(what, {})[arm.placement.name] = None
    return tuple(f"{what} (placement {', '.join(places)})" for what, places in found.items())

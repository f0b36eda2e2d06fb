"""A user's own NAS Parallel Benchmarks as commands: which binary, what it prints, on how many ranks it runs.

The output is the same from NPB 2 to 3.4, Fortran and C: a summary of `name = value` lines at the end. Up to
NPB 3.3 the number of ranks was compiled in and is part of the file's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..model.ranks import Ranks
from ..model.study import RANKS, Arm, Better, CommandWorkload, MetricSpec, VerifySpec


class Benchmark(StrEnum):
    """The eight of the MPI version."""

    EP = "ep"
    IS = "is"
    CG = "cg"
    MG = "mg"
    FT = "ft"
    LU = "lu"
    BT = "bt"
    SP = "sp"


class Size(StrEnum):
    """Their classes."""

    S = "S"
    W = "W"
    A = "A"
    B = "B"
    C = "C"
    D = "D"
    E = "E"


_SQUARE = (Benchmark.BT, Benchmark.SP)
_RATE = MetricSpec(
    name="rate", unit="op/s", better=Better.HIGHER, regex=r"^ *Mop/s total *= *(\S+)", scale=1e6
)
_SECONDS = MetricSpec(name="seconds", unit="s", better=Better.LOWER, regex=r"^ *Time in seconds *= *(\S+)")
_VERIFY = VerifySpec(regex=r"^ *Verification *= *(\S.*?) *$", expected="SUCCESSFUL")


@dataclass(frozen=True, kw_only=True)
class Program:
    """The binary of one benchmark and class.

    path: with the placeholder for the number of ranks where there is one binary for each.
    built: for how many ranks there is one, None where the same runs on all.
    """

    path: Path
    benchmark: Benchmark
    built: frozenset[int] | None

    def misfit(self, ranks: int) -> str | None:
        """Why it does not run on so many ranks, or None."""
        allowed = ranks_of(self.benchmark)
        if not allowed.allow(ranks):
            return f"{self.benchmark} runs on {allowed} ranks, not on {ranks}"
        if self.built is not None and ranks not in self.built:
            name, *there = (self.path.name.replace(RANKS, str(n)) for n in (ranks, *sorted(self.built)))
            return f"no {name} in {self.path.parent}; of this class it holds {', '.join(there)}"
        return None


def ranks_of(benchmark: Benchmark) -> Ranks:
    """The ranks that benchmark and reference implementation have in common."""
    if benchmark is Benchmark.EP:
        return Ranks.ANY
    return Ranks.SQUARES if benchmark in _SQUARE else Ranks.POWERS


def find_program(directory: Path, benchmark: Benchmark, size: Size) -> Program | None:
    """cg.A.x, else cg.A.<ranks>, in letters of either case; None where the directory holds neither. Raises
    OSError where it cannot be read."""
    wanted = re.compile(rf"({benchmark}\.{size})\.(x|[1-9][0-9]{{0,5}})", re.IGNORECASE)
    matches = [m for path in directory.iterdir() if path.is_file() and (m := wanted.fullmatch(path.name))]
    # Of several spellings the usual one.
    matches.sort(key=lambda m: (m[1] != f"{benchmark}.{size}", m[0]))
    for match in matches:
        if match[2] in "xX":
            return Program(path=directory / match[0], benchmark=benchmark, built=None)
    if not matches:
        return None
    stem = matches[0][1]
    built = frozenset(int(m[2]) for m in matches if m[1] == stem)
    return Program(path=directory / f"{stem}.{RANKS}", benchmark=benchmark, built=built)


def npb_command(name: str, program: Program, *, env: Mapping[str, str], time_limit: float) -> CommandWorkload:
    """The binary as a workload of that name; time_limit: seconds."""
    return CommandWorkload(
        name=name,
        argv=(str(program.path),),
        mpi=True,
        env=env,
        metrics=(_RATE, _SECONDS),
        verify=_VERIFY,
        time_limit=time_limit,
    )


def misfits(name: str, program: Program, arms: Iterable[Arm]) -> tuple[str, ...]:
    """Why the workload of that name does not run on the ranks of the arms that take it, one text for each
    number of ranks."""
    found: dict[str, dict[str, None]] = {}
    for arm in arms:
        what = program.misfit(arm.placement.ranks) if arm.environment.takes(name) else None
        if what is not None:
            found.setdefault(what, {})[arm.placement.name] = None
    return tuple(f"{what} (placement {', '.join(places)})" for what, places in found.items())

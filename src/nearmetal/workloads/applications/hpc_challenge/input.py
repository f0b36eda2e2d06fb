"""The input of HPCC and HPL: problem size, process grid, and the text of hpccinf.txt and HPL.dat."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...parameter import AUTO, Choices, Kind, Parameter
from ..contract import Place
from . import blas

DOUBLE = 8  # bytes
# Most values of one kind in an input file of HPL (HPL_MAX_PARAM).
MOST_BLOCKS = 20
GIB = 1 << 30
_LEAST_N, _STEP_N = 100, 100
USUAL_MEMORY = 512 << 20
"""For estimates: bytes of memory for each CPU if the workload does not set it."""

PARAMETERS = (
    Parameter(
        "n",
        Kind.WHOLE,
        2000,
        "order of HPL's matrix, from which every size follows; auto: by memory and share",
        auto=True,
        least=_LEAST_N,
        most=10_000_000,
    ),
    Parameter(
        "memory", Kind.BYTES, AUTO, "for n auto, of each CPU; auto: what the instances may use", least=1 << 20
    ),
    Parameter(
        "share", Kind.SHARE, 0.8, "for n auto: how much of that memory the matrix takes", least=0.01, most=1
    ),
    Parameter("p", Kind.WHOLE, AUTO, "rows of the process grid; auto: the most square grid", most=1 << 20),
    Parameter("q", Kind.WHOLE, AUTO, "its columns; auto: ranks / p", most=1 << 20),
)


@dataclass(frozen=True, kw_only=True)
class Input:
    """Problem size and process grid.

    n: order of the matrix.
    p, q: rows and columns of the process grid.
    """

    n: int
    blocks: tuple[int, ...]
    p: int
    q: int

    def text(self, title: str) -> str:
        """Return hpccinf.txt, whose first 31 lines are those of HPL.dat.

        The settings of the algorithm are the defaults in HPL's own file.
        """
        blocks = " ".join(map(str, self.blocks))
        lines = (
            (title, ""),
            ("nearmetal", ""),
            ("HPL.out", "output file name"),
            ("6", "device out: 6 is stdout"),
            ("1", "problem sizes"),
            (str(self.n), "N"),
            (str(len(self.blocks)), "block sizes"),
            (blocks, "NB"),
            ("0", "process mapping: by rows"),
            ("1", "process grids"),
            (str(self.p), "P"),
            (str(self.q), "Q"),
            ("16.0", "threshold of the residual"),
            ("1", "panel factorisations"),
            ("2", "right-looking"),
            ("1", "recursive stopping criteria"),
            ("4", "NBMIN"),
            ("1", "panels in a recursion"),
            ("2", "NDIV"),
            ("1", "recursive panel factorisations"),
            ("1", "Crout"),
            ("1", "broadcasts"),
            ("1", "modified ring"),
            ("1", "look-ahead depths"),
            ("1", "depth"),
            ("2", "swapping: mixed"),
            ("64", "threshold of swapping"),
            ("0", "L1 transposed"),
            ("0", "U transposed"),
            ("1", "equilibration"),
            ("8", "alignment in doubles"),
            ("---", "the rest is HPCC's"),
            ("0", "more sizes for PTRANS"),
            ("0", ""),
            ("0", "more block sizes for PTRANS"),
            ("0", ""),
        )
        return "".join(f"{value} {what}".rstrip() + "\n" for value, what in lines)


def problem_size(total_bytes: float, share: float) -> int:
    """Return N = sqrt(n D U), rounded down to hundreds: 10300 for one CPU with 1 GiB, 58600
    for 32.

    Each of the n nodes has memory for D doubles, and user processes may use the share U = 0.8. Published
    studies of virtual clusters use this formula.

    total_bytes: n x D x 8; for virtual machines those studies use 1 GiB x CPUs x virtual nodes.
    """
    n = math.isqrt(int(total_bytes / DOUBLE * share))
    return max(_LEAST_N, n - n % _STEP_N)


def total_memory(choices: Choices, place: Place) -> int:
    """Return the bytes that `n: auto` uses: the memory per CPU of the workload times the CPUs, or else the
    memory of all instances."""
    each = choices.whole("memory")
    return place.nodes * place.instances * place.memory if each is None else each * place.ranks


def grid(ranks: int, p: int | None, q: int | None) -> tuple[int, int]:
    """Return rows and columns of the grid. If neither is given, it is the most square grid with rows <=
    columns, as HPL's guide advises."""
    if p is None and q is None:
        p = next(rows for rows in range(math.isqrt(ranks), 0, -1) if ranks % rows == 0)
    if p is None:
        assert q is not None
        return max(1, ranks // q), q
    return p, q if q is not None else max(1, ranks // p)


def input_of(choices: Choices, place: Place, blocks: tuple[int, ...]) -> Input:
    n = choices.whole("n") or problem_size(total_memory(choices, place), choices.real("share"))
    p, q = grid(place.ranks, choices.whole("p"), choices.whole("q"))
    return Input(n=n, blocks=blocks, p=p, q=q)


def usual_order(choices: Choices, ranks: int) -> int:
    """Return the order of the matrix for estimates, when the memory of the instances is not known yet.

    It is `n` if the workload sets it; otherwise it follows from the `memory` of each CPU, or USUAL_MEMORY.
    """
    each = choices.whole("memory") or USUAL_MEMORY
    return choices.whole("n") or problem_size(each * ranks, choices.real("share"))


def solution_seconds(choices: Choices, ranks: int) -> float:
    """Return the estimated seconds in which HPL solves one system, on bare metal."""
    return 2 / 3 * usual_order(choices, ranks) ** 3 / (blas.RATES[blas.chosen(choices)] * ranks)


def misfit(given: Input, place: Place) -> str | None:
    """Return why this input cannot run on this placement; None if it can."""
    if given.p * given.q > place.ranks:
        grid = f"{given.p} x {given.q}"
        return f"a grid of {grid} needs {given.p * given.q} ranks, the placement has {place.ranks}"
    needed, there = given.n**2 * DOUBLE, place.nodes * place.instances * place.memory
    if needed > there:
        return f"n {given.n} needs {needed / GIB:.1f} GiB, the instances may use {there / GIB:.1f} GiB"
    return None

"""HPCC, the HPC Challenge benchmark (Luszczek and others): Debian's package, all its parts in one run.

A size is given, or follows from the memory: hpc_challenge.input.problem_size.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model.record import NEEDS_TWO_RANKS, JsonValue
from ...model.study import Better
from ..numbers import number
from ..parameter import Choices, Kind, Parameter
from ..program_output import ending
from .contract import Application, Invocation, Needs, Output, Parsed, Place, metrics_of
from .hpc_challenge import blas
from .hpc_challenge import input as hpcc_input
from .hpc_challenge.output import faults, hpl_fault, section, solved, summary

INPUT, OUTPUT = "hpccinf.txt", "hpccoutf.txt"
FIXED_SECONDS, MESSAGE_SECONDS, ELEMENT_SECONDS = 0.1, 0.3, 4e-7
"""For estimates, without HPL: seconds of all other parts on one rank; further seconds for messages if there
are several ranks; further seconds for each element of a rank's part of the matrix."""


@dataclass(frozen=True, kw_only=True)
class _Figure:
    """A metric and its key in HPCC's summary.

    scale: number of base units in one printed unit. HPCC's G is 10^9, also for bytes. One update counts as
        one operation.
    """

    name: str
    key: str
    unit: str
    scale: float = 1e9
    better: Better = Better.HIGHER


# G: all ranks together. EP (HPCC: Star): mean of all ranks at once, without communication. Single: one rank,
# the others idle.
_FIGURES = (
    _Figure(name="G-HPL", key="HPL_Tflops", unit="FLOP/s", scale=1e12),
    _Figure(name="G-PTRANS", key="PTRANS_GBs", unit="B/s"),
    _Figure(name="G-RandomAccess", key="MPIRandomAccess_GUPs", unit="op/s"),
    _Figure(name="G-FFTE", key="MPIFFT_Gflops", unit="FLOP/s"),
    _Figure(name="EP-STREAM-copy", key="StarSTREAM_Copy", unit="B/s"),
    _Figure(name="EP-STREAM-scale", key="StarSTREAM_Scale", unit="B/s"),
    _Figure(name="EP-STREAM-add", key="StarSTREAM_Add", unit="B/s"),
    _Figure(name="EP-STREAM-triad", key="StarSTREAM_Triad", unit="B/s"),
    _Figure(name="EP-DGEMM", key="StarDGEMM_Gflops", unit="FLOP/s"),
    _Figure(name="Single-STREAM-triad", key="SingleSTREAM_Triad", unit="B/s"),
    _Figure(name="Single-DGEMM", key="SingleDGEMM_Gflops", unit="FLOP/s"),
    _Figure(name="RandomRing-bandwidth", key="RandomlyOrderedRingBandwidth_GBytes", unit="B/s"),
    _Figure(
        name="RandomRing-latency",
        key="RandomlyOrderedRingLatency_usec",
        unit="s",
        scale=1e-6,
        better=Better.LOWER,
    ),
)
# Keys of the summary with the sizes of the parts.
_SIZES = ("DGEMM_N", "PTRANS_n", "MPIRandomAccess_N", "STREAM_VectorSize", "FFT_N", "MPIFFT_N")


class Hpcc(Application):
    name = "hpcc"
    doc = "HPC Challenge: HPL, PTRANS, RandomAccess, FFT, STREAM, DGEMM, random ring"
    parameters: tuple[Parameter, ...] = (
        *hpcc_input.PARAMETERS,
        Parameter("nb", Kind.WHOLE, 128, "block size of HPL and PTRANS", most=100_000),
        *blas.PARAMETERS,
    )

    def needs(self, choices: Choices) -> Needs:
        return needs_of("hpcc", choices)

    def problem(self, choices: Choices, place: Place) -> str | None:
        return hpcc_input.misfit(_input(choices, place), place)

    def seconds(self, choices: Choices, ranks: int = 1) -> float:
        return parts_seconds(choices, ranks) + hpcc_input.solution_seconds(choices, ranks)

    def messages(self, choices: Choices, ranks: int = 1) -> float:
        return message_seconds(ranks)

    def vectorised(self, choices: Choices, ranks: int = 1) -> float:
        return hpcc_input.solution_seconds(choices, ranks) if blas.tuned(choices) else 0.0

    def command(self, choices: Choices, place: Place) -> Invocation:
        return Invocation(
            argv=("hpcc",),
            mpi=True,
            env=blas.environment(choices, place.cpu_flags),
            files={INPUT: _input(choices, place).text("HPC Challenge")},
            outputs=(OUTPUT,),
        )

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        return tuple((f.name, f.unit, f.better) for f in _FIGURES)

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        text = output.files.get(OUTPUT, "")
        results = summary(text)
        wrong = _wrong(choices, place, output, text, results)
        return Parsed(
            metrics=metrics_of(
                self.metrics(choices), _values(results or {}), lambda name: _missing(name, results, place)
            ),
            ok=not wrong,
            expected="HPCC's own checks passed, with the requested BLAS",
            found="; ".join(wrong) or "HPCC's own checks passed, with the requested BLAS",
            facts=_facts(choices, place, output, results or {}),
        )


def parts_seconds(choices: Choices, ranks: int) -> float:
    """Return the estimated seconds of all parts of HPCC but HPL, on bare metal."""
    elements = hpcc_input.usual_order(choices, ranks) ** 2 / ranks
    return FIXED_SECONDS + message_seconds(ranks) + elements * ELEMENT_SECONDS


def message_seconds(ranks: int) -> float:
    """Return the estimated seconds in which the parts of HPCC exchange messages through shared memory."""
    return MESSAGE_SECONDS if ranks > 1 else 0.0


def needs_of(program: str, choices: Choices) -> Needs:
    """Return the needs of HPCC: the program and the BLAS that it loads, with their packages."""
    chosen = blas.chosen(choices)
    library, package = blas.library(chosen), blas.package(chosen)
    return Needs(
        programs=(program, *([str(library)] if library is not None else [])),
        packages=("hpcc", *([package] if package is not None else [])),
    )


def input_facts(choices: Choices, place: Place, given: hpcc_input.Input) -> dict[str, JsonValue]:
    """Return the size of the problem for the record: `n`, `nb`, `grid` as used, and two sizes for comparison.

    n_by_memory: problem size that follows from the memory that all instances may use.
    n_by_cpus: problem size that follows from the workload's `memory` for each CPU; None if it is not set.
    """
    share, cpus = choices.real("share"), choices.whole("memory")
    by_cpus = None if cpus is None else hpcc_input.problem_size(cpus * place.ranks, share)
    return {
        "n": given.n,
        "nb": list(given.blocks),
        "grid": f"{given.p}x{given.q}",
        "n_by_memory": hpcc_input.problem_size(place.nodes * place.instances * place.memory, share),
        "n_by_cpus": by_cpus,
    }


def _input(choices: Choices, place: Place) -> hpcc_input.Input:
    return hpcc_input.input_of(choices, place, (choices.whole("nb") or 1,))


def _wrong(
    choices: Choices, place: Place, output: Output, text: str, results: dict[str, str] | None
) -> list[str]:
    if results is None:
        what = f"{OUTPUT} has no summary; {ending(text)}" if text else f"there is no {OUTPUT}"
        return [what]
    hpl = section(text, "HPL")
    checks = (
        hpl_fault(solved(hpl), _input(choices, place).blocks, hpl),
        blas.mismatch(choices, place.cpu_flags, output.stderr),
        *faults(text, results),
    )
    return [found for found in checks if found is not None]


def _values(results: dict[str, str]) -> dict[str, float]:
    """Return values by metric, in base units. Metrics that HPCC did not measure, for which it prints -1, are
    left out."""
    read = ((figure, number(results.get(figure.key, ""))) for figure in _FIGURES)
    return {f.name: value * f.scale for f, value in read if value is not None and value > 0}


def _missing(name: str, results: dict[str, str] | None, place: Place) -> str:
    if results is not None and place.ranks == 1 and name.startswith("RandomRing"):
        return f"a ring {NEEDS_TWO_RANKS}"
    return f"HPCC's summary has no {name}"


def _facts(choices: Choices, place: Place, output: Output, results: dict[str, str]) -> dict[str, JsonValue]:
    version = [results.get(f"Version{part}") for part in ("Major", "Minor", "Micro")]
    sizes: dict[str, JsonValue] = {key: number(results.get(key, "")) for key in _SIZES}
    return {
        **input_facts(choices, place, _input(choices, place)),
        **blas.facts(choices, output.stderr),
        "version": ".".join(v[:20] for v in version if v) or None,
        **sizes,
    }

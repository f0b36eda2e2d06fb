"""HPL, the Linpack benchmark (Petitet and others), with one or several block sizes (NB) in one run.

Debian's HPL is a part of HPCC. HPCC's other parts run before it and cannot be disabled; they count in `wall`,
but in no other metric. A user's own xhpl runs alone and reads the same input."""

from __future__ import annotations

from pathlib import PurePath

from ...model.record import JsonValue
from ...model.study import Better
from ..parameter import Choices, Kind, Parameter
from .contract import Application, Invocation, Needs, Output, Parsed, Place, metrics_of
from .hpc_challenge import blas
from .hpc_challenge import input as hpcc_input
from .hpc_challenge.output import Solved, hpl_fault, section, solved
from .hpcc import INPUT, OUTPUT, input_facts, message_seconds, needs_of, parts_seconds
from .several import program_problem, whole_numbers

_OWN_INPUT = "HPL.dat"
_HPCC = "hpcc"
BEST = "best"


class Hpl(Application):
    name = "hpl"
    doc = "HPL at one or several block sizes in one run: a rate for each, and the best"
    parameters: tuple[Parameter, ...] = (
        *hpcc_input.PARAMETERS,
        Parameter("nb", Kind.TEXT, "128", "block sizes: 128, '64 96 128', or 32..512 in doubling steps"),
        Parameter(
            "program",
            Kind.TEXT,
            _HPCC,
            "hpcc, whose other parts run too, or your own xhpl: on PATH, or its absolute path",
        ),
        *blas.PARAMETERS,
    )

    def needs(self, choices: Choices) -> Needs:
        program = choices.word("program")
        return Needs(programs=(program,)) if _own(choices) else needs_of(program, choices)

    def problem(self, choices: Choices, place: Place) -> str | None:
        blocks = _blocks(choices)
        if not blocks:
            return f"nb is a block size, several, or LEAST..MOST, not '{choices.word('nb')[:80]}'"
        if len(blocks) > hpcc_input.MOST_BLOCKS:
            return f"nb has {len(blocks)} block sizes; HPL takes at most {hpcc_input.MOST_BLOCKS} in one run"
        return program_problem(choices) or hpcc_input.misfit(_input(choices, place), place)

    def seconds(self, choices: Choices, ranks: int = 1) -> float:
        beside = 0.0 if _own(choices) else parts_seconds(choices, ranks)
        return beside + len(_blocks(choices)) * hpcc_input.solution_seconds(choices, ranks)

    def messages(self, choices: Choices, ranks: int = 1) -> float:
        return 0.0 if _own(choices) else message_seconds(ranks)

    def vectorised(self, choices: Choices, ranks: int = 1) -> float:
        one = hpcc_input.solution_seconds(choices, ranks) if blas.tuned(choices) else 0.0
        return len(_blocks(choices)) * one

    def command(self, choices: Choices, place: Place) -> Invocation:
        text = _input(choices, place).text("HPLinpack")
        own = _own(choices)
        env = blas.environment(choices, place.cpu_flags)
        if own:
            env.pop(blas.SEARCHED, None)  # the user's program finds its own libraries
        return Invocation(
            argv=(choices.word("program"),),
            mpi=True,
            env=env,
            files={_OWN_INPUT if own else INPUT: text},
            outputs=() if own else (OUTPUT,),
        )

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        return tuple((name, "FLOP/s", Better.HIGHER) for name in _names(_blocks(choices)))

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        own = _own(choices)
        text = output.stdout if own else section(output.files.get(OUTPUT, ""), "HPL")
        blocks, lines = _blocks(choices), solved(text)
        wrong = (
            hpl_fault(lines, blocks, text or output.stdout),
            # A user's own build may have its BLAS linked statically.
            None if own else blas.mismatch(choices, place.cpu_flags, output.stderr),
        )
        fault = "; ".join(w for w in wrong if w is not None)
        expected = "HPL's residuals passed, with the requested BLAS"
        return Parsed(
            metrics=metrics_of(
                self.metrics(choices), _rates(lines), lambda _: "HPL's table has no such line"
            ),
            ok=not fault,
            expected=expected,
            found=fault or expected,
            facts=_facts(choices, place, output, lines),
        )


def _own(choices: Choices) -> bool:
    """Return whether the program is HPL alone, not HPCC."""
    return PurePath(choices.word("program")).name != _HPCC


def _blocks(choices: Choices) -> tuple[int, ...]:
    return whole_numbers(choices.word("nb"))


def _names(blocks: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of the metrics: one for each block size, and BEST if there are several."""
    return (*(f"nb{nb}" for nb in blocks), *([BEST] if len(blocks) > 1 else []))


def _input(choices: Choices, place: Place) -> hpcc_input.Input:
    return hpcc_input.input_of(choices, place, _blocks(choices))


def _rates(lines: tuple[Solved, ...]) -> dict[str, float]:
    rates = {f"nb{line.nb}": line.flops for line in lines if line.flops is not None}
    return {**rates, BEST: max(rates.values())} if rates else {}


def _facts(choices: Choices, place: Place, output: Output, lines: tuple[Solved, ...]) -> dict[str, JsonValue]:
    solid = [line for line in lines if line.flops is not None]
    best = max(solid, key=lambda line: line.flops or 0.0, default=None)
    return {
        **input_facts(choices, place, _input(choices, place)),
        **blas.facts(choices, output.stderr),
        "best_nb": None if best is None else best.nb,
    }

"""OSU micro-benchmarks (Ohio State University), as built by the user: latency or bandwidth by message size.

They print a table after comment lines, with the message size in the first column and the result in the
second. A benchmark without sizes (osu_barrier) prints one number only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from ...model.study import Better
from ..numbers import number, whole, words_of_lines
from ..parameter import Choices, Kind, Parameter
from ..program_output import ending
from .contract import Invocation, Output, Parsed, Place, metrics_of
from .several import SIZES, OwnBuild, program_parameter, sizes_problem, whole_numbers

_RATES = ("bw", "bibw", "mbw_mr")  # suffixes of the benchmarks that print MB/s, with 10^6 bytes
_ALONE = ("barrier", "ibarrier")


class Osu(OwnBuild):
    name = "osu"
    doc = "an OSU micro-benchmark by path: latency or bandwidth by message size"
    parameters: tuple[Parameter, ...] = (
        program_parameter("osu_latency"),
        SIZES,
        Parameter("iterations", Kind.WHOLE, 1000, "messages per size", most=10_000_000),
    )

    def problem(self, choices: Choices, place: Place) -> str | None:
        if place.ranks < 2:
            return "an OSU benchmark needs at least two ranks"
        return super().problem(choices, place) or (None if _alone(choices) else sizes_problem(choices))

    def command(self, choices: Choices, place: Place) -> Invocation:
        sizes = whole_numbers(choices.word("sizes"))
        limits = () if _alone(choices) or not sizes else ("-m", f"{min(sizes)}:{max(sizes)}")
        iterations = ("-i", choices.word("iterations"))
        return Invocation(argv=(choices.word("program"), *limits, *iterations), mpi=True)

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        if _alone(choices):
            return (("latency", "s", Better.LOWER),)
        kind, unit, better = ("bandwidth", "B/s", Better.HIGHER) if _rate(choices) else _LATENCY
        return tuple((f"{kind}-{size}", unit, better) for size in whole_numbers(choices.word("sizes")))

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        scale = 1e6 if _rate(choices) else 1e-6
        values = _alone_value(output.stdout) if _alone(choices) else _by_size(output.stdout)
        kind = "bandwidth" if _rate(choices) else "latency"
        named = {f"{kind}-{size}" if size else kind: value * scale for size, value in values.items()}
        missing = f"no line for it: {ending(output.stdout)}"
        version = next((line[2:80] for line in output.stdout.splitlines() if line.startswith("# OSU")), None)
        return Parsed(
            metrics=metrics_of(self.metrics(choices), named, lambda _: missing), facts={"benchmark": version}
        )


_LATENCY = ("latency", "s", Better.LOWER)


def _kind(choices: Choices) -> str:
    return PurePath(choices.word("program")).name.removeprefix("osu_")


def _rate(choices: Choices) -> bool:
    return _kind(choices).endswith(_RATES)


def _alone(choices: Choices) -> bool:
    return _kind(choices) in _ALONE


def _by_size(text: str) -> Mapping[str, float]:
    """Return the values of the second column by message size (the first column), for lines that begin with
    two numbers. Values that are not positive are ignored."""
    rows = ((words[0], number(words[1])) for words in words_of_lines(text) if len(words) >= 2)
    return {
        size: value for size, value in rows if whole(size) is not None and value is not None and value > 0
    }


def _alone_value(text: str) -> Mapping[str, float]:
    """Return {'': the first positive number at the beginning of a line}; empty if there is none.

    With '-f', the benchmark prints the minimum, maximum and so on in further columns, which are ignored.
    """
    values = (number(words[0]) for words in words_of_lines(text))
    first = next((value for value in values if value is not None and value > 0), None)
    return {} if first is None else {"": first}

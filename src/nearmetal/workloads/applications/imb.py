"""Intel MPI Benchmarks (IMB-MPI1) at a user's path: one benchmark, its time and bandwidth by message size."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...model.study import Better
from ..numbers import number, words_of_lines
from ..parameter import Choices, Kind, Parameter
from ..program_output import ending
from .contract import Invocation, Output, Parsed, Place, metrics_of
from .several import SIZES, OwnBuild, program_parameter, sizes_problem, whole_numbers

_LENGTHS = "lengths.txt"
_SINGLE = ("PingPong", "PingPing")
_PARALLEL = ("Sendrecv", "Exchange")
_COLLECTIVE = ("Allreduce", "Reduce", "Reduce_scatter", "Allgather", "Gather", "Scatter", "Alltoall", "Bcast")
_BARRIER = "Barrier"
_VERSION = re.compile(r"Intel ?\(R\) MPI Benchmarks?(?: Suite)? V?([0-9]{1,4})(?:\.[0-9.]{1,12})?")
# Since the releases named by year, a MB has 10^6 bytes; before, it had 2^20.
_DECIMAL_SINCE, _MEBI = 2018, 1 << 20


class Imb(OwnBuild):
    name = "imb"
    doc = "a benchmark of Intel's IMB-MPI1 by path: time and bandwidth by message size"
    parameters: tuple[Parameter, ...] = (
        program_parameter("IMB-MPI1"),
        Parameter(
            "benchmark",
            Kind.WORD,
            "PingPong",
            "which of them",
            words=(*_SINGLE, *_PARALLEL, *_COLLECTIVE, _BARRIER),
        ),
        SIZES,
        Parameter("repetitions", Kind.WHOLE, 1000, "messages per size, at most", most=10_000_000),
    )

    def problem(self, choices: Choices, place: Place) -> str | None:
        if place.ranks < 2:
            return "a benchmark of IMB needs at least two ranks"
        return super().problem(choices, place) or sizes_problem(choices)

    def command(self, choices: Choices, place: Place) -> Invocation:
        sizes = whole_numbers(choices.word("sizes"))
        ranks = "2" if choices.word("benchmark") in _SINGLE else str(place.ranks)
        return Invocation(
            argv=(
                choices.word("program"),
                choices.word("benchmark"),
                "-npmin",
                ranks,
                "-iter",
                choices.word("repetitions"),
                "-msglen",
                _LENGTHS,
            ),
            mpi=True,
            files={_LENGTHS: "".join(f"{size}\n" for size in sizes)},
        )

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        benchmark, sizes = choices.word("benchmark"), whole_numbers(choices.word("sizes"))
        if benchmark == _BARRIER:
            return (("latency", "s", Better.LOWER),)
        times = tuple((f"latency-{size}", "s", Better.LOWER) for size in sizes)
        if benchmark in _COLLECTIVE:
            return times
        return times + tuple((f"bandwidth-{size}", "B/s", Better.HIGHER) for size in sizes)

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        benchmark = choices.word("benchmark")
        values = _values(output.stdout, benchmark)
        version = _VERSION.search(output.stdout)
        return Parsed(
            metrics=metrics_of(
                self.metrics(choices), values, lambda name: _missing(output.stdout, name, version is not None)
            ),
            facts={"benchmark": benchmark, "version": version[0] if version else None},
        )


def _missing(text: str, name: str, version: bool) -> str:
    if name.startswith("bandwidth") and not version:
        return "the output does not contain the version of IMB, which determines how many bytes its MB has"
    return f"no line for it: {ending(text)}"


def _values(text: str, benchmark: str) -> Mapping[str, float]:
    """Return values by metric in base units, from the lines below the benchmark's own title.

    If minimum, maximum and mean over the ranks are printed, the mean is used.
    """
    version = _VERSION.search(text)
    mega = None if version is None else 1e6 if int(version[1]) >= _DECIMAL_SINCE else _MEBI
    columns: list[str] = []
    found: dict[str, float] = {}
    inside = False
    for words in words_of_lines(text):
        if words[:2] == ["#", "Benchmarking"]:
            inside, columns = words[2:] == [benchmark], []
        elif inside and words[0] in ("#bytes", "#repetitions"):
            columns = words
        elif inside and len(words) == len(columns):
            row = dict(zip(columns, map(number, words), strict=True))
            end = "" if "#bytes" not in row else f"-{words[0]}"
            seconds, rate = row.get("t_avg[usec]", row.get("t[usec]")), row.get("Mbytes/sec")
            if seconds is not None and seconds > 0:
                found[f"latency{end}"] = seconds * 1e-6
            if rate is not None and rate > 0 and mega is not None:
                found[f"bandwidth{end}"] = rate * mega
    return found

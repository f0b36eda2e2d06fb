"""OSU micro-benchmarks (Ohio State University), as built by the user: latency or bandwidth by message size.

They print a table below a heading, which says what was measured and in which unit. The message size is in the
first column and the result in the second. A benchmark without sizes (osu_barrier) prints one number only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from ...model.study import Better
from ..numbers import number, unit_size, whole, words_of_lines
from ..parameter import Choices, Kind, Parameter
from ..program_output import ending
from .contract import Invocation, Output, Parsed, Place, metrics_of
from .several import SIZES, OwnBuild, program_parameter, sizes_problem, whole_numbers

_HEADING = re.compile(
    r"^# {0,9}(Size\b)?([A-Za-z. ]{0,80}?)(?:\(([\w/]{1,9})\)|(?<= )(MB/s)\b)", re.MULTILINE
)
_LATENCY, _BANDWIDTH = ("latency", "s", Better.LOWER), ("bandwidth", "B/s", Better.HIGHER)
#: By title of the column: the metric. osu_mbw_mr has no title, only the unit.
_TITLES = {
    "Latency": _LATENCY,
    "Avg Latency": _LATENCY,
    "Overall": _LATENCY,
    "Bandwidth": _BANDWIDTH,
    "": _BANDWIDTH,
}


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
        return super().problem(choices, place) or (None if _barrier(choices) else sizes_problem(choices))

    def command(self, choices: Choices, place: Place) -> Invocation:
        sizes = whole_numbers(choices.word("sizes"))
        limits = () if _barrier(choices) or not sizes else ("-m", f"{min(sizes)}:{max(sizes)}")
        iterations = ("-i", choices.word("iterations"))
        return Invocation(argv=(choices.word("program"), *limits, *iterations), mpi=True)

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        return (_LATENCY, *_by_size(choices, _LATENCY), *_by_size(choices, _BANDWIDTH))

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        text = output.stdout
        version = next((line[2:80] for line in text.splitlines() if line.startswith("# OSU")), None)
        facts = {"benchmark": version}
        table = _table(text)
        if table is None:
            comment = next((w for w in reversed(text.splitlines()) if w.startswith("#")), "")[:80]
            missing = f"no heading of a latency or bandwidth; the last one is {comment!r}; {ending(text)}"
            return Parsed(metrics=metrics_of(self.metrics(choices), {}, lambda _: missing), facts=facts)
        named = _by_size(choices, table.metric) if table.sizes else (table.metric,)
        missing = f"no line for it: {ending(text)}"
        return Parsed(metrics=metrics_of(named, table.values, lambda _: missing), facts=facts)


def _barrier(choices: Choices) -> bool:
    """Return whether the program takes no message sizes, by its name."""
    return not {"barrier", "ibarrier"}.isdisjoint(PurePath(choices.word("program")).name.split("_"))


def _by_size(choices: Choices, metric: tuple[str, str, Better]) -> tuple[tuple[str, str, Better], ...]:
    name, unit, better = metric
    return tuple((f"{name}-{size}", unit, better) for size in whole_numbers(choices.word("sizes")))


@dataclass(frozen=True, kw_only=True)
class _Table:
    """The table of a benchmark.

    metric: what it measured; by message size, the name of each metric ends in `-<size>`.
    sizes: whether it has a line for each message size.
    values: by name of the metric, in base units. Values that are not positive are left out.
    """

    metric: tuple[str, str, Better]
    sizes: bool
    values: Mapping[str, float]


def _table(text: str) -> _Table | None:
    """Return the benchmark's table; None if its heading is not known, or if there is none or several."""
    headings = {match[0]: match for match in _HEADING.finditer(text)}
    if len(headings) != 1:
        return None
    (heading,) = headings.values()
    metric = _TITLES.get(heading[2].strip())
    scale = metric and unit_size(heading[3] or heading[4], metric[1])
    if not metric or not scale:
        return None
    at = 1 if heading[1] else 0
    values: dict[str, float] = {}
    for words in words_of_lines(text[heading.end() :]):
        value = number(words[at]) if len(words) > at else None
        if value is None or value <= 0 or (at and whole(words[0]) is None):
            continue
        if at:
            values[f"{metric[0]}-{words[0]}"] = value * scale
        else:
            values.setdefault(metric[0], value * scale)
    return _Table(metric=metric, sizes=bool(at), values=values)

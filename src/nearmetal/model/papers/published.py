"""Numbers and claims printed in a paper. They are shown next to our measurements, and never mixed with
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..keys import ListOf, Pairs, key, key_made, key_or, one_of, one_word, whole
from .formula import Formula
from .values import ANY_TEXT, CONFIDENCE, PAPER_KEY, RANKS, RATE, SHARE, SOME_TEXT, SOURCE, TRUTH


class Quantity(StrEnum):
    """The quantity that a printed figure gives.

    TIME: seconds of one phase of a process.
    TIME_SHARE: one phase as a fraction of the lifetime of the process.
    OVERHEAD: additional time compared with the baseline, as a fraction.
    GAIN: additional speed after a change, time before / time after - 1. Unlike a share of the time saved, it
        may exceed 1.
    LOSS: rate lost compared with the baseline, as a fraction of the baseline's rate.
    COUNT: number of events.
    WAIT: waiting time in seconds.
    WALL: seconds of a whole run.
    INSTANCES: counters of instances in timed runs.
    BOOT: seconds of a boot, by statistic (phase 'boot.minimum', ...).
    VALUE: value of a metric, in its unit.
    """

    TIME = "time"
    TIME_SHARE = "share of the time"
    OVERHEAD = "overhead"
    GAIN = "gain"
    LOSS = "loss of rate"
    COUNT = "count"
    WAIT = "wait"
    WALL = "wall time"
    INSTANCES = "instances"
    BOOT = "boot time"
    VALUE = "value"


class Likeness(StrEnum):
    """How well a printed figure can be compared with ours. SAME: same definition, under the stated
    conditions. LIKE: similar, but not the same definition."""

    SAME = "same quantity"
    LIKE = "like it"


@dataclass(frozen=True, kw_only=True)
class MeasurementConditions:
    """The conditions under which something was measured, as far as they are recorded. A missing value is 0 or
    an empty text.

    ranks: smallest and largest number of processes.
    computation: by benchmark, the range of computation / (computation + communication) of the baseline, as
        fractions. A claim is not checked for a benchmark whose fraction is far from it in our measurement.
    link: rate of the links between nodes, in bytes per second.
    """

    ranks: tuple[int, int] = key_or((0, 0), RANKS, "number of processes, or a range of two")
    nodes: int = key_or(0, whole(1, 10**7), "number of machines")
    classes: Mapping[str, str] = key_made(
        dict, Pairs(ANY_TEXT, SOME_TEXT), "class of each NAS benchmark, by its name in lower case"
    )
    computation: Mapping[str, tuple[float, float]] = key_made(
        dict,
        Pairs(ANY_TEXT, SHARE),
        "share of computation in computation and communication of the baseline, in percent, or a"
        " range, by benchmark: a claim is checked only for benchmarks whose share is near it",
    )
    link: float = key_or(0.0, RATE, 'rate of the links between nodes, such as "10 Gbit/s"')
    kernel: str = key_or("", ANY_TEXT, 'version of Linux, such as "4.0"')
    environment: str = key_or("", ANY_TEXT, 'what the processes ran in, such as "LXC"')


class MethodKind(StrEnum):
    """How a paper decides whether two environments differ.

    T_TEST: Welch's t-test of the two means.
    INTERVALS: whether the confidence intervals of the two means overlap.
    DEVIATIONS: whether the ranges of one standard deviation around the two means overlap.
    MEANS: the two means alone. Any difference counts.
    """

    T_TEST = "t-test"
    INTERVALS = "confidence intervals"
    DEVIATIONS = "standard deviations"
    MEANS = "means"


@dataclass(frozen=True, kw_only=True)
class PaperMethod:
    """The method by which a paper decides whether two environments differ. The report applies it to your
    data, in a table of its own."""

    kind: MethodKind = field(metadata=key(one_of(MethodKind), "how it compares two environments"))
    source: str = field(metadata=key(SOME_TEXT, SOURCE))
    confidence: float = key_or(0.95, CONFIDENCE, "of the t-test or of the confidence intervals")


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A published paper.

    method: None if the file does not give it.
    """

    title: str = field(metadata=key(SOME_TEXT, "title"))
    authors: str = field(metadata=key(SOME_TEXT, "authors"))
    year: int = field(metadata=key(whole(1900, 2200), "year of publication"))
    where: str = field(metadata=key(SOME_TEXT, "where it was published"))
    setting: str = field(metadata=key(SOME_TEXT, "its machines, kernels and runs, in one sentence"))
    conditions: MeasurementConditions = key_made(
        MeasurementConditions, MeasurementConditions, "conditions of all claims that give no others"
    )
    method: PaperMethod | None = key_or(None, PaperMethod, "how it decides whether two environments differ")
    key: str = field(metadata=key(PAPER_KEY, "short name"))  # last, because its name hides key()


@dataclass(frozen=True, kw_only=True)
class PrintedNumber:
    """One number as printed, in its printed unit.

    name: a name that formulas use: 'table 2/G-HPL/xen' for a cell, or the name of a number in the text.
    what: description.
    rounding: largest difference from the exact value. Zero for a count, and half a unit of the last printed
        digit for another number, unless the paper says that it is less precise.
    source: table, figure or section.
    """

    name: str
    what: str
    value: float
    rounding: float
    text: str
    unit: str
    source: str

    @property
    def band(self) -> tuple[float, float]:
        return self.value - self.rounding, self.value + self.rounding


class Rule(StrEnum):
    """The kinds of checks of a paper's numbers."""

    OVERHEAD = "overhead"
    SHARE = "share"
    MEAN = "mean"
    TOTAL = "total"
    TEXT = "text from table"
    PROCESSES = "processes from grid"
    FORMULA = "formula of the paper"
    SIGNIFICANCE = "significance"
    CLAIMS = "claims of one paper"


class Relation(StrEnum):
    """How a printed number has to compare with the result of a formula."""

    EQUAL = "equal"
    AT_MOST = "at most"
    AT_LEAST = "at least"


@dataclass(frozen=True, kw_only=True)
class Deduction:
    """The kind of a check that a printed number follows from others. Base class of the checks."""

    rule: Rule = field(metadata=key(one_of(Rule), "kind of the check"))
    relation: Relation = key_or(
        Relation.EQUAL, one_of(Relation), "how the number compares with the result of the formula"
    )
    note: str = key_or("", ANY_TEXT, "explanation, shown if a number does not follow")


@dataclass(frozen=True, kw_only=True)
class Derivation(Deduction):
    """The statement that one printed number follows from others.

    result: name of the printed number.
    formula: computes the result from the other numbers; its names are their names.
    """

    result: str
    formula: Formula


@dataclass(frozen=True, kw_only=True)
class Significance:
    """A statement of a paper on whether two means differ. Means, deviations and numbers of runs are given as
    names of printed numbers; '' if one is not printed."""

    what: str = field(metadata=key(SOME_TEXT, "description"))
    source: str = field(metadata=key(SOME_TEXT, SOURCE))
    mean: str = field(metadata=key(SOME_TEXT, "name of the mean of one side"))
    deviation: str = field(metadata=key(SOME_TEXT, "name of the standard deviation of that side"))
    n: str = field(metadata=key(SOME_TEXT, "name of the number of runs of each side"))
    stated: bool = field(metadata=key(TRUTH, "whether the paper states a difference"))
    confidence: float = key_or(0.95, CONFIDENCE, "confidence of the test")
    other_mean: str = key_or("", ANY_TEXT, "name of the mean of the other side")
    other_deviation: str = key_or("", ANY_TEXT, "the same as `deviation` if it is not printed")
    difference: str = key_or("", ANY_TEXT, "difference in percent of the mean, instead of the other mean")
    relative: bool = key_or(False, TRUTH, "whether deviations are in percent of their means")
    note: str = key_or("", ANY_TEXT, "explanation for the reader")


class Direction(StrEnum):
    """The time of an environment compared with its baseline, as a claim states it."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "no difference"


class Bound(StrEnum):
    """How the number of a claim limits its quantity."""

    ABOUT = "about"
    AT_MOST = "at most"
    AT_LEAST = "at least"


@dataclass(frozen=True, kw_only=True)
class PaperClaim:
    """A statement of a paper that a measurement can support or contradict.

    low, high: range of the quantity as a fraction, widened by the rounding of the paper; None if only the
        direction is claimed.
    exact: whether the paper gives a single number. Our margin then widens the range.
    bound: AT_MOST and AT_LEAST leave one end of the range open.
    printed: the number as text; '' if only the direction is claimed.
    """

    what: str = field(metadata=key(SOME_TEXT, "the statement"))
    source: str = field(metadata=key(SOME_TEXT, SOURCE))
    direction: Direction = field(
        metadata=key(one_of(Direction), "how the environment compares with its baseline")
    )
    quantity: Quantity = key_or(
        Quantity.OVERHEAD,
        one_word((Quantity.OVERHEAD, Quantity.LOSS, Quantity.GAIN), Quantity),
        "what the number is",
    )
    number: str = key_or("", ANY_TEXT, "name of the number that the claim gives, in percent")
    bound: Bound = key_or(Bound.ABOUT, one_of(Bound), "how the number limits the quantity")
    part: str = key_or("", ANY_TEXT, "part of a study that tests it")
    workloads: tuple[str, ...] = key_or(
        (),
        ListOf(SOME_TEXT),
        "kernels or applications, or single workloads of the part by their names; the claim has to hold for"
        " each",
    )
    metric: str = key_or("", ANY_TEXT, "metric of the workload, if it is not the workload as a whole")
    size: str = key_or("", ANY_TEXT, "class of a NAS benchmark, or size of a file")
    arm: str = key_or("", ANY_TEXT, "the paper's name of the environment")
    baseline: str = key_or("", ANY_TEXT, "the paper's name of the baseline")
    above: tuple[str, ...] = key_or((), ListOf(SOME_TEXT), "workloads that are affected less")
    differs: str = key_or("", ANY_TEXT, "how its conditions differ from yours")
    cannot: str = key_or("", ANY_TEXT, "why no study of one run can test it")
    conditions: MeasurementConditions = key_made(
        MeasurementConditions, MeasurementConditions, "conditions that differ from those of the paper"
    )
    low: float | None = None
    high: float | None = None
    exact: bool = False
    printed: str = ""


@dataclass(frozen=True, kw_only=True)
class PlaceInReport:
    """The place of a printed number or table in the report of a study in parts."""

    part: str = field(metadata=key(SOME_TEXT, "key of the part that measures the same quantity"))
    quantity: Quantity = field(metadata=key(one_of(Quantity), "the quantity that it gives"))
    likeness: Likeness = field(metadata=key(one_of(Likeness), "how well it can be compared with yours"))
    differs: str = field(metadata=key(SOME_TEXT, "how its conditions differ"))
    workloads: tuple[str, ...] = key_or((), ListOf(SOME_TEXT), "kernels or applications that it is about")
    metric: str = key_or("", ANY_TEXT, "metric of the workload; required for a value")


@dataclass(frozen=True, kw_only=True)
class NumberInReport(PlaceInReport):
    """The place of one printed number in the report of a study in parts."""

    size: str = key_or("", ANY_TEXT, "class of the NAS benchmark")
    arm: str = key_or("", ANY_TEXT, "the paper's name of the environment")
    baseline: str = key_or("", ANY_TEXT, "the paper's name of the baseline")


@dataclass(frozen=True, kw_only=True)
class PublishedFigure(NumberInReport):
    """One printed figure in base units (seconds; fractions such as 0.13). low = high for a single number.

    source: table or section.
    phase: phase of a process, '' for the whole process; for INSTANCES, the name of the counter ('node.user',
        see analysis.instances).
    text: the number as printed, with its unit; '' for a claim.
    """

    what: str
    low: float
    high: float
    unit: str
    source: str
    phase: str = ""
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class PrintedColumn:
    """A column of a printed table.

    arm: the paper's name of the environment; '' if no study measures it.
    baseline: if the column has overheads, the paper's name of the environment that they are compared with; ''
        if the column has values.
    """

    name: str
    arm: str = ""
    baseline: str = ""


@dataclass(frozen=True, kw_only=True)
class PrintedRow:
    """A row of a printed table.

    metric: metric of the workload; '' if the row is a fact.
    total: whether the row is the sum over all processes of a metric of each process.
    fact: what the application reports about its run, such as its problem size; '' if the row is a metric.
    texts: the printed cells with their units, one for each column; '' for an empty cell.
    """

    name: str
    metric: str = ""
    total: bool = False
    fact: str = ""
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PrintedTable:
    """A printed table whose rows are metrics. Reports show it in the layout of the paper.

    part: part of the study that measures the same quantities.
    workloads: kernels or applications whose metrics the rows are.
    differs: how its conditions differ from those of our measurement.
    """

    part: str
    what: str
    source: str
    likeness: Likeness
    differs: str
    workloads: tuple[str, ...]
    columns: tuple[PrintedColumn, ...]
    rows: tuple[PrintedRow, ...]


@dataclass(frozen=True, kw_only=True)
class Published:
    """A paper with its numbers and claims, in the order of the paper.

    figures: those numbers that are shown beside our measurements.
    tables: those tables that are shown in the paper's layout, with our values beside the printed ones.
    numbers: all printed numbers, by name.
    """

    paper: Paper
    figures: tuple[PublishedFigure, ...]
    tables: tuple[PrintedTable, ...] = ()
    numbers: Mapping[str, PrintedNumber] = field(default_factory=dict)
    derivations: tuple[Derivation, ...] = ()
    significances: tuple[Significance, ...] = ()
    claims: tuple[PaperClaim, ...] = ()

    def of_part(self, part: str) -> tuple[PublishedFigure, ...]:
        return tuple(f for f in self.figures if f.part == part)

    def tables_of(self, part: str) -> tuple[PrintedTable, ...]:
        return tuple(t for t in self.tables if t.part == part)

    def claims_of(self, part: str) -> tuple[PaperClaim, ...]:
        """Return the claims that one part of a study tests."""
        return tuple(c for c in self.claims if c.part == part)

"""Numbers and claims printed in a paper. They are shown next to our measurements, and never mixed with
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .formula import Formula


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
    classes: class of a NAS benchmark, by its name in lower case.
    computation: share of computation in computation and communication of the baseline, as a range of
        fractions, by benchmark. If ours is far from it, the question is another one.
    link: rate of the links between nodes, in bytes per second.
    kernel: version of Linux.
    environment: what the processes ran in ('LXC', 'Xen 3.0.4').
    """

    ranks: tuple[int, int] = (0, 0)
    nodes: int = 0
    classes: Mapping[str, str] = field(default_factory=dict)
    computation: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    link: float = 0.0
    kernel: str = ""
    environment: str = ""


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
    """The method by which a paper compares two environments.

    confidence: of its test or of its intervals.
    source: section.
    """

    kind: MethodKind
    source: str
    confidence: float = 0.95


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A published paper.

    setting: description of its machines, kernels and runs.
    conditions: conditions of all its claims that give no others.
    method: how it compares environments; None if the file does not give it.
    """

    key: str
    title: str
    authors: str
    year: int
    where: str
    setting: str
    conditions: MeasurementConditions = MeasurementConditions()
    method: PaperMethod | None = None


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
class Derivation:
    """The statement that one printed number follows from others.

    result: name of the printed number.
    formula: its names are those of the other numbers.
    note: explanation for a reader, shown with a finding.
    """

    rule: Rule
    result: str
    formula: Formula
    relation: Relation
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Significance:
    """A statement of a paper on whether two means differ. All names are those of printed numbers.

    mean, deviation: mean and standard deviation of one side.
    other_mean: mean of the other side; '' if only the difference in percent is printed.
    difference: difference of the means in percent of `mean`; '' if both means are printed.
    other_deviation: standard deviation of the other side; '' if it is not printed.
    relative: whether the deviations are in percent of their means.
    n: number of runs of each side.
    stated: whether the paper states a difference.
    """

    what: str
    source: str
    mean: str
    deviation: str
    n: str
    stated: bool
    confidence: float
    other_mean: str = ""
    other_deviation: str = ""
    difference: str = ""
    relative: bool = False
    note: str = ""


class Direction(StrEnum):
    """What a claim says about the time of an environment compared with its baseline."""

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

    part: part of the study that tests it; '' if no study does.
    workloads: every one of them is meant.
    metric: metric of the workload, if it is not the workload as a whole.
    low, high: range of the quantity as a fraction, widened by the rounding of the paper; None if only the
        direction is claimed.
    exact: whether the paper gives one number. Our margin then widens the range.
    bound: AT_MOST and AT_LEAST leave one end of the range open.
    above: workloads that the claim says are affected less than `workloads`.
    printed: the number as text.
    cannot: why no study of one run can test it; '' if one can.
    """

    what: str
    source: str
    quantity: Quantity
    direction: Direction
    part: str = ""
    workloads: tuple[str, ...] = ()
    metric: str = ""
    size: str = ""
    arm: str = ""
    baseline: str = ""
    low: float | None = None
    high: float | None = None
    exact: bool = False
    bound: Bound = Bound.ABOUT
    above: tuple[str, ...] = ()
    printed: str = ""
    differs: str = ""
    cannot: str = ""
    conditions: MeasurementConditions = MeasurementConditions()


@dataclass(frozen=True, kw_only=True)
class PublishedFigure:
    """One printed figure in base units (seconds; fractions such as 0.13). low = high for a single number.

    part: part of the study that measures the same quantity.
    source: table or section.
    size: class of the NAS benchmark.
    arm, baseline: the paper's name of the environment ('container', 'shared memory', ...); '' if there is
        none.
    phase: phase of a process, '' for the whole process; for INSTANCES, the name of the counter ('node.user',
        see analysis.instances).
    metric: metric of the workload, if it is not the workload as a whole; required for VALUE.
    text: of a VALUE, as printed, with its unit.
    differs: how its conditions differ from those of our measurement.
    """

    part: str
    what: str
    quantity: Quantity
    low: float
    high: float
    unit: str
    source: str
    likeness: Likeness
    differs: str
    workloads: tuple[str, ...] = ()
    size: str = ""
    arm: str = ""
    baseline: str = ""
    phase: str = ""
    metric: str = ""
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class PrintedColumn:
    """A column of a printed table.

    arm: the paper's name of the environment; '' if no study measures it.
    baseline: of an overhead, the paper's name of the environment that it is compared with; '' if the column
        has values.
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
    texts: the printed cells with their units, one for each column; '' for none.
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

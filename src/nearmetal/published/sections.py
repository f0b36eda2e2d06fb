"""The sections of a file with the numbers and claims of a paper, and the JSON Schema of the format."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, WithJsonSchema

from ..model.formula import FUNCTIONS, LONGEST
from ..model.published import Bound, Direction, Likeness, MethodKind, Quantity, Relation, Rule
from ..units import Dimension, UnitError, parse

LARGEST, SMALLEST = 1e30, 1e-30
SOURCE_KINDS = "table, figure or section"


def _number(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError("must be a number")
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError("must be a finite number: a paper prints no NaN and no infinity")
    if number and not SMALLEST <= abs(number) <= LARGEST:
        raise ValueError(f"must have a magnitude between {SMALLEST:g} and {LARGEST:g}")
    return number


def _range(value: object) -> tuple[Decimal, Decimal]:
    """Return both ends of a range. A single number is both of its ends."""
    if not isinstance(value, list):
        return (_number(value),) * 2
    if len(value) != 2:
        raise ValueError("must be one number, or a range of two")
    low, high = map(_number, value)
    if low > high:
        raise ValueError(f"the range is swapped: {low} is more than {high}")
    return low, high


def _ranks(value: object) -> tuple[int, int]:
    low, high = _range(value)
    if low != int(low) or high != int(high) or low < 1:
        raise ValueError("must be a number of processes, or a range of two")
    return int(low), int(high)


def _share(value: object) -> tuple[float, float]:
    """Return a range in percent as fractions."""
    low, high = _range(value)
    if low < 0 or high > 100:
        raise ValueError("must be a share between 0 and 100 %, or a range of two")
    return float(low / 100), float(high / 100)


def _rate(value: object) -> float:
    if not isinstance(value, str):
        raise ValueError('must be a rate, such as "10 Gbit/s"')
    try:
        return parse(value, Dimension.RATE)
    except UnitError as e:
        raise ValueError(str(e)) from e


_NUMBER: dict[str, Any] = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
_PAIR = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}
Number = Annotated[Decimal, BeforeValidator(_number), WithJsonSchema(_NUMBER)]
Range = Annotated[
    tuple[Decimal, Decimal], BeforeValidator(_range), WithJsonSchema({"anyOf": [_NUMBER, _PAIR]})
]
Ranks = Annotated[
    tuple[int, int],
    BeforeValidator(_ranks),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2},
            ]
        }
    ),
]
Share = Annotated[
    tuple[float, float],
    BeforeValidator(_share),
    WithJsonSchema({"anyOf": [_NUMBER, _PAIR]}),
]
Rate = Annotated[float, BeforeValidator(_rate), WithJsonSchema({"type": "string"})]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Name = Annotated[str, Field(pattern=r"^[^{}/]{1,80}$")]
FormulaText = Annotated[str, Field(min_length=1, max_length=LONGEST)]


class PaperFileSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ConditionsSection(PaperFileSection):
    """The conditions under which the paper measured. They are compared with yours in one sentence."""

    ranks: Ranks = Field(default=(0, 0), description="number of processes, or a range of two")
    nodes: int = Field(default=0, ge=1, le=10**7, description="number of machines")
    classes: dict[str, Text] = Field(
        default_factory=dict, description="class of each NAS benchmark, by its name in lower case"
    )
    computation: dict[str, Share] = Field(
        default_factory=dict,
        description="share of computation in computation and communication of the baseline, in percent, or a"
        " range, by benchmark: a claim is checked only for benchmarks whose share is near it",
    )
    link: Rate = Field(default=0.0, description='rate of the links between nodes, such as "10 Gbit/s"')
    kernel: str = Field(default="", description='version of Linux, such as "4.0"')
    environment: str = Field(default="", description='what the processes ran in, such as "LXC"')


class MethodSection(PaperFileSection):
    """The method by which the paper decides whether two environments differ. The report applies it to your
    data, in a table of its own."""

    kind: MethodKind
    source: Text = Field(description=SOURCE_KINDS)
    confidence: float = Field(
        default=0.95, gt=0.5, lt=1, description="of the t-test or of the confidence intervals"
    )


class PaperSection(PaperFileSection):
    """The paper itself."""

    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")] = Field(description="short name")
    title: Text
    authors: Text
    year: int = Field(ge=1900, le=2200)
    where: Text = Field(description="where it was published")
    setting: Text = Field(description="its machines, kernels and runs, in one sentence")
    conditions: ConditionsSection = Field(
        default_factory=ConditionsSection, description="conditions of all claims that give no others"
    )
    method: MethodSection | None = None


class ShownSection(PaperFileSection):
    """Where a number stands in the report of a study in parts."""

    part: Text = Field(description="key of the part that measures the same quantity")
    quantity: Quantity
    likeness: Likeness = Field(description="how well it can be compared with yours")
    differs: Text = Field(description="how its conditions differ")
    workloads: tuple[Text, ...] = ()
    metric: str = Field(default="", description="metric of the workload; required for a value")


class ShownNumber(ShownSection):
    size: str = Field(default="", description="class of the NAS benchmark")
    arm: str = Field(default="", description="the paper's name of the environment")
    baseline: str = Field(default="", description="the paper's name of the baseline")


class FactSection(PaperFileSection):
    """A row on how an application ran, such as its problem size."""

    fact: Text = Field(description="name of what the application reports about its run")
    printed: tuple[str, ...] = Field(description="the printed cells, one for each column; empty for none")


class ShownTable(ShownSection):
    rows: Literal["environment", "benchmark", "workload", "metric"] = Field(
        description="what the names of the rows are; if workload, those of the columns are environments; if"
        " metric, the table is shown in the paper's layout"
    )
    metrics: dict[Name, Text] = Field(
        default_factory=dict, description="if rows are metrics: the metric of each row"
    )
    totals: tuple[Name, ...] = Field(
        default=(), description="rows that are the sum over all processes of their metric"
    )
    facts: dict[Name, FactSection] = Field(
        default_factory=dict, description="if rows are metrics: rows before them, on how the program ran"
    )
    environments: dict[Name, Text] = Field(
        default_factory=dict,
        description="if rows are metrics: the paper's name of the environment of each column that you"
        " measure",
    )
    overheads: tuple[Name, ...] = Field(
        default=(), description="those of these columns that are overheads against the baseline"
    )
    baseline: str = Field(default="", description="the paper's name of the baseline of the overheads")
    ran: dict[Name, Text] = Field(
        default_factory=dict,
        description="if rows are workloads: the kernel, application or event of each row",
    )
    arm: str = Field(default="", description="the paper's name of the environment, if rows are benchmarks")
    of: str = Field(default="", description="group of counters that the columns belong to")


class DeriveSection(PaperFileSection):
    """How one column of a table follows from the others."""

    rule: Rule
    column: Name
    formula: FormulaText = Field(
        description=f"names of columns in braces, numbers, + - * / and {', '.join(FUNCTIONS)}"
    )
    rows: tuple[Name, ...] = Field(default=(), description="rows that it holds for; all if omitted")
    relation: Relation = Relation.EQUAL
    note: str = Field(default="", description="explanation, shown if a number does not follow")


class TableSection(PaperFileSection):
    """A table of printed numbers."""

    name: Name = Field(description="a cell is {name/row/column} in formulas")
    what: Text
    source: Text = Field(description=SOURCE_KINDS)
    unit: str = ""
    units: dict[Name, str] = Field(
        default_factory=dict, description="units of columns or rows that differ; a column comes first"
    )
    columns: tuple[Name, ...] = Field(min_length=1)
    rows: dict[Name, tuple[Number, ...]] = Field(min_length=1)
    derive: tuple[DeriveSection, ...] = ()
    shown: ShownTable | None = None


class NumberSection(PaperFileSection):
    """A number in the text, or a range of two."""

    name: Name
    what: Text
    source: Text = Field(description=SOURCE_KINDS)
    value: Range = Field(description="as printed, with all digits; a range is {name.low} and {name.high}")
    unit: str = ""
    rounding: Annotated[Number, Field(ge=0)] | None = Field(
        default=None,
        description="largest difference from the exact value. If omitted, a whole number without unit is"
        " exact, and other numbers are rounded to their last digit",
    )
    shown: ShownNumber | None = None


class FollowsSection(PaperFileSection):
    """How a printed number follows from others."""

    rule: Rule
    result: Text = Field(description="name of a number, or of a cell: table/row/column")
    formula: FormulaText
    relation: Relation = Relation.EQUAL
    note: str = ""


class SignificanceSection(PaperFileSection):
    """A statement on whether two means differ. All values are names of numbers."""

    what: Text
    source: Text
    mean: Text
    deviation: Text
    n: Text
    stated: StrictBool = Field(description="whether the paper states a difference")
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    other_mean: str = ""
    other_deviation: str = Field(default="", description="the same as `deviation` if it is not printed")
    difference: str = Field(default="", description="difference in percent of the mean")
    relative: StrictBool = Field(
        default=False, description="whether deviations are in percent of their means"
    )
    note: str = ""


class ClaimSection(PaperFileSection):
    """A statement that a measurement can support or contradict."""

    what: Text
    source: Text = Field(description=SOURCE_KINDS)
    direction: Direction
    quantity: Literal[Quantity.OVERHEAD, Quantity.LOSS, Quantity.GAIN] = Quantity.OVERHEAD
    number: str = Field(default="", description="name of the number that the claim gives, in percent")
    bound: Bound = Bound.ABOUT
    part: str = Field(default="", description="part of a study that tests it")
    workloads: tuple[Text, ...] = Field(
        default=(), description="kernels or applications, or single workloads of the part by their names"
    )
    metric: str = ""
    size: str = Field(default="", description="class of a NAS benchmark, or size of a file")
    arm: str = ""
    baseline: str = ""
    above: tuple[Text, ...] = Field(default=(), description="workloads that are affected less")
    differs: str = ""
    cannot: str = Field(default="", description="why no study of one run can test it")
    conditions: ConditionsSection = Field(default_factory=ConditionsSection)


class PaperFile(PaperFileSection):
    """Numbers and claims of one paper."""

    paper: PaperSection
    table: tuple[TableSection, ...] = ()
    number: tuple[NumberSection, ...] = ()
    follows: tuple[FollowsSection, ...] = ()
    significance: tuple[SignificanceSection, ...] = ()
    claim: tuple[ClaimSection, ...] = ()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the format."""
    schema = PaperFile.model_json_schema()
    schema["title"] = "Numbers and claims of a paper, for nearmetal"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}

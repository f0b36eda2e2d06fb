"""The contents of a file with the numbers and claims of a paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from ..keys import Entries, ListOf, Named, Pairs, key, key_made, key_or, one_word
from .formula import FUNCTIONS
from .published import Deduction, NumberInReport, Paper, PaperClaim, PlaceInReport, Significance
from .values import (
    ANY_TEXT,
    FORMULA,
    NAME,
    NUMBER,
    RANGE,
    ROUNDING,
    SOME_TEXT,
    SOURCE,
)


@dataclass(frozen=True, kw_only=True)
class PrintedFact:
    """A row of a table on how an application ran, such as its problem size."""

    name: str
    fact: str = field(metadata=key(SOME_TEXT, "name of what the application reports about its run"))
    printed: tuple[str, ...] = field(
        metadata=key(ListOf(ANY_TEXT), "the printed cells, one for each column; empty for none")
    )


@dataclass(frozen=True, kw_only=True)
class TableInReport(PlaceInReport):
    """The place of a printed table in the report of a study in parts, and the meaning of its rows and
    columns."""

    rows: str = field(
        metadata=key(
            one_word(("environment", "benchmark", "workload", "metric")),
            "what the names of the rows are; if workload, those of the columns are environments; if metric,"
            " the table is shown in the paper's layout",
        )
    )
    metrics: Mapping[str, str] = key_made(
        dict, Pairs(NAME, SOME_TEXT), "if rows are metrics: the metric of each row"
    )
    totals: tuple[str, ...] = key_or(
        (), ListOf(NAME), "rows that are the sum over all processes of their metric"
    )
    facts: tuple[PrintedFact, ...] = key_or(
        (), Named(PrintedFact, NAME), "if rows are metrics: rows before them, on how the program ran"
    )
    environments: Mapping[str, str] = key_made(
        dict,
        Pairs(NAME, SOME_TEXT),
        "if rows are metrics: the paper's name of the environment of each column that you measure",
    )
    overheads: tuple[str, ...] = key_or(
        (), ListOf(NAME), "those of these columns that are overheads against the baseline"
    )
    baseline: str = key_or("", ANY_TEXT, "the paper's name of the baseline of the overheads")
    ran: Mapping[str, str] = key_made(
        dict, Pairs(NAME, SOME_TEXT), "if rows are workloads: the kernel, application or event of each row"
    )
    arm: str = key_or("", ANY_TEXT, "the paper's name of the environment, if rows are benchmarks")
    of: str = key_or("", ANY_TEXT, "group of counters that the columns belong to")


@dataclass(frozen=True, kw_only=True)
class ColumnFormula(Deduction):
    """How one column of a table follows from the others."""

    column: str = field(metadata=key(NAME, "the column that follows"))
    formula: str = field(
        metadata=key(FORMULA, f"names of columns in braces, numbers, + - * / and {', '.join(FUNCTIONS)}")
    )
    rows: tuple[str, ...] = key_or((), ListOf(NAME), "rows that it holds for; all if omitted")


@dataclass(frozen=True, kw_only=True)
class NumberFormula(Deduction):
    """How a printed number follows from others."""

    result: str = field(metadata=key(SOME_TEXT, "name of a number, or of a cell: table/row/column"))
    formula: str = field(metadata=key(FORMULA, "names of numbers and cells in braces; else as in a table"))


@dataclass(frozen=True, kw_only=True)
class TableEntry:
    """A table of a paper with its numbers."""

    name: str = field(metadata=key(NAME, "a cell is {name/row/column} in formulas"))
    what: str = field(metadata=key(SOME_TEXT, "description"))
    source: str = field(metadata=key(SOME_TEXT, SOURCE))
    unit: str = key_or("", ANY_TEXT, "unit of its numbers")
    units: Mapping[str, str] = key_made(
        dict, Pairs(NAME, ANY_TEXT), "units of columns or rows that differ; a column comes first"
    )
    columns: tuple[str, ...] = field(metadata=key(ListOf(NAME, least=1), "names of the columns"))
    rows: Mapping[str, tuple[Decimal, ...]] = field(
        metadata=key(Pairs(NAME, ListOf(NUMBER)), "numbers of each row, with all printed digits")
    )
    derive: tuple[ColumnFormula, ...] = key_or((), Entries(ColumnFormula), "columns that follow from others")
    shown: TableInReport | None = key_or(None, TableInReport, "where the report shows the table")

    def unit_of(self, row: str, column: str) -> str:
        return self.units.get(column, self.units.get(row, self.unit))


@dataclass(frozen=True, kw_only=True)
class NumberEntry:
    """A number that the text of a paper gives, or the two ends of a range."""

    name: str = field(metadata=key(NAME, "name in formulas"))
    what: str = field(metadata=key(SOME_TEXT, "description"))
    source: str = field(metadata=key(SOME_TEXT, SOURCE))
    value: tuple[Decimal, Decimal] = field(
        metadata=key(RANGE, "as printed, with all digits; a range is {name.low} and {name.high}")
    )
    unit: str = key_or("", ANY_TEXT, "unit as printed")
    rounding: Decimal | None = key_or(
        None,
        ROUNDING,
        "largest difference from the exact value. If omitted, a whole number without unit is exact, and"
        " other numbers are rounded to their last digit",
    )
    shown: NumberInReport | None = key_or(None, NumberInReport, "where the report shows the number")


@dataclass(frozen=True, kw_only=True)
class PaperFile:
    """Numbers and claims of one paper, as its file gives them."""

    paper: Paper = field(metadata=key(Paper, "the paper itself"))
    table: tuple[TableEntry, ...] = key_or((), Entries(TableEntry), "tables of printed numbers")
    number: tuple[NumberEntry, ...] = key_or((), Entries(NumberEntry), "numbers in the text")
    follows: tuple[NumberFormula, ...] = key_or(
        (), Entries(NumberFormula), "how numbers in the text follow from others"
    )
    significance: tuple[Significance, ...] = key_or(
        (), Entries(Significance), "statements on whether two means differ"
    )
    claim: tuple[PaperClaim, ...] = key_or(
        (), Entries(PaperClaim), "statements that a measurement can support or contradict"
    )

"""Reads a file with the numbers and claims of a paper, and reports every mistake with its position."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache, partial
from pathlib import Path as FilePath
from typing import Any

from ..errors import Mark, PaperFileError
from ..model.keys import did_you_mean
from ..model.papers.file import ColumnFormula, NumberEntry, NumberFormula, PaperFile, TableEntry
from ..model.papers.formula import Formula
from ..model.papers.published import (
    Derivation,
    Likeness,
    PaperClaim,
    PlaceInReport,
    PrintedNumber,
    Published,
    PublishedFigure,
    Quantity,
    Significance,
)
from ..study_file.problems import Path, Problems, read_text
from ..study_file.schema import one_schema
from ..study_file.validate import validate_data
from .layout import BY_METRIC, mistakes_of, printed_table
from .positions import Positions

_SYNTAX = re.compile(r"(.*) \(at line (\d+), column (\d+)\)", re.DOTALL)
_BASE: Mapping[str, tuple[str, str]] = {
    "%": ("share", "0.01"),
    "ms": ("s", "0.001"),
    "us": ("s", "0.000001"),
    "MB": ("B", "1000000"),
    "blocks/s": ("B/s", "1024"),  # the blocks of vmstat
    "1/s": ("", "1"),
}
"""By printed unit, the base unit and the factor to it. Numbers in other units are not converted."""


def load(path: FilePath) -> Published:
    """Return the numbers and claims in a file.

    Raises UsageError if the file cannot be read, and PaperFileError with the position of every mistake in it.
    """
    remedy = "name a file, or a paper that nearmetal papers lists"
    return read(read_text(path, _problems(str(path)), what="it", remedy=remedy), str(path))


def read(text: str, name: str) -> Published:
    """Return the numbers and claims in the text of a file.

    name: name of the file in messages.

    Raises PaperFileError with the position of every mistake.
    """
    from ..study_file.sections import made, section_of

    problems = _problems(name)
    data = _parse(text, problems)
    positions = cache(partial(Positions, text))  # read only if there are mistakes

    def locate(path: Path, *, key: bool = False) -> Mark:
        return positions().of(path, key=key)

    def mistake(path: Path, what: str) -> None:
        problems.add(locate(path), path, what)

    section = validate_data(section_of(PaperFile), data, locate, (), problems)
    problems.check()
    assert section is not None, "every mistake is a problem"
    published = _Reader(made(section), data, mistake).published()
    problems.check()
    return published


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the files that load() reads."""
    from ..study_file.sections import section_of

    return one_schema(section_of(PaperFile), "Numbers and claims of a paper, for nearmetal")


def _problems(name: str) -> Problems:
    return Problems(name, PaperFileError, sign=" =")


def _parse(text: str, problems: Problems) -> dict[str, Any]:
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as e:
        found = _SYNTAX.fullmatch(str(e))
        mark = Mark(int(found[2]), int(found[3])) if found else Mark.after(text.rstrip("\r\n"))
        problems.stop(mark, f"not readable as TOML: {found[1] if found else e}")
    except RecursionError:
        problems.stop(Mark(1, 1), "nested too deep")
    except (ValueError, ArithmeticError) as e:  # int() refuses thousands of digits
        problems.stop(Mark(1, 1), f"a number that is too long: {e}")


class _Reader:
    """Makes a Published of a file whose keys and values are valid, and checks the names that it uses."""

    def __init__(self, top: PaperFile, data: Mapping[str, Any], mistake: Callable[[Path, str], None]) -> None:
        """top: the contents of the file.
        data: the same contents as tomllib returns them. They show which keys are set.
        mistake: called for each mistake, with its position and a message.
        """
        self.top = top
        self.data = data
        self.mistake = mistake
        self.numbers: dict[str, PrintedNumber] = {}

    def published(self) -> Published:
        """Return the contents of the file. The result is meaningless if there are mistakes."""
        top = self.top
        figures: list[PublishedFigure] = []
        for at, table in enumerate(top.table):
            self._table(table, ("table", at))
            self._shown(table.shown, ("table", at, "shown"))
            figures += _shown_table(table)
        for at, number in enumerate(top.number):
            self._text_number(number, ("number", at))
            self._shown(number.shown, ("number", at, "shown"))
            figures += _shown_number(number)
        derivations = [*self._derived(), *self._follows()]
        for i, significance in enumerate(top.significance):
            self._significance(significance, ("significance", i))
        claims = tuple(self._claim(c, i) for i, c in enumerate(top.claim))
        return Published(
            paper=top.paper,
            figures=(*figures, *_shown_claims(claims)),
            tables=tuple(t for table in top.table if (t := printed_table(table)) is not None),
            numbers=self.numbers,
            derivations=tuple(d for d in derivations if d is not None),
            significances=top.significance,
            claims=claims,
        )

    def _add(self, number: PrintedNumber, path: Path) -> None:
        if number.name in self.numbers:
            self.mistake(path, f'the name "{number.name}" is used twice')
        self.numbers.setdefault(number.name, number)

    def _table(self, table: TableEntry, path: Path) -> None:
        names = (*table.columns, *table.rows)
        if table.shown is not None and table.shown.rows == BY_METRIC:
            for below, what in mistakes_of(table, table.shown):
                self.mistake((*path, "shown", *below), what)
        if table.shown is not None and table.shown.rows == "workload":
            for row in table.rows:
                if row not in table.shown.ran:
                    self.mistake((*path, "shown", "rows"), f'"ran" has no entry for the row "{row}"')
        for name in table.units:
            if name not in names:
                self.mistake((*path, "units", name), f"no such column or row{did_you_mean(name, names)}")
        for row, values in table.rows.items():
            if len(values) != len(table.columns):
                words = f"{len(values)} numbers for {len(table.columns)} columns"
                self.mistake((*path, "rows", row), words)
            for at, (column, value) in enumerate(zip(table.columns, values, strict=False)):
                number = _printed(
                    f"{table.name}/{row}/{column}",
                    f"{table.what}, {row}, {column}",
                    value,
                    table.unit_of(row, column),
                    table.source,
                )
                self._add(number, (*path, "rows", row, at))

    def _shown(self, shown: PlaceInReport | None, path: Path) -> None:
        by_metric = getattr(shown, "rows", "") == BY_METRIC
        if shown is not None and shown.quantity is Quantity.VALUE and not shown.metric and not by_metric:
            self.mistake((*path, "quantity"), "a value needs the metric that it is of")

    def _text_number(self, entry: NumberEntry, path: Path) -> None:
        low, high = entry.value
        ends = (
            ((entry.name, low),)
            if low == high
            else ((f"{entry.name}.low", low), (f"{entry.name}.high", high))
        )
        for name, value in ends:
            number = _printed(name, entry.what, value, entry.unit, entry.source, entry.rounding)
            self._add(number, (*path, "name"))

    def _named(self, name: str, path: Path) -> str:
        """Return `name` unchanged. Add a mistake if no number has this name.

        path: position of the name in the file.
        """
        if name not in self.numbers:
            self.mistake(path, f'no number "{name}"{did_you_mean(name, tuple(self.numbers))}')
        return name

    def _derived(self) -> Iterator[Derivation | None]:
        for at, table in enumerate(self.top.table):
            for number, rule in enumerate(table.derive):
                path: Path = ("table", at, "derive", number)
                if rule.column not in table.columns:
                    self.mistake((*path, "column"), f'no column "{rule.column}"')
                    continue
                for place, row in enumerate(rule.rows):
                    if row not in table.rows:
                        self.mistake((*path, "rows", place), f'no row "{row}"')
                for row in rule.rows or table.rows:
                    if row in table.rows:
                        yield self._derivation(rule, f"{table.name}/{row}/{rule.column}", path, table, row)

    def _follows(self) -> Iterator[Derivation | None]:
        for at, rule in enumerate(self.top.follows):
            path: Path = ("follows", at)
            yield self._derivation(rule, self._named(rule.result, (*path, "result")), path)

    def _derivation(
        self,
        rule: ColumnFormula | NumberFormula,
        result: str,
        path: Path,
        table: TableEntry | None = None,
        row: str = "",
    ) -> Derivation | None:
        def resolve(name: str) -> str:
            if table is not None and name in table.columns:
                return f"{table.name}/{row}/{name}"
            return self._named(name, (*path, "formula"))

        try:
            formula = Formula.parse(rule.formula, resolve)
        except ValueError as e:
            self.mistake((*path, "formula"), str(e))
            return None
        if result in formula.names:
            self.mistake((*path, "formula"), f'the number "{result}" follows from itself')
        if len(formula.names) > MOST_NAMES:
            self.mistake((*path, "formula"), f"more than {MOST_NAMES} different numbers")
        return Derivation(
            rule=rule.rule, result=result, formula=formula, relation=rule.relation, note=rule.note
        )

    def _significance(self, entry: Significance, path: Path) -> None:
        for key in ("mean", "deviation", "n", "other_mean", "other_deviation", "difference"):
            if name := getattr(entry, key):
                self._named(name, (*path, key))
        if bool(entry.other_mean) == bool(entry.difference):
            self.mistake(path, "needs either other_mean or difference")

    def _claim(self, entry: PaperClaim, at: int) -> PaperClaim:
        path: Path = ("claim", at)
        number = next((n for n in self.top.number if n.name == entry.number), None)
        if entry.number and number is None:
            names = tuple(n.name for n in self.top.number)
            self.mistake(
                (*path, "number"), f'no [[number]] "{entry.number}"{did_you_mean(entry.number, names)}'
            )
        if number is not None and number.unit != "%":
            self.mistake((*path, "number"), "the number of a claim is in percent")
        low = high = None
        if number is not None:
            first, last = (_printed("", "", v, "%", "", number.rounding) for v in number.value)
            low, high = first.band[0] / 100, last.band[1] / 100
        # Conditions that the claim does not state are those of the paper. An empty one counts as stated.
        given = self.data["claim"][at].get("conditions", {})
        conditions = {name: getattr(entry.conditions, name) for name in given}
        return replace(
            entry,
            low=low,
            high=high,
            exact=number is not None and number.value[0] == number.value[1],
            printed="" if number is None else _percent(number.value),
            conditions=replace(self.top.paper.conditions, **conditions),
        )


MOST_NAMES = 12
"""Largest number of different numbers in a formula: it is evaluated for all combinations of their least and
largest values."""


def _percent(value: tuple[Decimal, Decimal]) -> str:
    low, high = value
    return f"{low} %" if low == high else f"{low} to {high} %"


def _printed(
    name: str, what: str, value: Decimal, unit: str, source: str, rounding: Decimal | None = None
) -> PrintedNumber:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "the number is finite"
    count = exponent >= 0 and not unit
    half = rounding if rounding is not None else Decimal(0) if count else Decimal(5).scaleb(exponent - 1)
    return PrintedNumber(
        name=name,
        what=what,
        value=float(value),
        rounding=float(half),
        text=f"{value:f}",
        unit=unit,
        source=source,
    )


def _in_base(value: Decimal, unit: str) -> tuple[float, str]:
    base, factor = _BASE.get(unit, (unit, "1"))
    return float(value * Decimal(factor)), base


SHARE_OF = "share of "
"""Beginning of the name of a column with shares of the time. The rest of the name is a phase."""


def _shown_table(table: TableEntry) -> Iterator[PublishedFigure]:
    shown = table.shown
    if shown is None or shown.rows == BY_METRIC:
        return
    for row, values in table.rows.items():
        for column, value in zip(table.columns, values, strict=False):
            number, unit = _in_base(value, table.unit_of(row, column))
            quantity, what = shown.quantity, f"{table.what} {column}, {row}"
            phase, arm, size, workloads = f"{shown.of}.{column}", row, "", shown.workloads
            if shown.rows == "workload":
                phase, arm, workloads = "", column, (shown.ran.get(row, ""),)
            if shown.rows == "benchmark":
                kernel, _, size = row.partition("-")
                phase, arm, workloads = column.removeprefix(SHARE_OF), shown.arm, (kernel.lower(),)
                quantity = Quantity.TIME_SHARE if unit == "share" else quantity
                what = f"{phase} of {row}, {arm}"
            yield PublishedFigure(
                part=shown.part,
                what=what,
                quantity=quantity,
                low=number,
                high=number,
                unit=unit,
                source=table.source,
                likeness=shown.likeness,
                differs=shown.differs,
                workloads=workloads,
                size=size,
                arm=arm,
                phase=phase,
                metric=shown.metric,
                text=f"{value} {table.unit_of(row, column)}".rstrip(),
            )


def _shown_number(entry: NumberEntry) -> Iterator[PublishedFigure]:
    if entry.shown is None:
        return
    (low, unit), (high, _) = (_in_base(v, entry.unit) for v in entry.value)
    yield PublishedFigure(
        what=entry.what,
        low=low,
        high=high,
        unit=unit,
        source=entry.source,
        text=" to ".join(dict.fromkeys(map(str, entry.value))) + f" {entry.unit}".rstrip(),
        **vars(entry.shown),
    )


def _shown_claims(claims: Sequence[PaperClaim]) -> Iterator[PublishedFigure]:
    """Yield a figure for each claim that has a printed number and is tested by a part of a study."""
    for claim in claims:
        if claim.part and claim.printed:
            low, _, high = claim.printed.removesuffix(" %").partition(" to ")
            yield PublishedFigure(
                part=claim.part,
                what=claim.what,
                quantity=claim.quantity,
                low=float(Decimal(low) / 100),
                high=float(Decimal(high or low) / 100),
                unit="share",
                source=claim.source,
                likeness=Likeness.LIKE,
                differs=claim.differs,
                workloads=claim.workloads,
                size=claim.size,
                arm=claim.arm,
                baseline=claim.baseline,
                metric=claim.metric,
            )

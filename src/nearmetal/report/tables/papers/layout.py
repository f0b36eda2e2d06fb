"""Tables in the layout of a paper: our values beside the printed ones. No I/O.

No value of a paper is used in an estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ....analysis.published import published_column
from ....model.papers.published import PrintedColumn, PrintedRow, PrintedTable
from ....model.record import JsonValue
from ....model.result import Analysis, Cell, Interval
from ....model.study import Study
from ....records.json_files import finite
from ....units import show, show_effect
from ...record_index import RecordIndex
from ...sheet import Grid
from ...text import one_line
from ..cells import has_interval, side

NOTHING = "not measured"


@dataclass(frozen=True, kw_only=True)
class LaidOutCell:
    """A printed cell and our value.

    printed: text of the printed cell; '' if there is none.
    text: our value as text; '' if no environment of the study corresponds to the column.
    value: our value in base units, or an overhead by the paper's formula as a fraction; None if it is no
        number.
    """

    printed: str
    text: str = ""
    value: Interval | None = None

    def as_json(self) -> dict[str, JsonValue]:
        ends = {} if self.value is None else {k: finite(v) for k, v in vars(self.value).items()}
        return {"printed": self.printed or None, "text": self.text or None, **ends}


@dataclass(frozen=True, kw_only=True)
class LaidOutTable:
    """A printed table with our values.

    arms: titles of our arms, by the name that the paper uses.
    rows: (name, cells), with a cell for each column.
    """

    table: PrintedTable
    arms: Mapping[str, str]
    rows: tuple[tuple[str, tuple[LaidOutCell, ...]], ...]

    def as_json(self) -> dict[str, JsonValue]:
        t = self.table
        return {
            "what": t.what,
            "where": t.source,
            "likeness": t.likeness.value,
            "differs": t.differs,
            "columns": [
                {"name": c.name, "arm": c.arm, "overhead": bool(c.baseline), "ours": self.arms.get(c.arm)}
                for c in t.columns
            ],
            "rows": [{"name": name, "cells": [c.as_json() for c in cells]} for name, cells in self.rows],
        }

    def grid(self) -> Grid:
        """Return the table to show. Each column with our values is followed by the printed column."""
        heads, ours = ["metric"], [c.arm in self.arms for c in self.table.columns]
        for column, measured in zip(self.table.columns, ours, strict=True):
            here = f"{column.name}: {self.arms.get(column.arm, '')}"
            here += ", by the paper's formula" if column.baseline else ""
            heads += [here, f"{column.name}, paper"] if measured else [f"{column.name}, paper"]
        rows = []
        for name, cells in self.rows:
            row = [name]
            for cell, measured in zip(cells, ours, strict=True):
                row += [cell.text, cell.printed] if measured else [cell.printed]
            rows.append(tuple(row))
        t = self.table
        return Grid(
            title=f"{t.source}, {t.what}, and what was measured here ({t.likeness}; {t.differs})",
            heads=tuple(heads),
            rows=tuple(rows),
            numbers=True,
        )


def laid_out(
    tables: Sequence[PrintedTable],
    places: Mapping[str, str],
    study: Study | None,
    analysis: Analysis | None,
    records: RecordIndex,
) -> tuple[LaidOutTable, ...]:
    """Return the tables with our values.

    places: our arm, by the paper's name for it.
    study, analysis: None if nothing was measured. The tables then have the printed cells only.
    """
    return tuple(_laid_out(t, places, study, analysis, records) for t in tables)


def _laid_out(
    table: PrintedTable,
    places: Mapping[str, str],
    study: Study | None,
    analysis: Analysis | None,
    records: RecordIndex,
) -> LaidOutTable:
    wanted = dict.fromkeys(c.arm for c in table.columns if c.arm in places)
    if study is None or analysis is None:
        rows = ((r.name, tuple(LaidOutCell(printed=text) for text in r.texts)) for r in table.rows)
        return LaidOutTable(table=table, arms={}, rows=tuple(rows))
    ran = {w.name for w in study.workloads if w.ran in table.workloads}
    cells = [c for c in analysis.cells if c.workload in ran]
    ours = partial(_ours, study=study, places=places, cells=cells, ran=ran, records=records)
    return LaidOutTable(
        table=table,
        arms={word: side(study, places[word]).title for word in wanted},
        rows=tuple(
            (
                row.name,
                tuple(
                    replace(ours(row, column), printed=text)
                    for column, text in zip(table.columns, row.texts, strict=True)
                ),
            )
            for row in table.rows
        ),
    )


def _ours(
    row: PrintedRow,
    column: PrintedColumn,
    *,
    study: Study,
    places: Mapping[str, str],
    cells: Sequence[Cell],
    ran: set[str],
    records: RecordIndex,
) -> LaidOutCell:
    """Return our value for one cell. The field `printed` of the result is ''."""
    arm, baseline = places.get(column.arm, ""), places.get(column.baseline, "")
    if not arm or (column.baseline and not baseline):
        return LaidOutCell(printed="")
    if row.fact:
        return LaidOutCell(printed="", text="" if column.baseline else _fact(row.fact, arm, ran, records))
    own = [c for c in cells if c.metric == row.metric]
    if column.baseline:
        return _overhead(next((c for c in own if (c.arm, c.baseline) == (arm, baseline)), None))
    cell = next((c for c in own if c.n and arm in (c.arm, c.baseline)), None)
    if cell is None:
        return LaidOutCell(printed="", text=NOTHING)
    value = cell.value if arm == cell.arm else cell.baseline_value
    ranks = next(a.placement.ranks for a in study.arms() if a.name == arm)
    if row.total and ranks > 1:
        value = Interval(centre=ranks * value.centre, low=ranks * value.low, high=ranks * value.high)
    return LaidOutCell(printed="", text=show(value.centre, cell.unit), value=value)


def _overhead(cell: Cell | None) -> LaidOutCell:
    """Return our overhead and its interval by the formula of published tables (published_column())."""
    if cell is None or not cell.n:
        return LaidOutCell(printed="", text=NOTHING)
    value = published_column(cell)
    shown = show_effect(value.centre, value.low, value.high) if has_interval(cell) else "no interval yet"
    return LaidOutCell(printed="", text=f"{shown}, n {cell.n}", value=value)


def _fact(fact: str, arm: str, ran: set[str], records: RecordIndex) -> str:
    """Return the different values of a fact that the runs of an arm reported, joined by 'or'.

    ran: workloads whose runs are read.
    """
    facts = (t.facts.get(name, {}).get(fact) for t in records.trials(arm) for name in sorted(ran))
    texts = dict.fromkeys(f"{f:,}" if isinstance(f, int) else str(f) for f in facts if f is not None)
    return one_line(" or ".join(texts)) or NOTHING

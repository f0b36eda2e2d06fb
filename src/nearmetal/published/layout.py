"""Converts tables of papers that reports show in the paper's layout, and checks the names in them."""

from __future__ import annotations

from collections.abc import Iterator

from ..model.keys import did_you_mean
from ..model.papers.file import TableEntry, TableInReport
from ..model.papers.published import PrintedColumn, PrintedRow, PrintedTable, Quantity

BY_METRIC = "metric"


def mistakes_of(table: TableEntry, shown: TableInReport) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the mistakes in a table whose rows are metrics, each as (path below `shown`, message)."""
    if shown.quantity is not Quantity.VALUE:
        yield ("quantity",), "a table in the paper's layout has values: value"
    if not shown.environments:
        yield ("rows",), '"environments" names no column'
    names: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
        ("metrics", tuple(shown.metrics), tuple(table.rows)),
        ("totals", shown.totals, tuple(shown.metrics)),
        ("environments", tuple(shown.environments), table.columns),
        ("overheads", shown.overheads, tuple(shown.environments)),
    )
    for key, used, known in names:
        for name in used:
            if name not in known:
                yield (key,), f'no such name: "{name}"{did_you_mean(name, known)}'
    for row in table.rows:
        if row not in shown.metrics:
            yield ("metrics",), f'"metrics" names no metric for the row "{row}"'
    for fact in shown.facts:
        if len(fact.printed) != len(table.columns):
            words = f"{len(fact.printed)} texts for {len(table.columns)} columns"
            yield ("facts", fact.name, "printed"), words
    if shown.overheads and not shown.baseline:
        yield ("overheads",), "overheads need the baseline that they are against"
    elif shown.overheads and shown.baseline not in shown.environments.values():
        yield ("baseline",), f'no column has the environment "{shown.baseline}"'


def printed_table(table: TableEntry) -> PrintedTable | None:
    """Return a table for reports, which show it in the paper's layout; None if its rows are not metrics."""
    shown = table.shown
    if shown is None or shown.rows != BY_METRIC:
        return None
    columns = tuple(
        PrintedColumn(
            name=name,
            arm=shown.environments.get(name, ""),
            baseline=shown.baseline if name in shown.overheads else "",
        )
        for name in table.columns
    )
    facts = (PrintedRow(name=f.name, fact=f.fact, texts=f.printed) for f in shown.facts)
    metrics = (
        PrintedRow(
            name=name,
            metric=shown.metrics.get(name, ""),
            total=name in shown.totals,
            texts=tuple(
                f"{value:f} {table.unit_of(name, column)}".rstrip()
                for column, value in zip(table.columns, values, strict=False)
            ),
        )
        for name, values in table.rows.items()
    )
    return PrintedTable(
        part=shown.part,
        what=table.what,
        source=table.source,
        likeness=shown.likeness,
        differs=shown.differs,
        workloads=shown.workloads,
        columns=columns,
        rows=(*facts, *metrics),
    )

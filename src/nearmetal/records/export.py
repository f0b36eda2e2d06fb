"""Export a results directory as bytes for other programs. No file is written."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from enum import StrEnum
from math import isfinite
from typing import Any, assert_never

from ..model.record import TrialRecord
from ..model.result import Cell
from .benchfmt import benchfmt
from .codec import to_dict
from .directory import ResultsDirectory
from .plan_file import plan_form
from .tables import value_columns


class ExportFormat(StrEnum):
    """Export formats. CSV, PARQUET: tidy, one line per value. JSON: records, cells and provenance. BENCHFMT:
    for benchstat."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    BENCHFMT = "benchfmt"


def export(directory: ResultsDirectory, cells: Sequence[Cell], format: ExportFormat) -> bytes:
    """Return the records of a directory in one format, in base units.

    cells: the analysis, which only JSON can contain.
    Raises RecordsError.
    """
    records = directory.trials()
    match format:
        case ExportFormat.CSV:
            return to_csv(records)
        case ExportFormat.JSON:
            return to_json(directory, records, cells)
        case ExportFormat.PARQUET:
            return to_parquet(records)
        case ExportFormat.BENCHFMT:
            return benchfmt(records, study=directory.plan().study, provenance=directory.provenance)
    assert_never(format)


def to_csv(records: Iterable[TrialRecord]) -> bytes:
    """Return RFC 4180 text with a header; numbers in the shortest exact form; empty = missing."""
    columns = value_columns(records)
    names = columns.names()
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(names)
    writer.writerows(zip(*(getattr(columns, name) for name in names), strict=True))
    return out.getvalue().encode()


def to_json(directory: ResultsDirectory, records: Iterable[TrialRecord], cells: Sequence[Cell]) -> bytes:
    """Return one object: plan, provenance, cells, records. Infinite ends of intervals are null."""
    whole = {
        "results_dir": directory.name,
        "plan": plan_form(directory.plan()),
        "provenance": directory.provenance,
        "cells": [finite_or_none(asdict(c)) for c in cells],
        "records": [to_dict(r) for r in records],
    }
    return json.dumps(whole, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def to_parquet(records: Iterable[TrialRecord]) -> bytes:
    """Return the same columns as CSV, typed and compressed with zstd."""
    import polars as pl

    columns = value_columns(records)
    text, whole, real = pl.String, pl.Int64, pl.Float64
    kinds: dict[str, Any] = dict.fromkeys(columns.names(), text)
    kinds |= dict.fromkeys(("block", "attempt", "position", "index"), whole)
    kinds |= dict.fromkeys(("begin", "end", "value", "seconds"), real)
    kinds["aa"] = pl.Boolean
    frame = pl.DataFrame({name: getattr(columns, name) for name in columns.names()}, schema=kinds)
    out = io.BytesIO()
    frame.write_parquet(out, compression="zstd")
    return out.getvalue()


def finite_or_none(value: Any) -> Any:
    """Replace infinite numbers and NaN by None, since JSON cannot represent them."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {k: finite_or_none(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_or_none(v) for v in value]
    return value

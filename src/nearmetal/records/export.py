"""Export a results directory as bytes for other programs. No file is written."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import assert_never

from ..model.record import TrialRecord
from ..model.result import Cell
from ..plain_text import clean, spreadsheet_text
from .benchfmt import benchfmt
from .codec import to_dict
from .directory import ResultsDirectory
from .json_files import to_json
from .plan_file import plan_form
from .tables import COLUMNS, value_rows


class ExportFormat(StrEnum):
    """Export formats.

    CSV, PARQUET: a table with one row per value.
    JSON: one object with plan, provenance, cells and records.
    BENCHFMT: the Go benchmark format, for benchstat.
    """

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    BENCHFMT = "benchfmt"


def export(directory: ResultsDirectory, cells: Sequence[Cell], format: ExportFormat) -> bytes:
    """Return the records of a directory in one format, in base units.

    cells: the results of the analysis. Only the format JSON contains them.

    Raises RecordsError.
    """
    records = directory.trials()
    match format:
        case ExportFormat.CSV:
            return to_csv(records)
        case ExportFormat.JSON:
            return whole_json(directory, records, cells)
        case ExportFormat.PARQUET:
            return to_parquet(records)
        case ExportFormat.BENCHFMT:
            return benchfmt(records, study=directory.plan().study, provenance=directory.provenance)
    assert_never(format)


def to_csv(records: Iterable[TrialRecord]) -> bytes:
    """Return the values as RFC 4180 text with a header (tables.COLUMNS). Numbers have the shortest exact
    form; a missing value is empty. No spreadsheet interprets a text as a formula."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    writer.writerows(
        [spreadsheet_text(value) if isinstance(value, str) else value for value in row]
        for row in value_rows(records)
    )
    return out.getvalue().encode()


def whole_json(directory: ResultsDirectory, records: Iterable[TrialRecord], cells: Sequence[Cell]) -> bytes:
    """Return one object: plan, provenance, cells, records. Infinite ends of intervals are null."""
    whole = {
        "results_dir": directory.name,
        "plan": plan_form(directory.plan()),
        "provenance": directory.provenance,
        "cells": [to_json(c) for c in cells],
        "records": [to_dict(r) for r in records],
    }
    return clean(json.dumps(whole, ensure_ascii=False, allow_nan=False)).encode() + b"\n"


def to_parquet(records: Iterable[TrialRecord]) -> bytes:
    """Return a Parquet file with the same columns as to_csv(), typed and compressed with zstd."""
    import polars as pl

    columns = list(zip(*value_rows(records), strict=True)) or [()] * len(COLUMNS)
    frame = pl.DataFrame(dict(zip(COLUMNS, columns, strict=True)), schema=COLUMNS)
    out = io.BytesIO()
    frame.write_parquet(out, compression="zstd")
    return out.getvalue()

"""Exports: one line per value, the same numbers, and the Go benchmark format as benchstat reads it."""

import csv
import io
import json
import math
from pathlib import Path

import polars as pl
import pytest

from nearmetal.model.change import replace
from nearmetal.model.record import Row, Status, TrialRecord
from nearmetal.model.study import Better
from nearmetal.records import ResultsDirectory
from nearmetal.records.benchfmt import benchfmt, unit
from nearmetal.records.export import ExportFormat, export, to_csv
from nearmetal.records.json_files import to_json
from nearmetal.records.tables import COLUMNS, value_rows
from nearmetal.testing.simulate import PLAIN

LATENCY = Row(
    workload="ping-pong",
    metric="latency",
    unit="s",
    better=Better.LOWER,
    values=(3e-7, 1e-7, 2e-7),
    status=Status.OK,
)
FAILED = replace(
    LATENCY, workload="ep.S", metric="time", values=(), status=Status.FAILED, reason="not, verified"
)
RECORDS = (
    replace(PLAIN, rows=(*PLAIN.rows, LATENCY, FAILED), flags=("disturbed: a", "b")),
    replace(PLAIN, trial="3.native/1x2.aa", aa=True, position=1),
    replace(
        PLAIN,
        trial="3.c-9/2x1",
        arm="c-9/2x-1",
        rows=(),
        status=Status.FAILED,
        reason="no launch",
        position=2,
    ),
)


@pytest.fixture
def directory(tmp_path: Path) -> ResultsDirectory:
    made = ResultsDirectory.create(tmp_path, "quick", study_yaml="")
    made.freeze(
        seed=1,
        arms=["native/1x2"],
        provenance={"cpu": {"model": "AMD\n EPYC"}, "kernel": {"release": "6.18"}},
    )
    with made.writer() as writer:
        for r in RECORDS:
            writer.append(r)
    return made


def test_csv_has_one_line_per_value_and_loses_no_failure(directory: ResultsDirectory) -> None:
    lines = list(csv.DictReader(io.StringIO(export(directory, (), ExportFormat.CSV).decode())))
    assert [(x["arm"], x["workload"], x["index"], x["value"]) for x in lines] == [
        ("native/1x2", "stream", "0", "71000000000.0"),
        ("native/1x2", "stream", "1", "72000000000.0"),
        ("native/1x2", "ping-pong", "0", "3e-07"),
        ("native/1x2", "ping-pong", "1", "1e-07"),
        ("native/1x2", "ping-pong", "2", "2e-07"),
        ("native/1x2", "ep.S", "", ""),
        ("native/1x2", "stream", "0", "71000000000.0"),
        ("native/1x2", "stream", "1", "72000000000.0"),
        ("c-9/2x-1", "", "", ""),
    ]
    assert [x["seconds"] for x in lines[:3]] == ["0.01", "0.02", ""]
    assert lines[5]["reason"] == "not, verified"
    assert lines[8]["reason"] == "no launch"
    assert lines[0]["flags"] == "disturbed: a; b"
    assert (lines[0]["environment"], lines[0]["placement"]) == ("native", "1x2")


def test_parquet_is_the_same_table_typed(directory: ResultsDirectory) -> None:
    frame = pl.read_parquet(io.BytesIO(export(directory, (), ExportFormat.PARQUET)))
    assert frame.columns == list(COLUMNS)
    assert frame.rows() == list(value_rows(RECORDS))
    assert frame.schema["value"] == pl.Float64
    assert frame.schema["aa"] == pl.Boolean


def test_no_records_is_an_empty_table() -> None:
    assert to_csv(()).decode().splitlines() == [",".join(COLUMNS)]


def test_json_holds_records_plan_and_provenance(directory: ResultsDirectory) -> None:
    data = json.loads(export(directory, (), ExportFormat.JSON))
    assert data["plan"]["seed"] == 1
    assert data["provenance"]["kernel"] == {"release": "6.18"}
    assert [r["trial"] for r in data["records"]] == [r.trial for r in RECORDS]
    assert data["cells"] == []


def test_json_writes_infinite_ends_as_null() -> None:
    assert to_json({"a": (1.0, math.inf), "b": [math.nan, {"c": -math.inf}]}) == {
        "a": [1.0, None],
        "b": [None, {"c": None}],
    }


def test_benchfmt_is_what_benchstat_reads(directory: ResultsDirectory) -> None:
    text = export(directory, (), ExportFormat.BENCHFMT).decode()
    assert text.splitlines() == [
        "study: quick",
        "cpu: AMD EPYC",
        "kernel: 6.18",
        "Unit B/s better=higher",
        "Unit sec/op better=lower",
        "BenchmarkStreamTriad/env=native/placement=1x2 2 71500000000.0 B/s",
        "BenchmarkPingPongLatency/env=native/placement=1x2 3 2e-07 sec/op",
        "BenchmarkStreamTriad/env=native/placement=1x2/aa=2 2 71500000000.0 B/s",
    ]


def lines_of(*records: TrialRecord) -> list[str]:
    text = benchfmt(records, study="s", provenance={}).decode()
    return [line for line in text.splitlines() if line.startswith("Benchmark")]


def test_benchfmt_uses_only_the_attempt_of_a_block_that_counts() -> None:
    first, second = replace(PLAIN, attempt=1, arm="a/1"), replace(PLAIN, attempt=2, arm="b/1")
    assert [line.split("/")[1] for line in lines_of(second, first)] == ["env=a"]


def test_benchfmt_names_cannot_be_misread() -> None:
    odd = replace(PLAIN, arm="rocky-9=x y/two-2")
    assert lines_of(odd)[0].startswith("BenchmarkStreamTriad/env=rocky-9_x_y/placement=two_2 ")


def test_benchfmt_tells_two_metrics_of_one_name_apart() -> None:
    row = PLAIN.rows[0]
    both = (replace(row, workload="a-b", metric="c"), replace(row, workload="a", metric="b-c"))
    names = [line.split("/")[0] for line in lines_of(replace(PLAIN, rows=both))]
    assert names == ["BenchmarkABC", "BenchmarkABC_2"]


def test_a_unit_that_improves_both_ways_has_no_direction() -> None:
    row = PLAIN.rows[0]
    both = (row, replace(row, metric="other", better=Better.LOWER))
    assert b"Unit" not in benchfmt([replace(PLAIN, rows=both)], study="s", provenance={})


@pytest.mark.parametrize(
    ("base", "said"), [("s", "sec/op"), ("B/s", "B/s"), ("FLOP/s", "FLOP/s"), ("a b", "a-b"), ("", "value")]
)
def test_units_of_benchstat(base: str, said: str) -> None:
    assert unit(base) == said

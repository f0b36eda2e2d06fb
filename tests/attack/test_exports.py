"""No export lets a hostile text act: as a formula, a macro, a script, or a line or column of its own."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import polars as pl
import pytest
from tests.attack.hostile_results import FORGED, HOSTILE, make_hostile

from nearmetal.api.results import analysed, write_report
from nearmetal.model.change import replace
from nearmetal.records import ResultsDirectory
from nearmetal.records.benchfmt import benchfmt
from nearmetal.records.export import ExportFormat, export, to_csv, to_parquet
from nearmetal.testing.simulate import PLAIN

pytestmark = pytest.mark.attack
HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
MACROS = re.compile(r"\\(input|include|write|openout|immediate|catcode)\b")
FORMULAS = ("=1+1", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "\u200b=1", '="a"\n=2')
TEXTS = (
    *FORMULAS,
    HOSTILE,
    "\\input{/etc/passwd}\\write18{id}^^M",
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "![x](javascript:alert(1))|a|\n# head\n",
    'x,"\r\ny',
)


def record(text: str) -> Any:
    """Return a record with this text wherever a record takes any text."""
    row = replace(PLAIN.rows[0], workload=text, metric=text, unit=text)
    return replace(PLAIN, arm=f"{text}/{text}", reason=text, flags=(text,), rows=(row,), run=text, trial=text)


@pytest.mark.parametrize("text", TEXTS)
def test_a_spreadsheet_finds_no_formula(text: str) -> None:
    head, *rows = csv.reader(io.StringIO(to_csv([record(text)]).decode(), newline=""))
    assert len(rows) == len(PLAIN.rows[0].values) and {len(row) for row in rows} == {len(head)}
    for row in rows:
        for name, cell in zip(head, row, strict=True):
            if not re.fullmatch(r"-?[0-9.e+-]+", cell):
                assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")), (name, cell)
            assert "\n" not in cell and "\x1b" not in cell


def test_numbers_stay_numbers() -> None:
    negative = replace(PLAIN, rows=(replace(PLAIN.rows[0], values=(-1.5, 1e-300)),))
    rows = list(csv.DictReader(io.StringIO(to_csv([negative]).decode())))
    assert [float(row["value"]) for row in rows] == [-1.5, 1e-300]


@pytest.mark.parametrize("text", TEXTS)
def test_benchstat_reads_no_forged_line(text: str) -> None:
    data = benchfmt(
        [record(text)], study=text, provenance={"cpu": {"model": text}, "kernel": {"release": text}}
    )
    lines = data.decode().splitlines()
    assert [line.split(":")[0].split()[0].rstrip("0123456789") for line in lines[:3]] == [
        "study",
        "cpu",
        "kernel",
    ]
    assert len(lines) == 5 and lines[3].startswith("Unit ") and lines[4].startswith("Benchmark")
    assert len(lines[4].split(" ")) == 4


@pytest.mark.parametrize("text", TEXTS)
def test_a_table_keeps_its_texts(text: str) -> None:
    frame = pl.read_parquet(io.BytesIO(to_parquet([record(text)])))
    assert set(frame["run"]) == {text} and frame.height == len(PLAIN.rows[0].values)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The report and the exports of a hostile results directory, by ending."""
    directory: ResultsDirectory = make_hostile(
        tmp_path_factory.mktemp("hostile"), {"cpu": {"model": TEXTS[-4]}, "kernel": {"release": TEXTS[-3]}}
    )
    found = analysed(directory)
    texts = {path.suffix: path.read_text() for path in write_report(found) if path.is_file()}
    exports = {form.value: export(directory, found.analysis.cells, form) for form in ExportFormat}
    return texts | {form: data.decode(errors="replace") for form, data in exports.items()}


def test_every_form_is_written_plainly(written: dict[str, str]) -> None:
    for form in (".html", ".md", ".tex", ".csv", "csv", "json", "benchfmt"):
        text = written[form].replace("\r\n", "\n")
        assert not re.search(
            r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]", text
        ), form
        forged = [line for line in text.splitlines() if line.strip().startswith(FORGED)]
        assert not forged or form == ".html", form  # a browser ignores line breaks


def test_json_is_a_document(written: dict[str, str]) -> None:
    assert HOSTILE in json.loads(written["json"])["plan"]["study"]


def test_tex_runs_no_macro_of_a_text(written: dict[str, str]) -> None:
    live = [line for line in written[".tex"].splitlines() if not line.startswith("%")]
    assert not [
        line for line in live if re.search(r"\\(input|include|write|openout|immediate|catcode)\b", line)
    ]


def test_a_page_runs_no_script_of_a_text(written: dict[str, str]) -> None:
    assert "alert(1)</script>" not in written[".html"] and "<img src=x" not in written[".html"]

"""The bytes of every form of the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.report.forms.csv_form import csv_text
from nearmetal.report.forms.json_form import json_form
from nearmetal.report.forms.latex import latex_text
from nearmetal.report.forms.markdown import markdown_text
from nearmetal.report.forms.summary import summary_text
from nearmetal.report.forms.terminal import terminal_text

Golden = Callable[[str, str], None]
RESULTS = "results/quick-2026-11-20T10-03-00"


def test_markdown(golden: Golden) -> None:
    golden("report.md", markdown_text(sample.study(), sample.analysis()))


def test_latex(golden: Golden) -> None:
    golden("report.tex", latex_text(sample.study(), sample.analysis()))


def test_csv(golden: Golden) -> None:
    golden("report.csv", csv_text(sample.analysis()))


def test_csv_before_the_first_look(golden: Golden) -> None:
    golden("early.csv", csv_text(sample.early_analysis()))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_terminal(golden: Golden, width: int) -> None:
    text = terminal_text(
        sample.study(),
        sample.analysis(),
        results_dir=RESULTS,
        report=f"{RESULTS}/report.html",
        width=width,
    )
    golden(f"terminal-{width}.txt", text.plain)


def test_terminal_before_the_first_look(golden: Golden) -> None:
    text = terminal_text(sample.study(), sample.early_analysis(), results_dir=RESULTS, report=None, width=80)
    golden("terminal-early.txt", text.plain)


@pytest.mark.parametrize("width", [80, 100])
def test_summary(golden: Golden, width: int) -> None:
    text = summary_text(
        sample.study(),
        sample.analysis(),
        machine="AMD EPYC, 2 cores, 24 GiB, Linux 6.18, Open MPI 4.1.4",
        when="20 Nov 2026",
        results_dir=RESULTS,
        report=f"{RESULTS}/report.html",
        width=width,
    )
    golden(f"summary-{width}.txt", text.plain)


def test_json(golden: Golden) -> None:
    """Two decided cells and one whose interval is still infinite."""
    whole, early = sample.analysis(), sample.early_analysis()
    mixed = replace(whole, cells=(*whole.cells[2:4], early.cells[0]))
    form = json_form(sample.study(), mixed, results_dir=RESULTS, report=f"{RESULTS}/report.html")
    golden("report.json", json.dumps(form, ensure_ascii=False, allow_nan=False, indent=1) + "\n")

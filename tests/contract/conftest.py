"""What the contract suites share: the compiled programs, Apptainer, a table of backends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.contract.answers import backend_of, table
from tests.contract.apptainer_program import offer_apptainer
from tests.contract.not_here import not_here

from nearmetal.environments import Tools
from nearmetal.host import LocalHost
from nearmetal.host.runtime import cache_directory
from nearmetal.workloads.build import build_tools

TOOLS = "NEARMETAL_TEST_TOOLS"
"""Names the directory of programs that a test session runs with instead."""


def pytest_configure() -> None:
    """Before the suites ask what is installed."""
    offer_apptainer()


@pytest.fixture(scope="session")
def tools() -> Tools:
    """Of the user's own cache, where the suites that run the tool as a user find them too: compiled once."""
    given = os.environ.get(TOOLS)
    built = given or build_tools(LocalHost(), cache_directory(), progress=None).directory
    return Tools(directory=Path(built))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    outcomes = [
        (report.nodeid, outcome)
        for outcome in ("passed", "failed", "error", "skipped")
        for report in terminalreporter.stats.get(outcome, [])
        if isinstance(report, pytest.TestReport)
    ]
    if any(backend_of(test) for test, _ in outcomes):
        for line in table(outcomes):
            terminalreporter.write_line(line)
    for name, why in not_here().items():
        terminalreporter.write_line(f"backend not tested here: {name}: {why}")

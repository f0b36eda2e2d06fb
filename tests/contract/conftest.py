"""What the contract suites share: the launcher and the first process of instances, built once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.answers import backend_of, table
from tests.contract.docker_daemon import docker_daemon
from tests.contract.not_here import not_here

from nearmetal.environments import Tools

KERNELS = Path(__file__).parents[2] / "kernels"
PROGRAMS = ("nm-box", "nm-init", "nm-guest")


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """nm-box, nm-init and nm-guest as CMake builds them, without the kernels, which take longer."""
    build = tmp_path_factory.mktemp("tools")
    for step in (
        ["cmake", "-S", str(KERNELS), "-B", str(build), "-DBUILD_TESTING=OFF"],
        ["cmake", "--build", str(build), "--parallel", "2", "--target", *PROGRAMS],
    ):
        subprocess.run(step, check=True, timeout=120, capture_output=True)
    return Tools(directory=build / "bin")


@pytest.fixture(scope="session")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A daemon that answers, where there can be one."""
    with docker_daemon(tmp_path_factory.mktemp("docker")):
        yield


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

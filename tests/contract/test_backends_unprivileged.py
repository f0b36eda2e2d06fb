"""The same contract, kept for a user without any privilege: the two suites run again as nobody."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
from tests.contract.conftest import TOOLS

from nearmetal.environments import Tools
from nearmetal.host import LocalHost

pytestmark = [pytest.mark.more, pytest.mark.beside]

NOBODY = 65534
HERE = Path(__file__).parent
HOST = LocalHost()


def as_nobody(*argv: str) -> list[str]:
    """By way of env, since setpriv itself still has root's right to read anything when it executes."""
    setpriv = shutil.which("setpriv")
    assert setpriv is not None, "setpriv (util-linux) is missing"
    return [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", "env", *argv]


def python_for_nobody() -> str:
    """An interpreter of our version that nobody may run: ours may lie in a home directory."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"):
        if HOST.run(as_nobody(candidate, "--version"), timeout=600, cwd=Path("/")).ok:
            return candidate
    raise AssertionError(f"no python{version} that an unprivileged user may run")


ATTACHMENTS = "test_network_attachments.py"


@pytest.mark.skipif(os.geteuid() != 0, reason="runs as an unprivileged user already")
@pytest.mark.parametrize("file", ["test_backends.py", ATTACHMENTS, "test_wrapped_programs.py"])
def test_the_contract_holds_without_privileges(file: str, tools: Tools) -> None:
    hold_as_nobody(file, "not alone", tools)


@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0, reason="runs as an unprivileged user already")
def test_unprivileged_runs_leave_nothing_behind(tools: Tools) -> None:
    hold_as_nobody(ATTACHMENTS, "alone", tools)


def hold_as_nobody(file: str, marked: str, tools: Tools) -> None:
    """Runs the tests of a file that are so marked; what failed is told first."""
    with tempfile.TemporaryDirectory(prefix="nm-nobody-", dir="/tmp") as directory:
        os.chown(directory, NOBODY, NOBODY)
        programs = shutil.copytree(tools.directory, f"{directory}/programs")
        done = HOST.run(
            as_nobody(
                *(
                    python_for_nobody(),
                    "-m",
                    "pytest",
                    str(HERE / file),
                    "-q",
                    "-rfEs",
                    *("-m", marked),
                    "-p",
                    "no:cacheprovider",
                ),
                *("--rootdir", str(HERE.parents[1]), "--basetemp", f"{directory}/pytest"),
            ),
            timeout=3000,
            cwd=HERE.parents[1],
            env={
                "HOME": directory,
                TOOLS: programs,
                "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                "XDG_RUNTIME_DIR": directory,
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": f"{HERE.parents[1] / 'src'}:{sysconfig.get_paths()['purelib']}",
            },
        )
    lost = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    assert done.ok, "\n".join([*lost, done.stdout[-6000:], done.stderr[-2000:]])
    assert "skipped" not in done.stdout or "CI" not in os.environ, done.stdout[-2000:]

"""The commands of the page for a new user's own program run as printed, and print what the page promises."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import one_fits
from tests.system.test_quick import NO_ROUND

pytestmark = pytest.mark.more

PAGE = Path(__file__).parents[2] / "docs" / "ten-minutes.md"
BIN = Path(sys.executable).parent
TIMES = ("20s", "2m", "10m")
"""In place of the minutes of the page: the first one in which a busy machine measures a round."""
MPI_PROGRAM = """\
#include <mpi.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    for (int i = 0; i < 1000; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""


def shell_blocks() -> list[str]:
    """The shell blocks of the page behind the installation."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if "git clone" not in block]


def run(block: str, time: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell block with this time for each run."""
    argv = ["/bin/sh", "-ec", re.sub(r"--time \w+", f"--time {time}", block)]
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def measured(block: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell block, with more time where no round was measured."""
    times = iter(TIMES)
    return one_fits(
        lambda: run(block, next(times), cwd), lambda done: NO_ROUND not in done.stderr, attempts=len(TIMES)
    )


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text().split()) <= 600


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    mpicc = shutil.which("mpicc")
    assert mpicc is not None
    (tmp_path / "my_mpi_app.c").write_text(MPI_PROGRAM)
    subprocess.run([mpicc, "my_mpi_app.c", "-o", "my_mpi_app"], cwd=tmp_path, check=True)

    blocks = shell_blocks()
    assert sum("nearmetal weigh" in block for block in blocks) == 2
    for block in blocks:
        done = measured(block, tmp_path)
        assert done.returncode == 0, block + done.stderr
        for begin in ("What do(es)? ", "namespaces ", "Noise ", "Report "):
            assert re.search(rf"^{begin}", done.stdout, re.MULTILINE), f"{begin!r} in\n{done.stdout}"

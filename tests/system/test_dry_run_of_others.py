"""A dry run of somebody else's study, in that person's directory, starts what `nearmetal check` starts, and
nothing of the directory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.bait import lure
from tests.conftest import NEARMETAL

pytestmark = pytest.mark.attack

STUDY = """\
name: s
environments:
  native: {backend: native}
  namespaces: {backend: namespaces}
placements:
  one: {instances: 1, tasks: 1}
workloads:
  theirs: {command: [./mpirun, config], mpi: false, files: {config: config}}
design: {baseline: native, margin: 3 %, seed: 2}
"""


@pytest.mark.parametrize("words", [("plan", "s.yaml"), ("run", "s.yaml", "--dry-run"), ("check",)])
def test_nothing_of_the_directory_runs(tmp_path: Path, words: tuple[str, ...]) -> None:
    here, outside = tmp_path / "here", tmp_path / "outside"
    here.mkdir()
    outside.mkdir()
    lure(here, outside)
    (here / "s.yaml").write_text(STUDY)
    before = sorted(here.rglob("*"))
    done = subprocess.run(
        [NEARMETAL, *words], cwd=here, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode in (0, 3), done.stderr
    assert list(outside.iterdir()) == [] and sorted(here.rglob("*")) == before

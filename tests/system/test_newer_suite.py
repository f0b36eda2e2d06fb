"""An image of a newer suite than the machine's, with Open MPI 5, MPICH and an sshd of its own: built once,
and run in by an agent and by ssh."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import cache_with_programs, nearmetal
from tests.system.conftest import the_machine

pytestmark = [
    pytest.mark.more,
    pytest.mark.beside,
    pytest.mark.no_run,  # but for the runs themselves: while the image is built, others may run
    pytest.mark.skipif(os.geteuid() != 0, reason="an sshd is started in the instances"),
]

STUDY = """\
name: newer
images:
  newer:
    suite: trixie
    packages: [gcc, libc6-dev, make, cmake, libopenmpi-dev, openmpi-bin, libmpich-dev, mpich, openssh-server]
environments:
  native: {backend: native, image: newer, placements: [1x2]}
  box: {backend: namespaces, image: newer, attachment: veth-bridge, placements: [1x2, 2x1]}
placements:
  1x2: {instances: 1, tasks: 2}
  2x1: {instances: 2, tasks: 1}
workloads:
  latency: {kernel: pingpong, bytes: 8 B}
design: {baseline: native, slices: 2, seed: 5, DESIGN}
"""


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With a cache in which the image stands."""
    directory = tmp_path_factory.mktemp("newer")
    env = cache_with_programs(directory)
    (directory / "study.yaml").write_text(STUDY.replace(", DESIGN", ""))
    done = nearmetal(env, "image", "build", "newer", "--file", str(directory / "study.yaml"), timeout=3000)
    assert done.returncode == 0, done.stderr
    return env


@pytest.mark.parametrize(
    ("design", "title"),
    [("mpi: openmpi", "Open MPI 5"), ("mpi: openmpi, reach: ssh", "Open MPI 5"), ("mpi: mpich", "MPICH 4")],
    ids=["openmpi", "openmpi-ssh", "mpich"],
)
def test_mpi_of_the_image_runs_between_instances(
    env: dict[str, str], tmp_path: Path, design: str, title: str
) -> None:
    (tmp_path / "s.yaml").write_text(STUDY.replace("DESIGN", design))
    words = ("--max-blocks", "1", "--json", "--results", str(tmp_path / "results"))
    with the_machine():
        done = nearmetal(env, "run", str(tmp_path / "s.yaml"), *words)
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "results").iterdir()
    lines = (directory / "trials" / "local.jsonl").read_text().splitlines()
    records: dict[str, dict[str, Any]] = {r["arm"]: r for r in map(json.loads, lines)}
    assert {arm: r.get("reason", "") for arm, r in records.items()} == dict.fromkeys(
        ("native/1x2", "box/1x2", "box/2x1"), ""
    )
    assert all(str(r["transport"]["mpi"]).startswith(title) for r in records.values()), records
    assert len({place["host"] for place in records["box/2x1"]["places"]}) == 2
    assert records["box/2x1"]["transport"]["kind"] == "tcp"

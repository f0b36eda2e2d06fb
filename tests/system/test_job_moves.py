"""Studies that move one rank of a job while the job goes on, and that restore whole MPI jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.contract.guests import NEEDED, kernel
from tests.system.checkpoint_case import find_or_build_criu
from tests.system.test_quick import left_behind, nearmetal, trial_lines

from nearmetal.environments import Unavailable
from nearmetal.errors import UnavailableError
from nearmetal.host import LocalHost
from nearmetal.launchers import find_mpi
from nearmetal.model.study import Mpi

pytestmark = pytest.mark.apart

STUDY = """
name: jobs
environments:
  tested: {{{environment}, placements: [1x1]}}
placements:
  1x1: {{instances: 1, tasks: 1}}
workloads:
  job: {{subject: {subject}, count: {count}, {workload}}}
design: {{baseline: tested, mode: plain, margin: 3 %, seed: 1{design}}}
"""


@pytest.fixture
def criu() -> None:
    if os.geteuid() != 0:
        pytest.skip("a checkpoint needs root")
    found = find_or_build_criu()
    if isinstance(found, Unavailable):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{found.reason}; {found.remedy}")


def measured(tmp_path: Path, **words: str) -> dict[str, Any]:
    """One round of the study: the record of its trial, which is sound."""
    (tmp_path / "s.yaml").write_text(STUDY.format(**{"design": "", "count": "1"} | words))
    done = nearmetal("run", "s.yaml", "--max-blocks", "1", "--json", cwd=tmp_path, timeout=1800)
    assert done.returncode == 0, done.stderr
    line: dict[str, Any] = next(line for line in trial_lines(tmp_path) if not line["aa"])
    assert line["status"] == "ok", line
    assert left_behind(tmp_path) == []
    return line


def rows_of(line: dict[str, Any]) -> dict[str, Any]:
    return {r["metric"]: r for r in line["rows"] if r["workload"] == "job"}


def the_job_went_on(line: dict[str, Any], ranks: int, moves: int) -> None:
    rows, facts = rows_of(line), line["facts"]["job"]
    assert facts["of"] == "rank" and facts["ranks"] == ranks
    assert len(facts["moves"]) == len(facts["job"]) == moves
    for view, silence in zip(facts["job"], rows["silence"]["values"], strict=True):
        assert silence == pytest.approx(max(view["gap"] - view["floor"], 1e-3)) and view["gap"] > 0
    verified = rows["total"]["verification"]
    assert verified["steps_of_the_job"] >= 100 and verified["passes"] >= 2
    assert (verified["wrong_pages"], verified["wrong_messages"], verified["second_copies"]) == (0, 0, 0)
    assert {"step.connect", "step.restore", "step.copy"} <= set(rows["total"]["parts"])
    assert rows["sent"]["values"][0] > 1 << 20


@pytest.mark.parametrize("backend", ["namespaces", "runc"])
@pytest.mark.parametrize("method", ["criu", "criu-pageserver"])
def test_a_rank_in_a_container_moves_to_another_node_while_its_job_goes_on(
    tmp_path: Path, criu: None, backend: str, method: str
) -> None:
    line = measured(
        tmp_path,
        environment=f"backend: {backend}, attachment: veth-bridge",
        subject="migrate",
        workload=f"of: rank, method: {method}, memory: 16 MiB, working_set: 4 MiB",
        count="2",
    )
    the_job_went_on(line, ranks=3, moves=2)
    rows = rows_of(line)
    assert {"total", "stopped", "silence", "sent"} <= set(rows)
    for silence, stopped in zip(rows["silence"]["values"], rows["stopped"]["values"], strict=True):
        assert silence < stopped + 60, "TCP sends again at the latest after that"


@NEEDED[0]
def test_a_rank_in_a_guest_moves_to_another_node_and_back_while_its_job_goes_on(tmp_path: Path) -> None:
    assert kernel()
    line = measured(
        tmp_path,
        environment="backend: qemu, image: debian-kernel, attachment: veth-bridge,"
        " guest: {memory: 256 MiB, start: restored, boot_timeout: 30 min}",
        subject="migrate",
        workload="of: rank, ranks: 3, method: precopy, working_set: 1 MiB, dirty_rate: 1 MiB/s",
        count="2",
    )
    the_job_went_on(line, ranks=3, moves=2)


def installed(kind: Mpi) -> bool:
    try:
        find_mpi(LocalHost(), kind)
    except UnavailableError:
        return False
    return True


@pytest.mark.parametrize("backend", ["native", "namespaces", "runc"])
@pytest.mark.parametrize("mpi", [m for m in Mpi if installed(m)])
def test_a_whole_mpi_job_is_restored(tmp_path: Path, criu: None, mpi: Mpi, backend: str) -> None:
    attachment = "host" if backend == "native" else "none"
    line = measured(
        tmp_path,
        environment=f"backend: {backend}, attachment: {attachment}",
        subject="checkpoint",
        workload="of: job, ranks: 2, memory: 16 MiB, working_set: 4 MiB",
        design=f", mpi: {mpi.value}",
    )
    rows, facts = rows_of(line), line["facts"]["job"]
    assert (facts["of"], facts["ranks"]) == ("job", 2)
    verified = rows["checkpoint"]["verification"]
    assert verified["passes"] >= 2 and verified["wrong_pages"] == verified["wrong_messages"] == 0
    assert rows["checkpoint_size"]["values"][0] > 16 << 20


@pytest.mark.parametrize("mpi", [m for m in Mpi if installed(m)])
def test_a_whole_mpi_job_is_restored_on_another_node(tmp_path: Path, criu: None, mpi: Mpi) -> None:
    line = measured(
        tmp_path,
        environment="backend: namespaces, attachment: veth-bridge",
        subject="migrate",
        workload="of: job, memory: 16 MiB, working_set: 4 MiB",
        design=f", mpi: {mpi.value}",
    )
    assert "connect" in line["facts"]["job"]["moves"][0]["phases"], "it changed its seat"
    assert json.dumps(rows_of(line)["total"]["verification"])

"""Studies that move one rank of a job while the job goes on, and that restore whole MPI jobs."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.contract.guests import NEEDED, kernel
from tests.system.checkpoint_case import find_or_build_criu
from tests.system.test_quick import left_behind, nearmetal, trial_lines

from nearmetal.environments import Unavailable
from nearmetal.environments.dmtcp import find_dmtcp
from nearmetal.errors import UnavailableError
from nearmetal.host import LocalHost
from nearmetal.launchers import find_mpi
from nearmetal.model.environments.image import HOST
from nearmetal.model.study import Mpi
from nearmetal.node.criu import find_criu

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


CARRIED = {"native": "host", **dict.fromkeys(("crun", "lxc", "namespaces", "podman", "runc"), "veth-bridge")}
"""The attachment with which an instance of a backend moves to another emulated node."""
LATE = ("lxc",)
"""Backends whose destination is prepared only when the source is gone."""


@pytest.fixture
def criu(request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params.get("backend") == "crun":
        request.getfixturevalue("crun")
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
    for view, move, stopped in zip(facts["job"], facts["moves"], rows["stopped"]["values"], strict=True):
        *others, own = move["pauses"]
        assert len(others) == ranks - 1 and view["gap"] in others
        # For a process, `stopped` ends only when its next step has been seen from outside.
        assert own > stopped / 2
    verified = rows["total"]["verification"]
    assert verified["steps_of_the_job"] >= 100 and verified["passes"] >= 2
    assert (verified["wrong_pages"], verified["wrong_messages"], verified["second_copies"]) == (0, 0, 0)
    assert {"step.restore", "step.copy"} <= set(rows["total"]["parts"])
    assert rows["sent"]["values"][0] > 1 << 20


@pytest.mark.parametrize(
    ("backend", "method"),
    [
        (backend, method)
        for backend in CARRIED
        for method in ("criu", "criu-pageserver")
        if method == "criu" or backend not in ("crun", "lxc", "podman")  # whose commands only write to files
    ],
)
def test_a_rank_of_processes_moves_to_another_node_while_its_job_goes_on(
    tmp_path: Path, criu: None, backend: str, method: str
) -> None:
    line = measured(
        tmp_path,
        environment=f"backend: {backend}, attachment: {CARRIED[backend]}",
        subject="migrate",
        workload=f"of: rank, method: {method}, memory: 16 MiB, working_set: 4 MiB",
        count="2",
    )
    the_job_went_on(line, ranks=3, moves=2)
    rows = rows_of(line)
    assert {"total", "stopped", "silence", "sent"} <= set(rows)
    assert ("step.connect" in rows["total"]["parts"]) == (backend not in LATE)
    for silence, stopped in zip(rows["silence"]["values"], rows["stopped"]["values"], strict=True):
        assert silence < stopped + 60, "TCP sends again at the latest after that"


@pytest.mark.parametrize(
    ("step", "fate"), [("dump", "the program goes on at the source"), ("restore", "the program runs nowhere")]
)
@pytest.mark.parametrize("backend", ["native", "lxc", "namespaces"])
def test_where_a_rank_is_after_a_move_that_failed_is_said(
    tmp_path: Path, criu: None, backend: str, step: str, fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_criu(LocalHost())
    assert not isinstance(found, Unavailable)
    (failing := tmp_path / "bin" / "criu").parent.mkdir()
    failing.write_text(f'#!/bin/sh\n[ "$1" != {step} ] || exit 1\nexec {shlex.join(found.argv)} "$@"\n')
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{failing.parent}:{os.environ['PATH']}")
    words = {"environment": f"backend: {backend}, attachment: {CARRIED[backend]}", "subject": "migrate"}
    words |= {"workload": "of: rank, method: criu, memory: 4 MiB, working_set: 1 MiB"}
    (tmp_path / "s.yaml").write_text(STUDY.format(**{"design": "", "count": "1"} | words))
    done = nearmetal("run", "s.yaml", "--max-blocks", "1", cwd=tmp_path)
    assert done.returncode == 4 and fate in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr and left_behind(tmp_path) == []


guests = pytest.mark.parametrize(("backend", "start"), [("qemu", "restored"), ("libvirt", "cold")])


@NEEDED[0]
@guests
def test_a_rank_in_a_guest_moves_to_another_node_and_back_while_its_job_goes_on(
    tmp_path: Path, backend: str, start: str
) -> None:
    assert kernel()
    line = measured(
        tmp_path,
        environment=f"backend: {backend}, image: debian-kernel, attachment: veth-bridge,"
        f" guest: {{memory: 256 MiB, start: {start}, boot_timeout: 30 min}}",
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


HOST_MPI = [pytest.param((HOST, m, ""), id=f"{m}") for m in Mpi if installed(m)]
NEWER = "trixie-mpi"
NEWER_MPI = [pytest.param((NEWER, Mpi.OPENMPI, "Open MPI 5"), id=f"{NEWER}-{Mpi.OPENMPI}")]
EVERY_MPI = [
    pytest.param(backend, *mpi.values, id=f"{backend}-{mpi.id}")
    for backend in CARRIED
    for mpi in (*HOST_MPI, *(NEWER_MPI if backend != "native" else ()))  # native has image host only
]


def have(image: str, cwd: Path) -> None:
    if image != HOST:
        done = nearmetal("image", "build", image, cwd=cwd, timeout=3000)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("backend", "mpi"), EVERY_MPI)
def test_a_whole_mpi_job_is_restored(
    tmp_path: Path, criu: None, mpi: tuple[str, Mpi, str], backend: str
) -> None:
    image, kind, title = mpi
    have(image, tmp_path)
    attachment = "host" if backend == "native" else "none"
    line = measured(
        tmp_path,
        environment=f"backend: {backend}, image: {image}, attachment: {attachment}",
        subject="checkpoint",
        workload="of: job, ranks: 2, memory: 16 MiB, working_set: 4 MiB",
        design=f", mpi: {kind.value}",
    )
    rows, facts = rows_of(line), line["facts"]["job"]
    assert (facts["of"], facts["ranks"]) == ("job", 2) and facts["mpi"].startswith(title)
    verified = rows["checkpoint"]["verification"]
    assert verified["passes"] >= 2 and verified["wrong_pages"] == verified["wrong_messages"] == 0
    assert rows["checkpoint_size"]["values"][0] > 16 << 20
    (event,) = facts["events"]
    assert len(event["pauses"]) == 2 and max(event["pauses"]) == rows["pause"]["values"][0]
    assert min(event["pauses"]) > rows["stopped"]["values"][0] / 2, "every rank stood still"


@pytest.mark.parametrize(
    ("backend", "mpi"),
    [
        pytest.param(backend, *mpi.values, id=f"{backend}-{mpi.id}")
        for backend, more in (
            ("native", ()),
            ("crun", ()),
            ("lxc", ()),
            ("namespaces", NEWER_MPI),
            ("podman", ()),
            ("runc", ()),
        )
        for mpi in (*HOST_MPI, *more)
    ],
)
def test_a_whole_mpi_job_is_restored_on_another_node(
    tmp_path: Path, criu: None, backend: str, mpi: tuple[str, Mpi, str]
) -> None:
    image, kind, title = mpi
    have(image, tmp_path)
    line = measured(
        tmp_path,
        environment=f"backend: {backend}, image: {image}, attachment: {CARRIED[backend]}",
        subject="migrate",
        workload="of: job, memory: 16 MiB, working_set: 4 MiB",
        design=f", mpi: {kind.value}",
    )
    assert line["facts"]["job"]["mpi"].startswith(title)
    (move,) = line["facts"]["job"]["moves"]
    assert move["node"] and ("connect" in move["phases"]) == (backend not in LATE)
    assert json.dumps(rows_of(line)["total"]["verification"])


@NEEDED[0]
@guests
def test_the_guests_of_an_mpi_job_move_together_to_other_nodes_and_back(
    tmp_path: Path, backend: str, start: str
) -> None:
    """All are stopped before the first is saved, and all are restored before the first goes on."""
    have("debian-apps", tmp_path)
    line = measured(
        tmp_path,
        environment=f"backend: {backend}, image: debian-apps, attachment: veth-bridge,"
        f" guest: {{memory: 512 MiB, start: {start}, boot_timeout: 30 min}}",
        subject="migrate",
        workload="of: job, ranks: 2, method: offline, working_set: 2 MiB, dirty_rate: 1 MiB/s",
        design=", mpi: openmpi",
        count="2",
    )
    rows, facts = rows_of(line), line["facts"]["job"]
    assert (facts["of"], facts["ranks"], facts["method"]) == ("job", 2, "offline")
    assert facts["mpi"].startswith("Open MPI") and len(facts["moves"]) == 2
    assert all(len(guests) == 2 for guests in facts["moves"])
    verified = rows["total"]["verification"]
    assert verified["passes"] >= 2 and verified["wrong_pages"] == verified["wrong_messages"] == 0
    assert {"total", "stopped", "sent"} <= set(rows) and len(rows["total"]["values"]) == 2


@pytest.mark.parametrize("backend", CARRIED)
@pytest.mark.parametrize("subject", ["checkpoint", "migrate"])
@pytest.mark.parametrize("mpi", [m for m in Mpi if installed(m)])
def test_a_whole_mpi_job_is_restarted_by_dmtcp(tmp_path: Path, subject: str, backend: str, mpi: Mpi) -> None:
    found = find_dmtcp(LocalHost())
    if isinstance(found, Unavailable):
        pytest.skip(f"{found.reason}; {found.remedy}")
    elsewhere = subject == "migrate" and backend != "native"
    attachment = CARRIED[backend] if elsewhere or backend == "native" else "none"
    line = measured(
        tmp_path,
        environment=f"backend: {backend}, attachment: {attachment}",
        subject=subject,
        workload="of: job, method: dmtcp, ranks: 2, memory: 16 MiB, working_set: 4 MiB",
        design=f", mpi: {mpi.value}",
    )
    rows, facts = rows_of(line), line["facts"]["job"]
    assert facts["method"] == "dmtcp" and facts["mpi"]
    (event,) = facts["moves" if subject == "migrate" else "events"]
    assert {"connect", "dump", "copy", "restore", "removal"} == set(event["phases"])
    assert ("node" in event) == elsewhere
    verified = rows["total" if subject == "migrate" else "checkpoint"]["verification"]
    assert verified["passes"] >= 2 and verified["wrong_pages"] == verified["second_copies"] == 0
    assert rows["sent"]["values"][0] > 16 << 20

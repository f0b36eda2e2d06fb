"""Rounds in jobs of a real Slurm, those of Debian 12 and 13, whose two nodes are both this machine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.system.debian import unpacked
from tests.system.engine_runs import (
    EXAMPLES,
    FORCE,
    NEARMETAL,
    claims,
    directory,
    here,
    on,
    records,
    require_whole,
)

pytestmark = [pytest.mark.apart]
__all__ = ["here"]
PATHS = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
"""Where Python finds the benchmarks."""

OWN = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "libmunge2", "liblua5.1-0")
NEWER = (
    *OWN,
    *("libc6", "libc-bin", "libgcc-s1", "libhwloc15", "liblz4-1", "libnuma1", "libpam0g", "libreadline8t64"),
    *("libtinfo6", "libdbus-1-3", "libsystemd0", "libjson-c5", "libjwt2", "libyaml-0-2", "libssl3t64"),
)
"""Slurm of Debian 13, and the libraries that it needs beside those of Debian 12."""


@dataclass(frozen=True)
class Slurm:
    """root: where its packages are unpacked; cgroups: whether it cannot do without control groups."""

    root: Path
    version: str
    cgroups: bool


@pytest.fixture(scope="module", params=["22.05", "24.11"])
def slurm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Slurm:
    """The unpacked packages of Slurm. Nothing is installed on this machine."""
    place = tmp_path_factory.mktemp("slurm")
    own = request.param == "22.05"
    root = unpacked(place, OWN if own else NEWER, None if own else "trixie")
    for program in ("slurmctld", "slurmd", "slurmstepd"):  # they look at the names under which they run
        (root / "usr/sbin" / program).symlink_to(f"{program}-wlm")
    return Slurm(root, request.param, own)


def beside(slurm: Slurm, here: Path, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script beside Slurm."""
    unshare = ["unshare", "--mount", str(Path(__file__).with_name("slurm.sh"))]
    groups = {} if slurm.cgroups else {"NO_CGROUPS": "yes"}
    done = subprocess.run(
        [*unshare, str(slurm.root), str(here / "slurm"), "sh", "-c", f"sbatch --version >&2\n{script}"],
        cwd=here,
        env={**os.environ, **groups, **env},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert f"slurm-wlm {slurm.version}." in done.stderr, done.stderr
    return done


def test_rounds_in_jobs_of_slurm(slurm: Slurm, here: Path) -> None:
    done = beside(slurm, here, f"{shlex.join([*NEARMETAL, *on('slurm', 8)])}; squeue --noheader >&2")
    assert done.returncode == 0, done.stderr
    require_whole(here, done.stdout, 8)
    assert len({r["run"] for r in records(here)}) == 2
    assert {r["attempt"] for r in records(here)} == {1}
    assert "1_1" not in done.stderr, "no job is left in the queue"


def test_the_example_of_three_hosts(slurm: Slurm, here: Path) -> None:
    shutil.copy(EXAMPLES / "three-hosts.yaml", here)
    words = ("run", "three-hosts.yaml", "--engine", "slurm", "--max-blocks", "2", "--json", *FORCE)
    done = beside(slurm, here, shlex.join([*NEARMETAL, *words]))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["blocks"] == 2 and {c["workload"] for c in result["cells"]} >= {"cg", "memory", "start"}


def test_ten_thousand_workers_are_submitted_about_as_fast_as_by_slurm_s_own_command(
    slurm: Slurm, here: Path
) -> None:
    words = [sys.executable, "-m", "benchmarks.engines", "submit", "--engine", "slurm"]
    done = beside(slurm, here, shlex.join(words), MAX_ARRAY_SIZE="10001", PYTHONPATH=PATHS)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    found = json.loads(done.stdout.splitlines()[-1])
    # 1.2 times on a quiet machine; on a busy one, whatever the command takes, a start of it may be delayed.
    assert found["workers"] == 10_000 and found["ours"] < 2 * found["own"] + 0.1


def test_more_workers_than_an_array_may_have_are_in_several_arrays(slurm: Slurm, here: Path) -> None:
    """The largest index of a task is MaxArraySize - 1, so two workers need two arrays."""
    script = f"{shlex.join([*NEARMETAL, *on('slurm', 8)])}; squeue --noheader >&2"
    done = beside(slurm, here, script, MAX_ARRAY_SIZE="2")
    assert done.returncode == 0, done.stderr
    require_whole(here, done.stdout, 8)
    assert len({r["run"] for r in records(here)}) == 2
    assert {p.name for p in (directory(here) / "workers").iterdir()} == {"1.out", "2-1.out"}


def test_a_worker_that_slurm_starts_again_is_another_worker(slurm: Slurm, here: Path) -> None:
    """Requeueing ends the job by SIGTERM: its round is given back, and others run it."""
    script = f"""
{shlex.join([*NEARMETAL, *on("slurm", 24)])} & run=$!
until ls results/*/claims/4.1.json >/dev/null 2>&1; do sleep 0.05; done
id=$(squeue --noheader --array --states=running --format=%i | head -1)
scontrol requeue "$id" >&2
wait $run
"""
    done = beside(slurm, here, script)
    assert done.returncode == 0, done.stderr
    require_whole(here, done.stdout, 24)
    assert "was lost" not in done.stderr and claims(here, "held") == []
    logs = "".join(file.read_text() for file in (directory(here) / "workers").iterdir())
    assert re.search("REQUEUE", logs) and "interrupted; the rounds named above are saved" in logs
    assert not os.path.lexists(directory(here) / "orders/1.json")

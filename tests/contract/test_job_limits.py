"""The limits of the job in which nearmetal is started hold for the programs of every backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.contract.test_backends import Rig
from tests.contract.test_backends import rig as rig

from nearmetal.host import cgroups
from nearmetal.host.cgroups import EffectiveLimits

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root here")

MEMORY, PROCESSES = 4 << 30, 3000


@pytest.fixture
def job() -> Iterator[tuple[Path, ...]]:
    """The groups of a job that may use 1.5 CPUs, 4 GiB and 3000 processes, below our own."""
    name = f"nearmetal-test{os.getpid()}-job"
    made: list[Path] = []
    try:
        for own in cgroups.own_everywhere():
            group = own / name
            group.mkdir()
            made.append(group)
            for file, text in {
                "cpu.max": "150000 100000",
                "cpu.cfs_quota_us": "150000",
                "memory.max": str(MEMORY),
                "memory.limit_in_bytes": str(MEMORY),
                "pids.max": str(PROCESSES),
            }.items():
                with suppress(FileNotFoundError):
                    fd = os.open(group / file, os.O_WRONLY)
                    os.write(fd, text.encode())
                    os.close(fd)
            if (own / "cpuset.mems").exists() and not (own / "cgroup.controllers").exists():
                for file in ("cpuset.mems", "cpuset.cpus"):
                    (group / file).write_text((own / file).read_text())
        limits = cgroups.tightest(map(cgroups.limits_of, made))
        if limits != EffectiveLimits(cpus=1.5, memory=MEMORY, processes=PROCESSES):
            pytest.skip(f"a group below our own can have {limits.words or 'no limits'} only")
        yield tuple(made)
    finally:
        cgroups.remove(made)  # systemd-nspawn makes groups in the hierarchy of systemd


@pytest.mark.more
def test_limits_of_the_caller_hold_for_the_programs_of_an_instance(
    rig: Rig, job: tuple[Path, ...], tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "tests.contract.limited_job", rig.backend.name]
    argv += [str(rig.tools.directory), str(tmp_path), *map(str, job)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["escaped"] == "", f"{rig.backend.name} leaves the job"
    limits = {name: found["program"][name] for name in ("cpus", "memory", "processes")}
    assert limits == {"cpus": 1.5, "memory": MEMORY, "processes": PROCESSES}

"""Limits hold: measured by what the instances really get."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nearmetal.environments import Instance, InstanceRequest, Tools
from nearmetal.environments.registry import get_backend
from nearmetal.host import LocalHost, Process, cgroups
from nearmetal.host.counters import delta, snapshot
from nearmetal.model.study import Attachment, Environment, Limits

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root here")

HOST = LocalHost()
SECONDS = 1.0


class Burning:
    """Instances that each burn one and the same CPU, by limits."""

    def __init__(self, tools: Tools, directory: Path, stack: ExitStack) -> None:
        self._tools, self._directory, self._stack = tools, directory, stack
        self.instances: list[Instance] = []

    def start(self, limits: Limits) -> Instance:
        number = len(self.instances)
        scratch = self._directory / f"scratch-{number}"
        scratch.mkdir()
        request = InstanceRequest(
            label=f"nearmetal-test{os.getpid()}-{number}",
            hostname=f"nm{number}",
            environment=Environment(
                name="limited",
                backend="namespaces",
                attachment=Attachment.NONE,
                limits=limits,
                placements=(),
            ),
            cpus=HOST.cpus()[-1:],
            seat=None,
            binds=(),
            scratch=scratch,
        )
        backend = get_backend("namespaces")
        instance = self._stack.enter_context(backend.start(HOST, self._tools, request))
        self.instances.append(instance)
        return instance

    def shares(self) -> list[float]:
        """The CPU time of each as a share of one CPU, while all burn."""
        burning: list[Process] = []
        try:
            for number, instance in enumerate(self.instances):
                said = self._directory / f"said-{number}"
                argv = instance.command(["sh", "-c", "while :; do :; done"])
                burning.append(HOST.start(argv, stdout=said, stderr=said))
            HOST.run(["sleep", "0.2"], timeout=5)
            before = [snapshot(HOST, i.cgroups) for i in self.instances]
            slept = HOST.run(["sleep", str(SECONDS)], timeout=5).seconds
            after = [snapshot(HOST, i.cgroups) for i in self.instances]
        finally:
            for process in burning:
                process.kill()
        used = [delta(b, a, slept)["cpu"] for b, a in zip(before, after, strict=True)]
        return [(seconds or 0.0) / slept for seconds in used]


@pytest.fixture
def burning(tools: Tools, tmp_path: Path) -> Iterator[Burning]:
    with ExitStack() as stack:
        yield Burning(tools, tmp_path, stack)


def test_a_quota_of_a_quarter_gives_a_quarter(burning: Burning) -> None:
    instance = burning.start(Limits(cpu_quota=0.25))
    assert cgroups.read_back(instance.cgroups)["cpu_quota"] == pytest.approx(0.25)
    (share,) = burning.shares()
    assert 0.2 < share < 0.3


def test_shares_divide_a_cpu(burning: Burning) -> None:
    for shares in (1024, 256):
        instance = burning.start(Limits(cpu_shares=shares))
        assert cgroups.read_back(instance.cgroups)["cpu_shares"] == pytest.approx(shares, rel=0.01)
    large, small = burning.shares()
    # Other programs of the machine take theirs first: the ratio is what the kernel promises.
    assert large / (large + small) == pytest.approx(0.8, abs=0.07)


def test_what_needs_more_memory_than_its_limit_is_killed(burning: Burning) -> None:
    instance = burning.start(Limits(memory=128 << 20))
    assert cgroups.read_back(instance.cgroups)["memory"] == 128 << 20
    modest = instance.command(["/usr/bin/python3", "-c", "bytearray(64 << 20)"])
    greedy = instance.command(["/usr/bin/python3", "-c", "bytearray(160 << 20)"])
    assert HOST.run(modest, timeout=20).ok
    assert HOST.run(greedy, timeout=20).returncode in (-9, 137)

"""Limits hold: measured by what the instances really get."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.contract.burning import HOST, Burning
from tests.patience import one_fits

from nearmetal.environments import Tools
from nearmetal.host import cgroups
from nearmetal.model.study import Limits

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root here")


@pytest.fixture
def burning(tools: Tools, tmp_path: Path) -> Iterator[Burning]:
    with ExitStack() as stack:
        yield Burning(tools, tmp_path, stack)


def test_a_quota_of_a_quarter_gives_a_quarter(burning: Burning) -> None:
    # Large shares, so that it gets its quota beside whatever else runs on this CPU.
    instance = burning.start(Limits(cpu_quota=0.25, cpu_shares=200_000))
    assert cgroups.read_back(instance.cgroups)["cpu_quota"] == pytest.approx(0.25)
    one_fits(lambda: burning.shares()[0], lambda share: 0.2 < share < 0.3, attempts=10)


def test_shares_divide_a_cpu(burning: Burning) -> None:
    for shares in (1024, 256):
        instance = burning.start(Limits(cpu_shares=shares))
        assert cgroups.read_back(instance.cgroups)["cpu_shares"] == pytest.approx(shares, rel=0.01)
    # Other programs of the machine take theirs first: the ratio is what the kernel promises.
    one_fits(burning.shares, lambda s: abs(s[0] / sum(s) - 0.8) < 0.07, attempts=10)


def test_program_above_its_memory_limit_is_killed(burning: Burning) -> None:
    instance = burning.start(Limits(memory=128 << 20))
    assert cgroups.read_back(instance.cgroups)["memory"] == 128 << 20
    modest = instance.command(["/usr/bin/python3", "-c", "bytearray(64 << 20)"])
    greedy = instance.command(["/usr/bin/python3", "-c", "bytearray(160 << 20)"])
    assert HOST.run(modest, timeout=600).ok
    assert HOST.run(greedy, timeout=600).returncode in (-9, 137)

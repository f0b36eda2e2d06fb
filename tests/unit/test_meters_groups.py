"""The counters of a group of trials, on this machine and without an instance."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearmetal.host import LocalHost
from nearmetal.host.counters.files import CounterFiles, node_paths
from nearmetal.meters.groups import GroupMeters, own_guest
from nearmetal.model.scope import Scope
from nearmetal.model.study import Placement, Transport
from nearmetal.node.real_nodes import NodeSet


def bare_node() -> Any:
    host = LocalHost()
    return SimpleNamespace(
        machine=SimpleNamespace(host=host),
        launcher_groups={},
        accounting={},
        energy=None,
        real=NodeSet(),
        files=CounterFiles(host, node_paths(host), held=False),
    )


def test_a_clock_that_is_set_meanwhile_changes_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    node = bare_node()
    with ExitStack() as stack:
        meters = GroupMeters(node, (), stack, events=(), sampler=None, alone=True)
        before, now = meters.close(), time.time()
        monkeypatch.setattr(time, "time", lambda: now + 86_400)
        found = meters.close()
    seconds = found.node["seconds"]
    assert seconds is not None and seconds < 43_200
    assert found.end - before.end > 43_200, "the record keeps the time of day"


def test_the_group_of_a_guest_counts_the_instances_that_share_it_once(tmp_path: Path) -> None:
    used = tmp_path / "cpu.stat"
    used.write_text("usage_usec 1000000\n")
    guest = SimpleNamespace(cgroups={"unified": tmp_path})
    node = bare_node()
    arm: Any = SimpleNamespace(
        instances=tuple(SimpleNamespace(label=n, hostname=n, cgroups={}) for n in "ab"),
        guest_around=guest,
        companion=None,
        lodges_with=None,
        transport=Transport.SHM,
        node=node,
        placement=Placement(name="2x1", instances=2, tasks=1),
        trial=SimpleNamespace(id="1.box/2x1", network=None),
    )
    with ExitStack() as stack:
        meters = GroupMeters(node, (arm,), stack, events=(), sampler=None, alone=True)
        with meters.arms["1.box/2x1"].inside.timed("cg"):
            used.write_text(f"usage_usec {10**12}\n")
        found = meters.close()
    assert found.of("1.box/2x1").counters[Scope.timed("cg")]["cpu"] == 10**6 - 1
    assert found.disturbance["other_cpu_share"] == 0.0, "all busy time is that of the guest"
    assert found.of("1.box/2x1").counters[Scope.instance("a")]["cpu"] is None
    own = SimpleNamespace(label="a", hostname="a", cgroups=guest.cgroups)
    for changed in ({"lodges_with": "1.vm/1x2"}, {"instances": (own,)}):
        other: Any = SimpleNamespace(**{**vars(arm), **changed})
        assert own_guest(other) is None, "its time is counted already"

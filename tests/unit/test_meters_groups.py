"""The counters of a group of trials, on this machine and without an instance."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from nearmetal.host import LocalHost
from nearmetal.host.counters.files import CounterFiles, node_paths
from nearmetal.meters.groups import GroupMeters


def test_a_clock_that_is_set_meanwhile_changes_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    host = LocalHost()
    node: Any = SimpleNamespace(
        machine=SimpleNamespace(host=host),
        launcher_groups={},
        kept={},
        energy=None,
        real=None,
        files=CounterFiles(host, node_paths(host), held=False),
    )
    with ExitStack() as stack:
        meters = GroupMeters(node, (), stack, events=(), sampler=None, alone=True)
        before, now = meters.close(), time.time()
        monkeypatch.setattr(time, "time", lambda: now + 86_400)
        found = meters.close()
    seconds = found.node["seconds"]
    assert seconds is not None and seconds < 43_200
    assert found.end - before.end > 43_200, "the record keeps the time of day"

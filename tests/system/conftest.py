"""Runs of the tests have the machine to themselves, also among test sessions of several checkouts."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import pytest
from tests.patience import until

from nearmetal.host.lock import living_runs, lock_path

WAIT = 3000.0


@pytest.fixture(scope="module", autouse=True)
def machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Wait for the runs of others, and let other test sessions wait for this module.

    nearmetal itself refuses to measure beside another run, so without this the tests of one checkout would
    fail while those of another run.
    """
    if request.node.get_closest_marker("no_run") is not None:
        yield
        return
    with lock_path().with_name(f"nearmetal-tests-{os.geteuid()}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        until(lambda: not living_runs(), "the end of the other runs on this machine", WAIT)
        yield

"""Runs of the tests have the machine to themselves, also among test sessions of several checkouts."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from benchmarks.criu_moves import large_pipes
from tests.patience import until
from tests.system.checkpoint_case import find_or_build_criu

from nearmetal.environments import Criu, Unavailable
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
    with the_machine():
        yield


@contextmanager
def the_machine() -> Iterator[None]:
    """Wait for the runs of others, and let other test sessions wait meanwhile."""
    with lock_path().with_name(f"nearmetal-tests-{os.geteuid()}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        until(lambda: not living_runs(), "the end of the other runs on this machine", WAIT)
        yield


@pytest.fixture(scope="module")
def criu() -> Iterator[Criu]:
    """CRIU, which is built if it is not here, with large pipes where the kernel lets them be set."""
    with large_pipes() if os.geteuid() == 0 else pytest.MonkeyPatch.context():
        found = find_or_build_criu()
        if isinstance(found, Unavailable):
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{found.reason}; {found.remedy}")
        yield found

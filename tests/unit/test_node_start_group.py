"""Instances of an arm as a group: side by side or in turn, their times, and what happens when one fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from nearmetal.environments import Instance
from nearmetal.errors import RunError
from nearmetal.node.arms.start_group import Start, started

STEP = 0.05
"""Seconds that a planted start takes; a busy machine adds to it."""


@dataclass
class Planted:
    """Starts that take STEP each, and what they did."""

    begun: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    meet: threading.Barrier | None = None
    """Where all starts wait for each other instead: who comes there is side by side with the others."""

    def start(self, number: int, *, fail: bool = False, fail_at_end: bool = False) -> Start:
        @contextmanager
        def opened() -> Iterator[Instance]:
            self.begun.append(number)
            self.threads.add(threading.get_ident())
            if self.meet is None:
                time.sleep(STEP)
            else:
                self.meet.wait(600)
            if fail:
                raise RunError(f"start {number} failed")
            phases: Mapping[str, float] = {"first_instruction": STEP}
            try:
                yield cast(Instance, SimpleNamespace(label=f"i{number}", pid=0, phases=phases))
            finally:
                self.ended.append(number)
            if fail_at_end:
                raise RunError(f"stop {number} failed")

        return opened

    def all(self, count: int) -> list[Start]:
        return [self.start(i) for i in range(count)]


def test_side_by_side_all_start_at_one_time() -> None:
    planted = Planted(meet=threading.Barrier(8))
    with started(planted.all(8), together=True) as group:
        assert [i.label for i in group.instances] == [f"i{n}" for n in range(8)]
        assert min(group.seconds) > 0
        assert len(planted.threads) == 8 and threading.get_ident() not in planted.threads
        assert planted.ended == []
    assert sorted(planted.ended) == list(range(8))


def test_instances_started_in_turn_wait_for_each_other() -> None:
    planted = Planted()
    with started(planted.all(3), together=False) as group:
        assert planted.begun == [0, 1, 2]
        assert group.seconds[2] >= group.seconds[0] + 2 * STEP
    assert planted.ended == [2, 1, 0]


def test_one_instance_needs_no_thread() -> None:
    planted = Planted()
    with started(planted.all(1), together=True):
        assert planted.threads == {threading.get_ident()}


@pytest.mark.parametrize("together", [True, False])
def test_a_start_that_fails_undoes_the_others(together: bool) -> None:
    planted = Planted()
    starts = [planted.start(0), planted.start(1), planted.start(2, fail=True)]
    with pytest.raises(RunError, match="start 2 failed"), started(starts, together=together):
        pytest.fail("never reached")
    assert sorted(planted.ended) == [0, 1]


@pytest.mark.parametrize("together", [True, False])
def test_failed_stop_is_reported_after_all_are_stopped(together: bool) -> None:
    planted = Planted()
    starts = [planted.start(0, fail_at_end=True), planted.start(1)]
    with pytest.raises(RunError, match="stop 0 failed"), started(starts, together=together):
        pass
    assert sorted(planted.ended) == [0, 1]


def test_error_in_the_body_wins_over_errors_of_teardown() -> None:
    planted = Planted()
    starts = [planted.start(0, fail_at_end=True), planted.start(1)]
    with pytest.raises(ZeroDivisionError), started(starts, together=True):
        raise ZeroDivisionError
    assert sorted(planted.ended) == [0, 1]

"""The rounds of a pre-copy as QEMU reports them, by monitors that answer from a script."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nearmetal.environments import MoveBarrier
from nearmetal.environments.qemu import moving
from nearmetal.environments.qemu.moving import MoveProgress, give_up, move
from nearmetal.environments.qemu.qmp import Monitor
from nearmetal.errors import RunError
from nearmetal.lifecycle import CopyRound, Method, NotConvergedError
from nearmetal.model.record import Status
from nearmetal.model.study import MoveSubject
from nearmetal.subjects.migrate import MIGRATE, endless_rows

MIB = 1 << 20


class Side:
    """A monitor. The reports of query-migrate come one after the other, the last for ever."""

    def __init__(self, *reports: Mapping[str, Any], running: bool) -> None:
        self.reports, self.running, self.asked = list(reports), running, list[str]()

    def ask(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        self.asked.append(command)
        if command == "query-migrate":
            return self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]
        if command == "query-migrate-capabilities":
            return [{"capability": c, "state": False} for c in ("events", "auto-converge", "postcopy-ram")]
        if command == "migrate_cancel":
            self.reports = [{"status": "cancelled"}]
        return {"running": self.running, "status": "running" if self.running else "postmigrate"}

    def event_times(self) -> dict[str, float]:
        return {}


def active(number: int, left: int, throttle: int = 0) -> dict[str, Any]:
    ram = {"dirty-sync-count": number, "remaining": left * MIB, "transferred": 300 * MIB}
    return {"status": "active", "ram": ram, "cpu-throttle-percentage": throttle}


DONE = {
    "status": "completed",
    "total-time": 900,
    "downtime": 30,
    "ram": {"transferred": 300 * MIB, "dirty-sync-count": 4},
}


def moved(source: Side, method: Method, *, seconds: float) -> tuple[CopyRound, ...]:
    target = Side({"status": "none"}, running=DONE in source.reports)
    return move(
        cast("Monitor", source),
        cast("Monitor", target),
        method=method,
        uri="unix:/nowhere",
        bandwidth=None,
        downtime_limit=0.3,
        time_limit=seconds,
        progress=MoveProgress(),
        resumed=lambda: None,
    ).copied


def test_each_round_has_what_it_began_with_and_its_strongest_throttle() -> None:
    reports = [active(1, 250), active(1, 90), active(2, 100), active(2, 40, 20), active(3, 99, 30), DONE]
    source = Side(*reports, running=False)
    assert moved(source, Method.PRECOPY, seconds=60) == (
        CopyRound(left=250 * MIB),
        CopyRound(left=100 * MIB, throttle=0.2),
        CopyRound(left=99 * MIB, throttle=0.3),
    )


def test_a_pre_copy_that_does_not_end_has_its_rounds_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is the test's: it moves only by sleeping."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(moving, "time", clock)
    source = Side(active(1, 250), active(2, 100), active(3, 100), running=True)
    with pytest.raises(NotConvergedError, match="100 MiB were left in round 3") as found:
        moved(source, Method.PRECOPY, seconds=0.1)
    assert [r.left // MIB for r in found.value.copied] == [250, 100, 100]
    assert "migrate_cancel" in source.asked


def test_other_methods_have_no_rounds_that_could_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "LAST_SECONDS", 0.1)
    with pytest.raises(RunError) as found:
        moved(Side(active(1, 250), running=True), Method.POSTCOPY, seconds=0.1)
    assert not isinstance(found.value, NotConvergedError)


@pytest.mark.parametrize(
    ("last", "method", "left"),
    [
        ("completed", Method.PRECOPY, True),
        ("completed", Method.OFFLINE, False),  # the guest stays stopped at the destination until `cont`
        ("cancelled", Method.PRECOPY, False),
    ],
)
def test_an_interrupted_move_that_completed_unseen_has_left_its_source(
    last: str, method: Method, left: bool
) -> None:
    class Interrupted(Side):
        def ask(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
            if command == "query-status" and "migrate_cancel" not in self.asked:
                raise KeyboardInterrupt
            if command == "migrate_cancel":
                self.asked.append(command)
                self.reports = [{"status": last}]
                return {}
            return super().ask(command, arguments)

    source, progress = Interrupted(active(1, 250), running=False), MoveProgress()
    with pytest.raises(KeyboardInterrupt):
        move(
            cast("Monitor", source),
            cast("Monitor", Interrupted({"status": "none"}, running=False)),
            method=method,
            uri="unix:/nowhere",
            bandwidth=None,
            downtime_limit=0.3,
            time_limit=60,
            progress=progress,
            resumed=lambda: None,
        )
    assert progress.committed is left


class Stopped(Side):
    """A target that was started with -S: it does not start its guest by itself."""

    def ask(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        if command == "cont":
            self.running = True
        answer = super().ask(command, arguments)
        return answer if self.running or command != "query-status" else answer | {"status": "paused"}


@pytest.mark.parametrize(
    ("method", "last"), [(Method.PRECOPY, DONE), (Method.POSTCOPY, {"status": "postcopy-active"})]
)
def test_a_target_that_was_started_with_s_lets_its_guest_go_on(
    method: Method, last: Mapping[str, Any]
) -> None:
    source = Side(active(1, 250), last, DONE, running=False)
    target, progress = Stopped({"status": "none"}, running=False), MoveProgress()
    move(
        cast("Monitor", source),
        cast("Monitor", target),
        method=method,
        uri="unix:/nowhere",
        bandwidth=None,
        downtime_limit=0.3,
        time_limit=0.2,
        progress=progress,
        resumed=lambda: None,
    )
    assert target.running and progress.committed and target.asked.count("cont") == 1


class Unlucky(Side):
    """A source that ends its own post-copy at the switchover, or refuses to begin it."""

    def __init__(self, *reports: Mapping[str, Any], refuses: bool = False, running: bool = False) -> None:
        super().__init__(*reports, running=running)
        self.refuses = refuses

    def ask(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        if self.refuses and command == "migrate":
            raise RunError("a device cannot be migrated")
        return super().ask(command, arguments)


@pytest.mark.parametrize(
    ("source", "left", "cancels"),
    [
        (Unlucky(active(1, 250), {"status": "failed"}, running=True), False, False),
        (Unlucky(active(1, 250), {"status": "postcopy-paused"}), True, False),
        (Unlucky({"status": "completed"}, refuses=True, running=True), False, True),
    ],
    ids=["failed before the switchover", "paused after it", "came by an earlier move"],
)
def test_post_copy_has_left_only_if_the_source_says_that_it_switched_over(
    source: Unlucky, left: bool, cancels: bool
) -> None:
    """A migration is not cancelled after its switchover was requested: QEMU would continue the source."""
    progress = MoveProgress()
    with pytest.raises(RunError):
        move(
            cast("Monitor", source),
            cast("Monitor", Side({"status": "none"}, running=False)),
            method=Method.POSTCOPY,
            uri="unix:/nowhere",
            bandwidth=None,
            downtime_limit=0.3,
            time_limit=60,
            progress=progress,
            resumed=lambda: None,
        )
    assert progress.committed is left and ("migrate_cancel" in source.asked) is cancels


def test_a_lost_connection_that_only_the_target_has_noticed_ends_a_post_copy() -> None:
    progress = MoveProgress()
    with pytest.raises(RunError, match="postcopy-paused at its destination"):
        move(
            cast("Monitor", Side(active(1, 250), {"status": "postcopy-active"}, running=False)),
            cast("Monitor", Side({"status": "postcopy-paused"}, running=True)),
            method=Method.POSTCOPY,
            uri="unix:/nowhere",
            bandwidth=None,
            downtime_limit=0.3,
            time_limit=60,
            progress=progress,
            resumed=lambda: None,
        )
    assert progress.committed


def test_a_source_that_post_copy_has_left_is_not_continued() -> None:
    source = Side({"status": "postcopy-paused"}, running=False)
    assert not give_up(cast("Monitor", source))
    assert not {"migrate_cancel", "cont"} & set(source.asked)


class Guest(Side):
    """A guest that is moved offline: what it is asked, with that of the others, in order."""

    def __init__(self, name: str, told: list[str], *, fails: bool = False) -> None:
        super().__init__(DONE, running=False)
        self.name, self.told, self.fails = name, told, fails

    def ask(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        self.told.append(f"{self.name} {command}")
        if command == "migrate" and self.fails:
            raise RunError("its disk is full")
        if command == "cont":
            self.running = True
        if command == "query-status" and not self.running:
            return {"running": False, "status": "paused"}
        return super().ask(command, arguments)


def moved_together(told: list[str], *, fails: bool) -> list[str]:
    """The errors of two guests that are moved by a thread each."""
    together, errors = MoveBarrier(2), list[str]()

    def run(name: str) -> None:
        source = Guest(name, told, fails=fails and name == "b")
        try:
            move(
                cast("Monitor", source),
                cast("Monitor", Guest(f"{name}'", told)),
                method=Method.OFFLINE,
                uri="unix:/nowhere",
                bandwidth=None,
                downtime_limit=0.3,
                time_limit=60,
                progress=MoveProgress(),
                resumed=lambda: None,
                together=together,
            )
        except RunError as e:
            errors.append(e.what)
            together.fail(e.what)

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_guests_of_a_job_are_all_stopped_all_saved_and_all_restored() -> None:
    told: list[str] = []
    assert moved_together(told, fails=False) == []
    at = {word: told.index(word) for word in told}
    stops, saves = (at["a stop"], at["b stop"]), (at["a migrate"], at["b migrate"])
    goes_on = at["a' cont"], at["b' cont"]
    loaded = at["a' query-status"], at["b' query-status"]
    assert max(stops) < min(saves) and max(saves) < min(goes_on) and max(loaded) < min(goes_on)


def test_no_guest_continues_at_its_destination_if_one_move_of_the_job_fails() -> None:
    told: list[str] = []
    first, second = sorted(moved_together(told, fails=True))
    assert first == "another guest of the job was not moved: its disk is full"
    assert second == "its disk is full" and not any(word.endswith("' cont") for word in told)


def test_a_move_without_an_end_fails_its_rows_only() -> None:
    rows = endless_rows(MoveSubject(name="w", facts=MIGRATE), "40 MiB were left")
    assert tuple(r.metric for r in rows) == MIGRATE.metrics
    assert {(r.status, r.reason) for r in rows} == {(Status.FAILED, "40 MiB were left")}

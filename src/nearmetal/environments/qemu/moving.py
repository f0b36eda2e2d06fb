"""Moves a guest from one QEMU process to another by commands to the monitors of both."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import RunError
from ...lifecycle import CopyRound, Costs, Estimate, Method, NotConvergedError
from ..guests.moves import MoveFigures, note_round
from ..moving import MoveBarrier
from .qmp import Monitor

UNBOUNDED = 1 << 40
LOOK_AGAIN = 0.002
LAST_SECONDS = 10.0
"""Seconds that the last steps of a move may take beyond its time limit."""
ASK_AGAIN = 0.05
"""Seconds before a second query, if QEMU reports a completed move whose figures are still zero."""
_CLEANUP_SECONDS = 0.1
"""Seconds that a QEMU is given to clean up after a failed move. After multifd, QEMU 7.2 sometimes aborts in
it."""
UNDER_WAY = frozenset({"setup", "active", "device", "pre-switchover", "cancelling"})
"""Statuses of a migration that has not ended yet, and in which the guest can still continue at its source."""
CHANNELS = 2
"""Number of parallel connections of method multifd."""
CAPABILITIES: Mapping[Method, frozenset[str]] = {
    Method.OFFLINE: frozenset({"events"}),
    Method.PRECOPY: frozenset({"events", "auto-converge"}),
    Method.POSTCOPY: frozenset({"events", "postcopy-ram"}),
    Method.MULTIFD: frozenset({"events", "auto-converge", "multifd"}),
}
"""The migration capabilities of QEMU that each method needs. All others are switched off, because QEMU keeps
the capabilities of an earlier move."""

EVERY_CAPABILITY = frozenset({"events", "auto-converge", "postcopy-ram"})
"""Migration capabilities for a guest that is prepared for moves by all methods except multifd. QEMU does not
allow multifd together with postcopy-ram."""

COSTS = Costs(
    fixed=Estimate(0.002, 0.06, 0.4),
    setup=Estimate(0.0, 0.05, 0.3),
    bandwidth=Estimate(1.2e8, 5e8, 4e9),
)
"""Costs of a move on one machine, through a Unix socket, to a QEMU that is already running."""
START_COSTS = replace(COSTS, setup=Estimate(0.1, 0.4, 1.5))
"""Costs of such a move if the start of the second QEMU is part of it."""


@dataclass(kw_only=True)
class MoveProgress:
    """The progress of a move, which move() updates.

    awaited: whether the target waits for the guest at the URI, so that it must end if the move fails.
    switching: whether post-copy was told to let the guest go on at the target, which it does soon after.
    committed: whether the guest may have run at the target. If so, it must not continue at its source.
    """

    awaited: bool = False
    switching: bool = False
    committed: bool = False


def move(
    source: Monitor,
    target: Monitor,
    *,
    method: Method,
    uri: str,
    bandwidth: float | None,
    downtime_limit: float,
    time_limit: float,
    progress: MoveProgress,
    resumed: Callable[[], None],
    together: MoveBarrier | None = None,
) -> MoveFigures:
    """Move a guest, and return when it runs at the target and the source is no longer needed.

    uri: migration URI at which the target listens and to which the source connects.
    bandwidth, downtime_limit, time_limit, together: as in MoveRequest.
    progress: is updated during the move, and tells the caller after an error whether the guest may have run
        at the target.
    resumed: called as soon as the guest runs at the target.
    Raises RunError; NotConvergedError if pre-copy took too long.
    """
    for side in (target, source):
        configure(side, CAPABILITIES[method], bandwidth, downtime_limit)
        side.event_times()
    target.ask("migrate-incoming", {"uri": uri})
    progress.awaited = True
    if together is not None:
        together.meet(time_limit)
    requested = time.time()
    if method is Method.OFFLINE:
        source.ask("stop")
    if together is not None:
        together.meet(time_limit)
    try:
        source.ask("migrate", {"uri": uri})
        return _followed(
            source,
            target,
            method=method,
            requested=requested,
            time_limit=time_limit,
            progress=progress,
            resumed=resumed,
            together=together,
        )
    except BaseException:
        # The migration may have completed before it is cancelled.
        if method is not Method.OFFLINE and not progress.committed:
            progress.committed = _has_left(source, target, progress)
        raise


def _followed(
    source: Monitor,
    target: Monitor,
    *,
    method: Method,
    requested: float,
    time_limit: float,
    progress: MoveProgress,
    resumed: Callable[[], None],
    together: MoveBarrier | None,
) -> MoveFigures:
    """Wait for the end of a move that has begun, and take its remaining steps. Arguments as for move().

    requested: time of the request in seconds of CLOCK_REALTIME.
    """
    running = False
    completed = 0.0
    copied: dict[int, CopyRound] = {}
    end = time.monotonic() + time_limit
    while not (completed and running):
        report = source.ask("query-migrate")
        status = str(report.get("status", "none"))
        if method.copies_first and status == "active":
            ram = report.get("ram", {})
            throttle = int(report.get("cpu-throttle-percentage", 0)) / 100
            note_round(copied, int(ram.get("dirty-sync-count", 0)), int(ram.get("remaining", 0)), throttle)
        if status in ("failed", "cancelled", "postcopy-paused"):
            raise RunError(f"QEMU's migration {status}: {report.get('error-desc', 'no reason given')}")
        if status == "postcopy-active" and migration_status(target) == "postcopy-paused":
            # A source that had sent everything may not notice that the connection is lost (QEMU 7.2).
            raise RunError("QEMU's migration postcopy-paused at its destination")
        late = time.monotonic() - end
        if late > 0 and status != "completed" and not (progress.switching or progress.committed):
            # The migration may complete before it is cancelled; the guest then runs at the target.
            status = _cancelled(source)
        if late > (LAST_SECONDS if status == "completed" else 0):
            what = f"the move by {method} was not done after {time_limit:g} s: {_left(report)}"
            remedy = "more bandwidth, a longer downtime limit, or method postcopy"
            if method is Method.POSTCOPY:
                remedy = "more bandwidth, or a longer time limit"
            if method.copies_first:
                raise NotConvergedError(what, remedy=remedy, copied=tuple(copied.values()))
            raise RunError(what, remedy=remedy)
        if method is Method.POSTCOPY and status == "active" and not progress.switching:
            progress.switching = True
            source.ask("migrate-start-postcopy")
        if status == "completed" and not completed:
            completed = time.time()
            # The target of pre-copy starts its guest by itself.
            progress.committed |= method is not Method.OFFLINE
            if method is Method.OFFLINE:
                _await_loaded(target, end + LAST_SECONDS)
                if together is not None:
                    together.meet(end + LAST_SECONDS - time.monotonic())
                progress.committed = True
                target.ask("cont")
        if not running:
            state = target.ask("query-status")
            if state["status"] == "paused" and (status == "completed" or has_switched(status)):
                progress.committed = True
                target.ask("cont")  # the target was started with -S
            elif state["running"]:
                running = progress.committed = True
                resumed()
        time.sleep(LOOK_AGAIN)
    if source.ask("query-status")["running"]:
        raise RunError("the guest runs at its source and at its destination")
    last = _complete(source)
    return MoveFigures(
        requested=requested,
        stopped=source.event_times().get("STOP", requested),
        completed=completed,
        resumed=target.event_times().get("RESUME", completed),
        downtime=float(last.get("downtime", 0)) / 1e3,
        sent=int(last.get("ram", {}).get("transferred", 0)),
        rounds=int(last.get("ram", {}).get("dirty-sync-count", 0)),
        copied=tuple(copied.values()),
    )


def has_switched(status: str) -> bool:
    """Return whether a status of the source means that post-copy has stopped the guest there, and may have
    let it continue at the target."""
    return status.startswith("postcopy")


def _has_left(source: Monitor, target: Monitor, progress: MoveProgress) -> bool:
    """End a failed move, unless the guest may have run at the target. Return whether it may.

    A migration whose switchover was requested is not cancelled: QEMU 7.2 would let the guest continue at its
    source although it runs at the target. It soon either fails, so that QEMU continues the guest at its
    source, or switches over.
    """
    try:
        status = _settled(source, target) if progress.switching else _cancelled(source)
        # Without an outgoing migration, QEMU reports the incoming one, by which the guest came.
        return (status == "completed" or has_switched(status)) and not source.ask("query-status")["running"]
    except RunError:  # only the target can still say where the guest runs
        return _runs(target, silent=progress.switching)


def _cancelled(source: Monitor) -> str:
    """Cancel a migration, and return its final status. This may be 'completed'."""
    with contextlib.suppress(RunError):
        source.ask("migrate_cancel")
    end = time.monotonic() + LAST_SECONDS
    while (status := migration_status(source)) in UNDER_WAY and time.monotonic() < end:
        time.sleep(LOOK_AGAIN)
    return status


def _settled(source: Monitor, target: Monitor) -> str:
    """Wait for the end of a migration after its switchover was requested, and return its status.

    The wait ends when the migration has ended or paused, when the guest runs at the target, or after
    LAST_SECONDS.
    """
    end = time.monotonic() + LAST_SECONDS
    while True:
        status = migration_status(source)
        if status not in UNDER_WAY and status != "postcopy-active":
            return status
        if time.monotonic() > end or (has_switched(status) and _runs(target, silent=False)):
            return status
        time.sleep(LOOK_AGAIN)


def _runs(side: Monitor, *, silent: bool) -> bool:
    """Return whether the guest of a QEMU runs.

    silent: the result if QEMU does not answer.
    """
    with contextlib.suppress(RunError):
        return bool(side.ask("query-status")["running"])
    return silent


def migration_status(side: Monitor) -> str:
    """Return the status of the last migration of a QEMU, in either direction; 'none' if there was none."""
    return str(side.ask("query-migrate").get("status", "none"))


def configure(side: Monitor, wanted: frozenset[str], bandwidth: float | None, downtime_limit: float) -> None:
    """Set the migration capabilities and parameters of one QEMU.

    wanted: capabilities to switch on; all others are switched off.
    bandwidth: maximum in B/s; None for no limit.
    downtime_limit: seconds.
    Raises RunError if QEMU does not have a capability.
    """
    known = {str(c["capability"]) for c in side.ask("query-migrate-capabilities")}
    if missing := sorted(wanted - known):
        raise RunError(f"this QEMU cannot migrate by {', '.join(missing)}", remedy="a newer QEMU")
    side.ask(
        "migrate-set-capabilities",
        {"capabilities": [{"capability": name, "state": name in wanted} for name in sorted(known)]},
    )
    side.ask(
        "migrate-set-parameters",
        {
            "max-bandwidth": UNBOUNDED if bandwidth is None else max(round(bandwidth), 1),
            "max-postcopy-bandwidth": 0 if bandwidth is None else max(round(bandwidth), 1),
            "downtime-limit": round(downtime_limit * 1e3),
            "multifd-channels": CHANNELS,
        },
    )


def _await_loaded(target: Monitor, end: float) -> None:
    while target.ask("query-status")["status"] == "inmigrate":
        if time.monotonic() > end:
            raise RunError("the destination does not finish loading the guest")
        time.sleep(LOOK_AGAIN)


def _complete(source: Monitor) -> Mapping[str, Any]:
    """Return QEMU's report about a completed move. If its figures are still zero, query again after
    ASK_AGAIN: QEMU may report 'completed' shortly before it sets them."""
    report: Mapping[str, Any] = source.ask("query-migrate")
    if not report.get("total-time") or not report.get("ram", {}).get("transferred"):
        time.sleep(ASK_AGAIN)
        report = source.ask("query-migrate")
    return report


def _left(report: Mapping[str, Any]) -> str:
    ram = report.get("ram", {})
    left, rate = int(ram.get("remaining", 0)) >> 20, int(ram.get("dirty-pages-rate", 0)) * 4096 / 1e6
    return f"{left} MiB were left in round {ram.get('dirty-sync-count', 0)}, at {rate:.0f} MB/s dirtied"


def give_up(source: Monitor) -> bool:
    """Cancel a failed move and let the guest continue at its source. Return whether it runs there in 10 s.

    The QEMU at the destination must have ended. A guest that post-copy may have let go on there is not
    continued.
    """
    try:
        if has_switched(migration_status(source)):
            return False
        source.ask("migrate_cancel")
    except RunError:
        pass
    end = time.monotonic() + LAST_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(RunError):
            if not source.ask("query-status")["running"]:
                source.ask("cont")
            elif migration_status(source) not in UNDER_WAY:
                time.sleep(_CLEANUP_SECONDS)
                break
        time.sleep(LOOK_AGAIN)
    return _runs(source, silent=False)

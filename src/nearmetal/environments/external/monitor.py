"""A guest of a QEMU process that the user has started, controlled through its QMP socket."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ...errors import BusyError, NearmetalError, RunError, UsageError
from ...host import Host
from ...host.facts.provenance import cpu_flags
from ...host.processes.foreign import process_of_thread
from ...lifecycle import Costs, Method
from ..contract import Unavailable
from ..qemu.moving import (
    CAPABILITIES,
    COSTS,
    UNDER_WAY,
    MoveProgress,
    configure,
    give_up,
    has_switched,
    migration_status,
    move,
)
from ..qemu.qmp import Monitor
from ..qemu.restore import restore, save
from .contract import SECONDS, DestinationKind, Facts, MovedAway, Saved, Target, Work, WrittenError
from .disk import sync_images
from .qmp_sockets import (
    WAITS,
    end_qemu,
    has_ended,
    kill_qemu,
    require_qmp,
    require_waiting,
    settings_kept,
    status_at_destination,
)
from .saved import STATE
from .surroundings import CheckOutcome, HostCheck, checked

_DYING = 0.2
"""Seconds that a QEMU process is given to end after its monitor has closed the connection."""
_VERSION, _PROCESSOR, _FEATURES = "version", "processor", "features of the processor"
_OF_HOST = ("host-", "max-")
"""Prefixes of QEMU's CPU types that have the features of the machine's processor."""
_REMEDIES = {
    "left": "query-status at its destination, and cont if it is paused there; never continue it here",
    "saved": "after a move: query-status at its destination, and cont if it is paused there; never continue "
    "it here; after a checkpoint: restore its directory, or cont here",
    "paused": "cont there, unless it was paused on purpose",
    "inmigrate": "a running guest; a waiting QEMU is a destination: --to, or restore --into",
}
"""What to do about a guest that does not run, by its status; left: it may run elsewhere; saved: its QEMU does
not know whether it was moved or written to a file."""


@dataclass(frozen=True, kw_only=True)
class QemuProcess:
    """A QEMU process with a QMP socket."""

    socket: Path

    @property
    def name(self) -> str:
        return f"qmp:{self.socket}"

    keeps_name = False
    own_fields = MappingProxyType(
        dict.fromkeys((_VERSION, "machine", _PROCESSOR, "vCPUs", "memory", _FEATURES), r".*")
    )
    checkpoints_by = (Method.OFFLINE,)

    @property
    def moves_by(self) -> Mapping[DestinationKind, tuple[Method, ...]]:
        usual = (Method.PRECOPY, *(m for m in CAPABILITIES if m is not Method.PRECOPY))
        return {DestinationKind.SOCKET: usual}

    def refuses(self, way: DestinationKind) -> Unavailable:
        if way is DestinationKind.HOST:
            return Unavailable(
                reason="nearmetal starts no QEMU for a guest of your own on another host", remedy=WAITS
            )
        return Unavailable(reason="a guest is not moved to a directory", remedy=f"{WAITS}; or checkpoint it")

    def exceeds(self, way: DestinationKind, method: Method, bandwidth: float) -> Unavailable | None:
        """Return None: QEMU supports every bandwidth limit."""

    def require_programs(self, host: Host, work: Work) -> None:
        """Do nothing: no other program is needed."""

    def inspect(self, host: Host) -> Facts:
        require_qmp(self.socket)
        with Monitor(self.socket) as monitor:
            status, migration = str(monitor.ask("query-status")["status"]), migration_status(monitor)
            self._require_running(status, migration)
            memory = _memory(monitor)
            threads = monitor.threads()
        processes: tuple[int, ...] = ()
        with contextlib.suppress(
            NearmetalError, IndexError
        ):  # QEMU on another machine, by a forwarded socket
            processes = (process_of_thread(threads[0]),)
        return Facts(memory=memory, processes=processes, guest=memory)

    def _require_running(self, status: str, migration: str) -> None:
        """Check that the guest runs, and that no migration of it is under way, such as that of a nearmetal
        that was killed.

        status: of the guest. migration: status of the last migration of its QEMU.
        Raises BusyError if it is being migrated, UsageError if it does not run.
        """
        where, runs, switched = str(self.socket), status == "running", has_switched(migration)
        if status != "inmigrate" and (migration in UNDER_WAY or (runs and switched)):
            raise BusyError(
                f"the guest is being migrated already: {migration}",
                where=where,
                remedy="wait until query-migrate there says completed, failed or cancelled",
            )
        if not runs:
            why = "left" if switched else "saved" if status == "postmigrate" else status
            raise UsageError(
                f"the guest {'has left this QEMU' if why in ('left', 'saved') else 'does not run'}: {status}",
                where=where,
                remedy=_REMEDIES.get(why, _REMEDIES["inmigrate"]),
            )

    def remaining_state(self, host: Host) -> str:
        """See contract.External. A QEMU that has saved its guest to a file stays in `postmigrate`."""
        if has_ended(self.socket):
            return ""
        try:
            require_qmp(self.socket)
            with Monitor(self.socket) as monitor:
                status = str(monitor.ask("query-status")["status"])
        except NearmetalError as e:
            raise RunError(f"the state of {self.name} is not known: {e.what}", remedy=e.remedy) from e
        return "" if status in ("postmigrate", "inmigrate") else f"is {status}"

    def costs(self, method: Method) -> Costs:
        return COSTS

    def needs(self, host: Host) -> Mapping[str, str]:
        with Monitor(self.socket) as monitor:
            own = _described(monitor)
            if own[_PROCESSOR].startswith(_OF_HOST) and monitor.ask("query-kvm")["enabled"]:
                own[_FEATURES] = " ".join(sorted(cpu_flags(host)))
            return own

    def checkpoint(self, host: Host, work: Work, images: Path, method: Method) -> None:
        ends = not work.keep_running
        with settings_kept(self.socket, always=not ends):
            try:
                with Monitor(self.socket) as monitor:
                    configure(monitor, CAPABILITIES[Method.OFFLINE], None, work.downtime_limit)
                save(self.socket, images / STATE, work.time_limit, "a longer --time-limit", sync=ends)
                if ends:
                    sync_images(host, images)
            except (RunError, KeyboardInterrupt) as e:
                raise self._goes_on("not written to a file", e) from e
        try:
            with Monitor(self.socket) as monitor:
                if ends:
                    end_qemu(monitor, self.socket)
                else:
                    monitor.ask("cont")
        except (RunError, KeyboardInterrupt) as e:
            why = e.what if isinstance(e, RunError) else "interrupted"
            raise WrittenError(f"{self.name} was written to a file; {why}") from e

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        require_waiting(self.socket)
        restore(self.socket, images / STATE, SECONDS)
        return self.name

    def look(self, host: Host, images: Path, saved: Saved) -> Iterator[HostCheck]:
        try:
            require_waiting(self.socket)
            with Monitor(self.socket) as monitor:
                now = _described(monitor)
        except NearmetalError as e:
            yield HostCheck(
                subject="QEMU", answer=CheckOutcome.PREVENTS, text=e.what, remedy=e.remedy or WAITS
            )
            return
        yield HostCheck(subject="QEMU", answer=CheckOutcome.FINE, text=f"the one at {self.socket} waits")
        yield from _features(saved.own.get(_FEATURES, ""), host)
        for subject, before in saved.own.items():
            if subject == _FEATURES:
                continue
            same = now.get(subject) == before
            # An older QEMU may not know the machine of a newer one.
            unlike = CheckOutcome.DIFFERS if subject == _VERSION else CheckOutcome.PREVENTS
            bad = f"{now.get(subject)}, and was {before}"
            yield checked(f"{subject} of the guest", same, f"{before}, as it was", bad, WAITS, unlike)

    def require_target(self, host: Host, target: Target) -> None:
        if Path(target.text).absolute() == self.socket.absolute():
            raise UsageError("source and destination are the same QEMU", remedy=WAITS)
        require_waiting(Path(target.text))
        with Monitor(self.socket) as here, Monitor(Path(target.text)) as there:
            own, other = _described(here), _described(there)
        unlike = [f"{k} {other[k]} instead of {own[k]}" for k in own if k != _VERSION and other[k] != own[k]]
        if unlike:
            raise UsageError(f"the QEMU that waits has {', '.join(unlike)}", where=target.text, remedy=WAITS)

    def migrate(self, host: Host, work: Work, target: Target, method: Method) -> MovedAway:
        """See contract.Moves. After the move, the QEMU at the source is ended, so that the guest cannot run
        twice."""
        self.require_target(host, target)
        other = Path(target.text)
        wire = other.absolute().parent / f".nearmetal-{time.monotonic_ns():x}"
        progress, listener = MoveProgress(), 0
        with settings_kept(self.socket):
            begin = time.time()
            try:
                with Monitor(self.socket) as source, Monitor(other) as destination:
                    listener = destination.listener
                    try:
                        figures = move(
                            source,
                            destination,
                            method=method,
                            uri=f"unix:{wire}",
                            bandwidth=work.bandwidth,
                            downtime_limit=work.downtime_limit,
                            time_limit=work.time_limit,
                            progress=progress,
                            resumed=lambda: None,
                        )
                    except (RunError, KeyboardInterrupt):
                        if progress.awaited and not progress.committed:
                            end_qemu(destination, other)
                        raise
                    end_qemu(source, self.socket)
            except (RunError, KeyboardInterrupt) as e:
                if progress.committed:
                    raise self._left(other, listener, method, e) from e
                silent = isinstance(e, RunError) and e.where == str(other)
                why = "the QEMU at its destination no longer answers" if silent else ""
                raise self._goes_on(f"not moved by {method}", e, why) from e
            finally:
                wire.unlink(missing_ok=True)
        return MovedAway(
            now=f"qmp:{other}",
            total=max(figures.completed, figures.resumed) - begin,
            downtime=max(figures.resumed - figures.stopped, 0.0),
            sent=figures.sent,
            rounds=figures.rounds,
        )

    def _left(
        self, other: Path, listener: int, method: Method, error: RunError | KeyboardInterrupt
    ) -> RunError:
        """Return the error of a move that failed when the guest had left its source. If the rest of its
        memory can no longer arrive, the QEMU at the destination is ended.

        other, listener: QMP socket of the destination, and PID of the process that listens there.
        error: the cause.
        """
        why = f"the move by {method} did not end: {_what(error)}"
        never = "never continue the source, which is older"
        if has_ended(other, within=_DYING):
            how = "its source and its destination have ended"
            if not has_ended(self.socket):
                how = "it had left its source, and its destination has ended"
            return RunError(
                f"the guest is lost: {how}; {why}",
                where=str(other),
                remedy=f"start it again; {never}",
            )
        status = status_at_destination(other, self.socket) if method.fetches_later else ""
        if not has_switched(status):
            remedy = f"query-status there; {never}"
        elif has_ended(self.socket):
            kill_qemu(listener)
            return RunError(
                f"the guest is lost: its source has ended before all of its memory had arrived; {why}",
                where=str(other),
                remedy="start it again" if has_ended(other) else "end the QEMU there, and start it again",
            )
        elif status == "postcopy-paused":
            return RunError(
                "the guest has left its source, which still holds a part of its memory; at its destination "
                f"it stands still as soon as it needs that; {why}",
                where=str(other),
                remedy=f"connect both again: migrate-recover there, then migrate with resume: true at"
                f" {self.socket}; or end both, and start it again; {never}",
            )
        else:
            remedy = f"let both run until query-migrate says completed there; {never}"
        return RunError(f"the guest has left its source, and {why}", where=str(other), remedy=remedy)

    def _goes_on(self, what: str, error: RunError | KeyboardInterrupt, why: str = "") -> RunError:
        """Let the guest continue after a failure, and return the error to raise.

        what: what failed, such as 'not moved by precopy'.
        error: the cause.
        why: the cause in words, if more is known of it than the error says.
        """
        runs = False
        with contextlib.suppress(RunError), Monitor(self.socket) as monitor:
            runs = give_up(monitor)
        words = "it continues at its source" if runs else "it does not run: its QEMU does not let it continue"
        if not runs and has_ended(self.socket):
            words = "it is lost: its QEMU has ended"
        remedy = error.remedy if isinstance(error, RunError) else ""
        return RunError(f"the guest was {what}, {words}: {why or _what(error)}", remedy=remedy)


def _what(error: RunError | KeyboardInterrupt) -> str:
    return error.what if isinstance(error, RunError) else "interrupted"


def _described(monitor: Monitor) -> dict[str, str]:
    """Return the properties of a QEMU that must be equal at source and destination of a guest, by name.

    Only the version may differ, if the destination can load the state of the other version.
    """

    def kind(path: str) -> str:
        return str(monitor.ask("qom-get", {"path": path, "property": "type"}))

    version = monitor.ask("query-version")["qemu"]
    vcpus = monitor.ask("query-cpus-fast")
    return {
        _VERSION: ".".join(str(version[n]) for n in ("major", "minor", "micro")),
        "machine": kind("/machine"),
        _PROCESSOR: kind(vcpus[0]["qom-path"]),
        "vCPUs": str(len(vcpus)),
        "memory": f"{_memory(monitor) >> 20} MiB",
    }


def _memory(monitor: Monitor) -> int:
    """Return the size of a guest's memory in bytes."""
    size = monitor.ask("query-memory-size-summary")
    return int(size["base-memory"]) + int(size.get("plugged-memory", 0))


def _features(before: str, host: Host) -> Iterator[HostCheck]:
    """Check that this machine's processor has all features that a guest has seen at its source.

    before: flags of the processor there; empty if the guest has a CPU model of QEMU, so that the processor
        does not matter, and nothing is yielded.
    """
    if not before:
        return
    lacking = sorted(set(before.split()) - cpu_flags(host))
    yield checked(
        _FEATURES,
        not lacking,
        "this processor has all that the guest has seen",
        f"the guest sees the processor itself, and this one lacks {', '.join(lacking)}",
        "a machine with such a processor; next time a guest with a model that both have, such as -cpu"
        " x86-64-v2",
    )

"""A guest of a QEMU process that the user has started, controlled through its QMP socket."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import BusyError, NearmetalError, RunError, UsageError
from ...host import Host
from ...host.facts.provenance import cpu_flags
from ...host.processes.foreign import ForeignProcess, process_of_thread
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
from .contract import SECONDS, Facts, MovedAway, Saved, Target, Way, Work, WrittenError
from .saved import STATE
from .surroundings import Answer, Finding, checked

_GREETING_SECONDS = 3.0
_END_SECONDS = 10.0
_LOOK_AGAIN = 0.01
_DYING = 0.2
"""Seconds that a QEMU process is given to end after its monitor has closed the connection."""
_WAITS = "start a QEMU with the same options and -incoming defer, and give its QMP socket"
_VERSION, _PROCESSOR, _FEATURES = "version", "processor", "features of the processor"
_OF_HOST = ("host-", "max-")
"""Prefixes of QEMU's CPU types that have the features of the machine's processor."""
_PARAMETERS = ("max-bandwidth", "max-postcopy-bandwidth", "downtime-limit", "multifd-channels")
_REMEDIES = {
    "left": "query-status at its destination, and cont if it is paused there; never continue it here",
    "paused": "cont there, unless it was paused on purpose",
    "inmigrate": "a running guest; a waiting QEMU is a destination: --to, or restore --into",
}
"""What to do about a guest that does not run, by its status; left: it may run elsewhere."""


@dataclass(frozen=True, kw_only=True)
class QemuProcess:
    """A QEMU process with a QMP socket."""

    socket: Path

    @property
    def name(self) -> str:
        return f"qmp:{self.socket}"

    checkpoints_by = (Method.OFFLINE,)

    @property
    def moves_by(self) -> Mapping[Way, tuple[Method, ...]]:
        usual = (Method.PRECOPY, *(m for m in CAPABILITIES if m is not Method.PRECOPY))
        return {Way.SOCKET: usual}

    def refuses(self, way: Way) -> Unavailable:
        if way is Way.HOST:
            return Unavailable(
                reason="nearmetal starts no QEMU for a guest of your own on another host", remedy=_WAITS
            )
        return Unavailable(reason="a guest is not moved to a directory", remedy=f"{_WAITS}; or checkpoint it")

    def exceeds(self, way: Way, method: Method, bandwidth: float) -> Unavailable | None:
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
            left = switched or status == "postmigrate"
            raise UsageError(
                f"the guest {'has left this QEMU' if left else 'does not run'}: {status}",
                where=where,
                remedy=_REMEDIES["left"] if left else _REMEDIES.get(status, _REMEDIES["inmigrate"]),
            )

    def costs(self, method: Method) -> Costs:
        return COSTS

    def needs(self, host: Host) -> Mapping[str, str]:
        with Monitor(self.socket) as monitor:
            own = _described(monitor)
            if own[_PROCESSOR].startswith(_OF_HOST) and monitor.ask("query-kvm")["enabled"]:
                own[_FEATURES] = " ".join(sorted(cpu_flags(host)))
            return own

    def checkpoint(self, host: Host, work: Work, images: Path, method: Method) -> None:
        with _settings_kept(self.socket, always=work.keep_running):
            try:
                with Monitor(self.socket) as monitor:
                    configure(monitor, CAPABILITIES[Method.OFFLINE], None, work.downtime_limit)
                save(self.socket, images / STATE, work.time_limit)
            except (RunError, KeyboardInterrupt) as e:
                raise self._goes_on("not written to a file", e) from e
        try:
            with Monitor(self.socket) as monitor:
                if work.keep_running:
                    monitor.ask("cont")
                else:
                    end_qemu(monitor, self.socket)
        except (RunError, KeyboardInterrupt) as e:
            why = e.what if isinstance(e, RunError) else "interrupted"
            raise WrittenError(f"{self.name} was written to a file; {why}") from e

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        require_waiting(self.socket)
        restore(self.socket, images / STATE, SECONDS)
        return self.name

    def look(self, host: Host, images: Path, saved: Saved) -> Iterator[Finding]:
        try:
            require_waiting(self.socket)
            with Monitor(self.socket) as monitor:
                now = _described(monitor)
        except NearmetalError as e:
            yield Finding(subject="QEMU", answer=Answer.PREVENTS, text=e.what, remedy=e.remedy or _WAITS)
            return
        yield Finding(subject="QEMU", answer=Answer.FINE, text=f"the one at {self.socket} waits")
        yield from _features(saved.own.get(_FEATURES, ""), host)
        for subject, before in saved.own.items():
            if subject == _FEATURES:
                continue
            same = now.get(subject) == before
            # An older QEMU may not know the machine of a newer one.
            unlike = Answer.DIFFERS if subject == _VERSION else Answer.PREVENTS
            bad = f"{now.get(subject)}, and was {before}"
            yield checked(f"{subject} of the guest", same, f"{before}, as it was", bad, _WAITS, unlike)

    def require_target(self, host: Host, target: Target) -> None:
        if Path(target.text).absolute() == self.socket.absolute():
            raise UsageError("source and destination are the same QEMU", remedy=_WAITS)
        require_waiting(Path(target.text))
        with Monitor(self.socket) as here, Monitor(Path(target.text)) as there:
            own, other = _described(here), _described(there)
        unlike = [f"{k} {other[k]} instead of {own[k]}" for k in own if k != _VERSION and other[k] != own[k]]
        if unlike:
            raise UsageError(f"the QEMU that waits has {', '.join(unlike)}", where=target.text, remedy=_WAITS)

    def migrate(self, host: Host, work: Work, target: Target, method: Method) -> MovedAway:
        """See contract.Moves. After the move, the QEMU at the source is ended, so that the guest cannot run
        twice."""
        self.require_target(host, target)
        other = Path(target.text)
        wire = other.absolute().parent / f".nearmetal-{time.monotonic_ns():x}"
        progress, listener = MoveProgress(), 0
        with _settings_kept(self.socket):
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
                raise self._goes_on(f"not moved by {method}", e) from e
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
        if _has_ended(other, within=_DYING):
            how = "its source and its destination have ended"
            if not _has_ended(self.socket):
                how = "it had left its source, and its destination has ended"
            return RunError(
                f"the guest is lost: {how}; {why}",
                where=str(other),
                remedy=f"start it anew; {never}",
            )
        status = _status_there(other, self.socket) if method.fetches_later else ""
        if not has_switched(status):
            remedy = f"query-status there; {never}"
        elif _has_ended(self.socket):
            _kill(listener)
            return RunError(
                f"the guest is lost: its source has ended before all of its memory had arrived; {why}",
                where=str(other),
                remedy="start it anew" if _has_ended(other) else "end the QEMU there, and start it anew",
            )
        elif status == "postcopy-paused":
            return RunError(
                f"the guest stands still: it has left its source, where a part of its memory still is; {why}",
                where=str(other),
                remedy=f"connect both again: migrate-recover there, then migrate with resume: true at"
                f" {self.socket}; or end both, and start it anew; {never}",
            )
        else:
            remedy = f"let both run until query-migrate says completed there; {never}"
        return RunError(f"the guest has left its source, and {why}", where=str(other), remedy=remedy)

    def _goes_on(self, what: str, error: RunError | KeyboardInterrupt) -> RunError:
        """Let the guest continue after a failure, and return the error to raise.

        what: what failed, such as 'not moved by precopy'.
        error: the cause.
        """
        runs = False
        with contextlib.suppress(RunError), Monitor(self.socket) as monitor:
            runs = give_up(monitor)
        words = "it continues at its source" if runs else "it does not run: its QEMU does not let it continue"
        if not runs and _has_ended(self.socket):
            words = "it is lost: its QEMU has ended"
        remedy = error.remedy if isinstance(error, RunError) else ""
        return RunError(f"the guest was {what}, {words}: {_what(error)}", remedy=remedy)


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


def _features(before: str, host: Host) -> Iterator[Finding]:
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


def require_qmp(path: Path) -> None:
    """Check that a QEMU answers at a QMP socket.

    Raises UsageError if it does not.
    """
    remedy = "the socket of QEMU's option -qmp unix:PATH,server=on,wait=off, without another client"
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_GREETING_SECONDS)
        try:
            probe.connect(str(path))
            greeting = probe.makefile("rb").readline(1 << 16)
            if "QMP" in json.loads(greeting):
                return
            raise ValueError
        except TimeoutError as e:
            what = f"it does not greet within {_GREETING_SECONDS:g} s"
            raise UsageError(f"{path} is no free QMP socket: {what}", remedy=remedy) from e
        except (ValueError, TypeError) as e:
            raise UsageError(f"{path} is no QMP socket: it does not greet as QMP", remedy=remedy) from e
        except OSError as e:
            raise UsageError(f"{path} is no QMP socket: {e.strerror or e}", remedy=remedy) from e


def require_waiting(path: Path) -> None:
    """Check that the QEMU at a socket waits for a guest. Raises UsageError if it does not."""
    require_qmp(path)
    with Monitor(path) as monitor:
        status = monitor.ask("query-status")["status"]
    if status != "inmigrate":
        raise UsageError(f"the QEMU at {path} does not wait for a guest: {status}", remedy=_WAITS)


def end_qemu(monitor: Monitor, path: Path) -> None:
    """End a QEMU, and wait until its socket accepts no connections any more.

    path: path of the socket.
    Raises RunError if it does not end within 10 s.
    """
    with contextlib.suppress(RunError):
        monitor.ask("quit")
    end = time.monotonic() + _END_SECONDS
    while time.monotonic() < end:
        if _has_ended(path):
            return
        time.sleep(_LOOK_AGAIN)
    raise RunError(f"the QEMU at {path} does not end", remedy="end it before its guest runs elsewhere")


def _has_ended(path: Path, within: float = 0.0) -> bool:
    """Return whether the QEMU of a QMP socket accepts no connections any more, now or within some seconds."""
    end = time.monotonic() + within
    while not (ended := _refuses(path)) and time.monotonic() < end:
        time.sleep(_LOOK_AGAIN)
    return ended


def _refuses(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # or the connection waits for a QEMU that hangs
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return False  # others wait for it
        except OSError:
            return True
    return False


def _kill(pid: int) -> None:
    """Kill a QEMU process. It would not quit while its guest waits for memory that no longer arrives.

    pid: of the listener at its QMP socket. Another program, which forwards the socket, is not killed.
    """
    with contextlib.suppress(OSError, RunError):
        if Path(f"/proc/{pid}/comm").read_text().startswith("qemu"):
            with ForeignProcess(pid):
                pass


def _status_there(path: Path, source: Path) -> str:
    """Return the status of a post-copy migration at its destination; empty if the QEMU there does not answer.

    If the source no longer sends, wait up to 10 s until the destination has noticed that.
    path, source: QMP sockets of destination and source.
    """
    end = time.monotonic() + _END_SECONDS
    with contextlib.suppress(RunError), Monitor(path) as there:
        while True:
            status = migration_status(there)
            if status != "postcopy-active" or time.monotonic() > end or _sends(source):
                return status
            time.sleep(_LOOK_AGAIN)
    return ""


def _sends(path: Path) -> bool:
    """Return whether the QEMU of a QMP socket still sends memory of a guest that post-copy has moved away."""
    with contextlib.suppress(RunError), Monitor(path) as monitor:
        return migration_status(monitor) == "postcopy-active"
    return False


@contextmanager
def _settings_kept(path: Path, *, always: bool = False) -> Iterator[None]:
    """On exit after an exception, restore the migration parameters and capabilities that a QEMU had before.

    path: path of its QMP socket.
    always: whether they are restored after a success too.
    """
    with Monitor(path) as monitor:
        capabilities: list[Any] = monitor.ask("query-migrate-capabilities")
        parameters = monitor.ask("query-migrate-parameters")
    done = False
    try:
        yield
        done = True
    finally:
        if always or not done:
            with contextlib.suppress(RunError), Monitor(path) as monitor:
                _await_idle(monitor)
                monitor.ask("migrate-set-capabilities", {"capabilities": capabilities})
                kept = {name: parameters[name] for name in _PARAMETERS if name in parameters}
                monitor.ask("migrate-set-parameters", kept)


def _await_idle(monitor: Monitor) -> None:
    """Wait until a cancelled migration has ended.

    Raises RunError if it does not end within 10 s.
    """
    end = time.monotonic() + _END_SECONDS
    while migration_status(monitor) in UNDER_WAY:
        if time.monotonic() > end:
            raise RunError("a cancelled migration does not end")
        time.sleep(_LOOK_AGAIN)

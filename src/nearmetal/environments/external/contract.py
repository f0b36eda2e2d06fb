"""The interface of instances that nearmetal has not started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from ...errors import RunError
from ...host import Host
from ...lifecycle import Costs, Method
from ...model.record import JsonValue
from ..contract import Unavailable
from ..moving import Criu, Dump
from .surroundings import Finding

SECONDS = 600.0
"""Seconds after which a program that checkpoints, restores or moves an instance has failed."""
ASK_SECONDS = 30.0
"""Seconds after which a program that only answers a question has failed."""


class WrittenError(RunError):
    """An instance was written to files, which are complete, but its end was not seen."""

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="when it has ended: nearmetal restore, with this directory")


class RestoredError(RunError):
    """An instance was restored and runs, but its name is not known. It must not be restored again."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a running instance.

    memory: bytes that a checkpoint writes at most.
    processes: PIDs whose memory can be sampled; empty if there is none on this machine.
    guest: bytes of a guest's memory; None if it is no guest.
    """

    memory: int
    processes: tuple[int, ...] = ()
    guest: int | None = None


class Way(StrEnum):
    """What a destination is.

    DIRECTORY: images are written there, and the instance is restored on this machine.
    SOCKET: the QMP socket of a QEMU that waits for a guest.
    HOST: another machine, by ssh.
    """

    DIRECTORY = "directory"
    SOCKET = "socket"
    HOST = "host"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A destination as the user has written it."""

    way: Way
    text: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Return what a destination is: a socket, a directory if it contains a slash, else a host."""
        path = Path(text.removeprefix("qmp:"))
        if text.startswith("qmp:") or path.is_socket():
            return cls(way=Way.SOCKET, text=str(path))
        if "://" not in text and ("/" in text or text in (".", "..")):
            return cls(way=Way.DIRECTORY, text=text)
        return cls(way=Way.HOST, text=text)


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What belongs to a checkpoint besides its images.

    name: name of the instance, with its prefix.
    own: what the restore needs to know.
    machine: what the instance had around it (see surroundings.py); empty if it is not known.
    size: bytes of all files; 0 before they are written.
    """

    name: str
    method: Method
    own: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, JsonValue] = field(default_factory=dict)
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class Work:
    """What checkpoint, restore and move need.

    criu: returns a CRIU that works on a host, or raises UnavailableError.
    keep_running: whether the instance goes on after its checkpoint.
    bandwidth: most bytes per second; None for no limit.
    downtime_limit: seconds of standstill that pre-copy may spend on the rest of the memory.
    time_limit: seconds after which a checkpoint or a move is given up.
    round_written: called with the directory of each round of pre-copy by CRIU, while the instance runs.
    """

    criu: Callable[[Host], Criu]
    keep_running: bool = False
    bandwidth: float | None = None
    downtime_limit: float = 0.3
    time_limit: float = SECONDS
    round_written: Callable[[Path], object] = lambda _: None


@dataclass(frozen=True, kw_only=True)
class MovedAway:
    """A finished move to another QEMU or host. Times are in seconds.

    now: name of the instance where it runs now.
    downtime: None if the mechanism reports none.
    sent: bytes; None if the mechanism reports none.
    """

    now: str
    total: float
    downtime: float | None
    sent: int | None
    rounds: int = 0


class External(Protocol):
    """A running instance of the user's.

    name: its name, with the prefix of its kind.
    checkpoints_by: methods of a checkpoint, the usual one first.
    moves_by: methods of a move by ways, the usual one first; a way that is missing is refused.
    """

    @property
    def name(self) -> str: ...

    @property
    def checkpoints_by(self) -> tuple[Method, ...]: ...

    @property
    def moves_by(self) -> Mapping[Way, tuple[Method, ...]]: ...

    def refuses(self, way: Way) -> Unavailable:
        """Return why it cannot be moved in a way that moves_by lacks."""

    def exceeds(self, way: Way, method: Method, bandwidth: float) -> Unavailable | None:
        """Return why a move cannot be limited to so many bytes per second; None if it can."""

    def require_programs(self, host: Host, work: Work) -> None:
        """Raises UnavailableError if a host lacks a program that checkpoints or restores it."""

    def inspect(self, host: Host) -> Facts:
        """Return what is known of it; nothing is changed.

        Raises UsageError if it does not exist, UnavailableError.
        """

    def costs(self, method: Method) -> Costs: ...

    def needs(self, host: Host) -> Mapping[str, str]:
        """Return Saved.own of a checkpoint that is made now. Raises UsageError if it does not run."""

    def checkpoint(self, host: Host, work: Work, images: Path, method: Method) -> None:
        """Write it to an empty directory.

        Raises RunError. It then goes on, or the error says that it does not.
        """

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        """Restore it from a directory on a host, and return the name of what runs now.

        Raises RunError. Nothing of it runs on the host then, unless it is RestoredError.
        """

    def look(self, host: Host, images: Path, saved: Saved) -> Iterator[Finding]:
        """Yield what restore() would find on this machine. Nothing is changed."""


@runtime_checkable
class Dumps(Protocol):
    """Extra interface of instances that CRIU writes by all its methods.

    what: what it is, in words with its name.
    """

    @property
    def what(self) -> str: ...

    def first(self, host: Host) -> int:
        """Return the PID of its first process. Raises UsageError if it does not run."""

    def dump_command(self, host: Host, work: Work, dump: Dump) -> list[str]:
        """Return the command line that writes it to files, and thereby ends it, unless work.keep_running."""

    def thaw(self, host: Host) -> None:
        """Let it go on after a dump that was interrupted. Harmless if it runs."""

    def restore_lazily(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        """Restore it as External.restore() does. Its memory is fetched later, by a program that waits."""

    def discard(self, host: Host, saved: Saved) -> None:
        """End what runs of it on a host. Harmless if nothing does."""


@runtime_checkable
class Moves(Protocol):
    """Extra interface of instances that are moved without images."""

    def require_target(self, host: Host, target: Target) -> None:
        """Raises UsageError if it is plain beforehand that a destination takes no instance."""

    def migrate(self, host: Host, work: Work, target: Target, method: Method) -> MovedAway:
        """Move it. If it fails, it goes on, or the error says that it does not. Raises RunError."""

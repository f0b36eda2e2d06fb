"""The interface of instances that nearmetal has not started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from ...errors import RunError
from ...host import Host
from ...lifecycle import Costs, Method
from ..contract import Unavailable
from ..moving import Criu

SECONDS = 600.0
"""Seconds after which a program that checkpoints, restores or moves an instance has failed."""
ASK_SECONDS = 30.0
"""Seconds after which a program that only answers a question has failed."""


class WrittenError(RunError):
    """An instance was written to files, which are complete, but its end was not seen.

    own: what Saved.own of the files would be.
    """

    def __init__(self, what: str, own: Mapping[str, str]) -> None:
        super().__init__(what, remedy="when it has ended: nearmetal restore, with this directory")
        self.own = own


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
    """

    name: str
    method: Method
    own: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What checkpoint, restore and move need.

    criu: returns a CRIU that works on a host, or raises UnavailableError.
    keep_running: whether the instance goes on after its checkpoint.
    bandwidth: most bytes per second; None for no limit.
    downtime_limit: seconds of standstill that pre-copy may spend on the rest of the memory.
    time_limit: seconds after which a move is given up.
    """

    criu: Callable[[Host], Criu]
    keep_running: bool = False
    bandwidth: float | None = None
    downtime_limit: float = 0.3
    time_limit: float = SECONDS


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

    def require_programs(self, host: Host, work: Work) -> None:
        """Raises UnavailableError if a host lacks a program that checkpoints or restores it."""

    def inspect(self, host: Host) -> Facts:
        """Return what is known of it; nothing is changed.

        Raises UsageError if it does not exist, UnavailableError.
        """

    def costs(self, method: Method) -> Costs: ...

    def checkpoint(self, host: Host, work: Work, images: Path) -> Mapping[str, str]:
        """Write it to an empty directory, and return Saved.own.

        Raises RunError. It then goes on, or the error says that it does not.
        """

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        """Restore it from a directory on a host, and return the name of what runs now. Raises RunError."""


@runtime_checkable
class Moves(Protocol):
    """Extra interface of instances that are moved without images."""

    def require_target(self, target: Target) -> None:
        """Raises UsageError if it is plain beforehand that a destination takes no instance."""

    def migrate(self, host: Host, work: Work, target: Target, method: Method) -> MovedAway:
        """Move it. If it fails, it goes on, or the error says that it does not. Raises RunError."""

"""The interface of instances that nearmetal has not started."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from .surroundings import HostCheck

SECONDS = 600.0
"""Default time limit of a program that checkpoints, restores or moves an instance, in seconds."""
ASK_SECONDS = 30.0
"""Time limit of a program that only queries or changes a state, in seconds."""


def restore_line(images: Path) -> str:
    """Return the command that restores an instance from a directory."""
    return f"nearmetal restore {shlex.quote(str(images))}"


class WrittenError(RunError):
    """The files of a checkpoint are complete, but the instance is not known to have ended.

    The caller must say where the files are, and how the instance is restored from them.
    """


class RestoredError(RunError):
    """An instance was restored and runs, but its new name is not known. It must not be restored again."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Properties of a running instance.

    memory: size of its memory in bytes, which is the most that a checkpoint can contain.
    processes: PIDs of the processes whose memory can be sampled; empty if they are not on this machine.
    guest: size of a guest's memory in bytes; None for an instance that is not a guest.
    files: bytes of files that exist only in its memory, such as those in /dev/shm of a container. A
        checkpoint contains them too.
    warning: why the machine may start a second copy at its next boot; empty if it does not.
    """

    memory: int
    processes: tuple[int, ...] = ()
    guest: int | None = None
    files: int = 0
    warning: str = ""

    def image_bytes(self, methods: Iterable[Method]) -> int:
        """Return the most bytes of images on a disk, by any of some methods. Methods that fetch the memory
        later write none of it."""
        return self.files + (0 if all(method.fetches_later for method in methods) else self.memory)


class DestinationKind(StrEnum):
    """The kind of a destination.

    DIRECTORY: a directory for the images. The instance is restored from it on this machine.
    SOCKET: the QMP socket of a QEMU that waits for a guest.
    HOST: another machine, reached by ssh.
    """

    DIRECTORY = "directory"
    SOCKET = "socket"
    HOST = "host"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A destination as the user has written it."""

    way: DestinationKind
    text: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse a destination. It is a socket if it begins with 'qmp:' or is the path of a socket, a
        directory if it contains a slash but no '://', and otherwise a host."""
        path = Path(text.removeprefix("qmp:"))
        if text.startswith("qmp:") or path.is_socket():
            return cls(way=DestinationKind.SOCKET, text=str(path))
        if "://" not in text and ("/" in text or text in (".", "..")):
            return cls(way=DestinationKind.DIRECTORY, text=text)
        return cls(way=DestinationKind.HOST, text=text)


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The description of a checkpoint, which is stored with its images.

    name: name of the instance, with its prefix.
    own: data that the restore of this kind of instance needs, from External.needs().
    machine: the machine as the instance saw it, from machine.describe(); empty if unknown.
    size: bytes of all files; 0 before they are written.
    """

    name: str
    method: Method
    own: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, JsonValue] = field(default_factory=dict)
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class Work:
    """The options of a checkpoint, a restore or a move.

    criu: returns a CRIU that works on a host, or raises UnavailableError.
    keep_running: whether the instance continues after its checkpoint.
    bandwidth: maximum bandwidth in B/s; None for no limit.
    downtime_limit: pre-copy stops the instance when the rest of the memory can be copied within this many
        seconds.
    time_limit: time limit of a checkpoint or a move, in seconds.
    round_written: is called with the directory of each pre-copy round of CRIU, while the instance runs.
    before_end: command that must succeed before CRIU ends the instance, after the images are on the disk;
        empty for none.
    """

    criu: Callable[[Host], Criu]
    keep_running: bool = False
    bandwidth: float | None = None
    downtime_limit: float = 0.3
    time_limit: float = SECONDS
    round_written: Callable[[Path], object] = lambda _: None
    before_end: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MovedAway:
    """A finished move to another QEMU or host. Times are in seconds.

    now: name of the instance at its destination.
    total: duration of the move.
    downtime: standstill; None if the hypervisor reports none.
    sent: bytes sent; None if the hypervisor reports none.
    rounds: number of passes over the memory; 0 if unknown.
    warning: what the user must still do; empty for nothing.
    """

    now: str
    total: float
    downtime: float | None
    sent: int | None
    rounds: int = 0
    warning: str = ""


class External(Protocol):
    """An instance that the user has started.

    name: its name, with the prefix of its kind, such as 'runc:web'.
    keeps_name: whether its images contain its name, so that a restore cannot give it another one.
    checkpoints_by: methods of checkpoints that it supports, the default first.
    moves_by: methods of moves that it supports, by kind of destination, the default first. An instance cannot
        be moved to a kind of destination that is missing.
    own_fields: what needs() may return: by name, the pattern of the whole value. Everything else in a
        description is refused, since somebody else may have written it.
    """

    @property
    def name(self) -> str: ...

    @property
    def keeps_name(self) -> bool: ...

    @property
    def checkpoints_by(self) -> tuple[Method, ...]: ...

    @property
    def moves_by(self) -> Mapping[DestinationKind, tuple[Method, ...]]: ...

    @property
    def own_fields(self) -> Mapping[str, str]: ...

    def refuses(self, way: DestinationKind) -> Unavailable:
        """Return why the instance cannot be moved to a kind of destination that moves_by does not contain."""

    def exceeds(self, way: DestinationKind, method: Method, bandwidth: float) -> Unavailable | None:
        """Return why a move cannot be limited to a bandwidth; None if it can.

        bandwidth: B/s.
        """

    def require_programs(self, host: Host, work: Work) -> None:
        """Check that a host has all programs that a checkpoint or a restore needs.

        Raises UnavailableError if it lacks one.
        """

    def inspect(self, host: Host) -> Facts:
        """Return the properties of the running instance. Nothing is changed.

        Raises UsageError if it does not exist or does not run, UnavailableError if a program is missing.
        """

    def remaining_state(self, host: Host) -> str:
        """Return the state of the instance on a host as part of a message, such as 'still runs' or 'is
        paused'; '' if it has ended there, so that it may be restored.

        Raises UnavailableError if a program is missing, RunError if the state cannot be read.
        """

    def costs(self, method: Method) -> Costs: ...

    def needs(self, host: Host) -> Mapping[str, str]:
        """Return what the restore of a checkpoint that is made now will need to know of this instance
        (Saved.own), by name.

        host: the machine on which the instance runs.

        Raises UsageError if the instance does not run.
        """

    def checkpoint(self, host: Host, work: Work, images: Path, method: Method) -> None:
        """Write the instance to files in an empty directory. If it ends, the files are on the disk before.

        Raises RunError. The instance then continues, or the error says that it does not.
        """

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        """Restore the instance on a host, and return its new name.

        images: directory of the checkpoint on this host.
        Raises RunError. No process of the instance then runs on the host, except after RestoredError.
        """

    def look(self, host: Host, images: Path, saved: Saved) -> Iterator[HostCheck]:
        """Check whether a host has what restore() needs there, and yield the results. Nothing is changed."""


@runtime_checkable
class Dumps(Protocol):
    """Extra interface of instances that support all checkpoint methods of CRIU.

    what: kind and name of the instance for messages, such as 'container web'.
    """

    @property
    def what(self) -> str: ...

    def first(self, host: Host) -> int:
        """Return the PID of the instance's first process. Raises UsageError if the instance does not
        exist."""

    def dump_command(self, host: Host, work: Work, dump: Dump) -> list[str]:
        """Return the command line that writes the instance to files. The instance ends with it, unless
        work.keep_running or dump.round is set."""

    def thaw(self, host: Host) -> None:
        """Resume the instance after an interrupted dump. Harmless if it runs."""

    def restore_lazily(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        """Restore the instance as External.restore() does, but without its memory. A `criu lazy-pages` on the
        host, which must be running already, fetches the memory from the source."""

    def discard(self, host: Host, saved: Saved) -> None:
        """Kill all processes of the restored instance on a host. Harmless if there are none."""


@runtime_checkable
class Moves(Protocol):
    """Extra interface of instances that are moved directly, without images in files."""

    def require_target(self, host: Host, target: Target) -> None:
        """Check whether a destination can accept the instance, as far as this is known before a move.

        Raises UsageError if it cannot.
        """

    def migrate(self, host: Host, work: Work, target: Target, method: Method) -> MovedAway:
        """Move the instance.

        Raises RunError. The instance then continues at its source, or the error says that it does not.
        """

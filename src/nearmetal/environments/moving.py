"""Extra interfaces of backends whose instances can be checkpointed, restored and moved."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..errors import RunError
from ..host import Host
from ..lifecycle import CopyRound, Costs, Method, PageSample, PhaseTimes
from ..model.study import Attachment, Environment
from .contract import Instance, InstanceRequest, Tools, Unavailable


@dataclass(frozen=True, kw_only=True)
class Criu:
    """A CRIU that works on this machine.

    argv: command that runs it.
    unable: methods that cannot be used on this machine, each with the reason and a remedy.
    """

    argv: tuple[str, ...]
    version: str
    unable: Mapping[Method, Unavailable] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Dump:
    """The options of one dump: how an instance is written to files.

    images: an existing directory for the files.
    server: descriptor of a TCP connection, which the dump must inherit. Without `ready` it leads to a page
        server to which the dump sends the memory; with `ready`, to the program that fetches the memory from
        the dump. None if the memory is written to files.
    ready: file descriptor on which a lazy dump reports that its files are complete. The memory stays at the
        source until the destination has fetched it. None if the dump is not lazy.
    previous: directory with the files of the previous pre-copy round; it has the same parent directory as
        `images`. None if there is no previous round.
    round: whether this is a pre-copy round: only memory is written, and the instance continues.
    tracked: whether the kernel tracks from now on which pages are modified, for a later dump.
    """

    images: Path
    server: int | None = None
    ready: int | None = None
    previous: Path | None = None
    round: bool = False
    tracked: bool = False


Restore = Callable[[Path], AbstractContextManager[Instance]]
"""A function that restores an instance from a directory with CRIU images; the instance runs until exit.

No process of the checkpointed instance may run any more, except during a lazy restore
(InstanceRequest.lazy). Raises RunError."""
MEMORY_FILES = "pages-*.img"
"""Glob pattern of the files of a checkpoint that contain memory."""


@runtime_checkable
class BeginsEarly(Protocol):
    """Extra interface of a Restore that can be started while the memory is still being copied. This shortens
    the standstill of the instance."""

    def begin(self, images: Path) -> None:
        """Start the program that restores the instance. The program waits until the Restore is called with
        the same directory.

        images: directory of the checkpoint, which must contain all files except MEMORY_FILES. The layer of
            the instance must be complete as well.
        Raises RunError.
        """


@runtime_checkable
class Checkpoints(Protocol):
    """Extra interface of backends whose instances can be checkpointed to files and restored from them.

    A checkpoint contains only the commands that were started by command_alone(): these have no parent outside
    of the instance.

    checkpoints_by: the methods that the backend supports. All of them use CRIU.
    restores_beside: whether restoring() may be entered while the source still runs.
    writes_after_end: whether a dump may write files after it has ended the processes of the instance.
    has_statistics: whether a dump writes CRIU's statistics to a file beside the images.
    costs: time constants of these methods, for the prediction.
    passes: how often the memory is copied: twice if it is written to files and read back.
    """

    checkpoints_by: tuple[Method, ...]
    restores_beside: bool
    writes_after_end: bool
    has_statistics: bool
    costs: Costs
    passes: float

    def refuses_checkpoint(self, host: Host, environment: Environment) -> Unavailable | None:
        """Return why no instance of an environment can be checkpointed; None if it can."""

    def command_alone(self, instance: Instance, argv: Sequence[str]) -> list[str]:
        """Return a command line that starts argv inside the instance and exits as soon as argv runs.

        The output of argv must go to files that the instance sees.
        """

    def dump_command(
        self, tools: Tools, criu: Criu, request: InstanceRequest, instance: Instance, dump: Dump
    ) -> list[str]:
        """Return the command line that writes a running instance to files. Unless dump.round is set, the
        instance ends with it.

        If the command fails, the instance continues; it may need thaw().

        request: the request by which the instance was started; it must have a layer.
        Raises RunError if the instance has ended.
        """

    def watch_dump(self, instance: Instance, images: Path) -> Callable[[int], str]:
        """Return a function that says why a dump of a running instance will hang forever; '' if it may
        succeed. The function is called with the PID of the program that dumps.

        images: directory of the images.
        """

    def thaw(self, host: Host, tools: Tools, request: InstanceRequest, instance: Instance) -> None:
        """Resume an instance whose dump was interrupted. Harmless if the instance runs."""

    def restoring(
        self, host: Host, tools: Tools, criu: Criu, request: InstanceRequest
    ) -> AbstractContextManager[Restore]:
        """Make everything that a restored instance needs except its processes, such as control groups. Yields
        the function that restores the processes. On exit, everything is removed.

        With restores_beside it is entered while the source still runs, which shortens the standstill.
        request: like the request of dump_command(). By the time of the restore, its layer must hold a copy of
            the files that the instance had written to its root.
        Raises RunError.
        """


@runtime_checkable
class HoldsConnections(Checkpoints, Protocol):
    """Extra interface of backends whose checkpoints contain TCP connections (InstanceRequest.connections).

    restored_at: attachments with which an instance can be restored at another seat of the same network. The
        instance keeps its MAC and IP address.
    """

    restored_at: frozenset[Attachment]

    def network_of_dump(self, request: InstanceRequest) -> tuple[str, ...]:
        """Return the command prefix that enters the network namespace in which CRIU dumps an instance; empty
        if CRIU is in the machine's own, or enters it otherwise."""


class MoveBarrier:
    """Barrier for the moves of several guests. Each move is made by its own thread.

    No guest is saved before all guests are stopped, and no guest continues before all are restored. If one
    move fails, every guest continues at its source, unless the source no longer exists (libvirt) or cannot
    continue (Xen). Such a guest is lost, and its error says so.
    """

    def __init__(self, guests: int) -> None:
        self._barrier = threading.Barrier(guests)
        self._cause = "it took too long"

    def meet(self, seconds: float) -> None:
        """Wait until the threads of all guests have called this method.

        seconds: time limit.
        Raises RunError at the time limit, or if the move of another guest has failed.
        """
        try:
            self._barrier.wait(max(seconds, 0.0))
        except threading.BrokenBarrierError as e:
            raise RunError(f"another guest of the job was not moved: {self._cause}") from e

    def fail(self, cause: str) -> None:
        """Report that the move of a guest has failed: meet() raises an error in all threads.

        cause: reason in the message of these errors. Only the cause of the first call is kept.
        """
        if not self._barrier.broken:
            self._cause = cause
        self._barrier.abort()


@dataclass(frozen=True, kw_only=True)
class MoveRequest:
    """How an instance is moved, and its destination.

    destination: request for the instance at the destination. The moved instance keeps its host name, address
        and label. The label and directories of the destination's request are used for the processes and
        files of the new place, such as a second QEMU.
    bandwidth: maximum bandwidth in B/s; None for no limit.
    downtime_limit: pre-copy stops the instance when the rest of the memory can be copied within this many
        seconds.
    time_limit: time limit in seconds. At the limit the move is abandoned, and the source continues. A guest
        may take as long again to answer at the destination, if that is more than usual.
    together: synchronizes the move with those of other guests, for method OFFLINE only; None for a single
        move.
    """

    method: Method
    destination: InstanceRequest
    bandwidth: float | None = None
    downtime_limit: float = 0.3
    time_limit: float = 60.0
    together: MoveBarrier | None = None


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A finished move. Times are in seconds.

    instance: the moved instance at its destination, with its old label.
    total: from the request until the instance ran at the destination and the source was no longer needed.
    downtime: standstill as reported by the hypervisor; None if it reports none.
    stopped: measured standstill, from the stop at the source to the resumption at the destination.
    began, ended: start and end of the move, CLOCK_MONOTONIC of the machine.
    sent: bytes sent.
    rounds: number of passes over the memory.
    copied: the rounds that were observed while the instance still ran; empty for methods without rounds.
    """

    instance: Instance
    phases: PhaseTimes
    total: float
    downtime: float | None
    stopped: float
    began: float
    ended: float
    sent: int
    rounds: int
    copied: tuple[CopyRound, ...] = ()


@runtime_checkable
class Migrates(Protocol):
    """Extra interface of backends whose running instances can be moved to another place.

    moves_by: the methods of migration that the backend supports, not including AUTO.
    """

    moves_by: tuple[Method, ...]

    def unmovable(self, environment: Environment, method: Method) -> Unavailable | None:
        """Return why instances of an environment cannot be moved by a method; None if they can."""

    def migrate(
        self, host: Host, tools: Tools, instance: Instance, request: MoveRequest
    ) -> AbstractContextManager[Moved]:
        """Move an instance that start() or migrate() of this backend returned. On exit, the moved instance is
        ended.

        If the move fails, the instance continues at its source, or the error says that it is lost. It never
        runs at both places. The context of start() or migrate() that returned the instance must stay open.
        Raises UnavailableError or RunError; lifecycle.NotConvergedError if pre-copy took too long.
        """


@runtime_checkable
class EnablesMoves(Protocol):
    """Extra interface of backends whose running instances must be reconfigured before they can be moved
    (Environment.movable)."""

    def enable_moves(self, instance: Instance) -> None:
        """Apply all settings that a move of an instance needs, for any method, without moving it.

        Raises RunError.
        """


@runtime_checkable
class Predictable(Protocol):
    """Extra interface of backends whose moves can be predicted, so that `method: auto` can choose a method.

    costs: time and bandwidth constants of moves between two places of one machine, for the prediction.
    """

    costs: Costs

    def sample_memory(self, instance: Instance) -> PageSample:
        """Sample the memory of an instance that start() or migrate() of this backend returned, for at most
        two seconds.

        Raises UnavailableError or RunError.
        """

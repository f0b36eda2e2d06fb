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
    """A CRIU that works here.

    unable: why methods cannot be used on this machine, and what helps.
    """

    argv: tuple[str, ...]
    version: str
    unable: Mapping[Method, Unavailable] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Dump:
    """How an instance is written to files.

    images: an existing directory for the files.
    server: port, on the loopback interface, of the page server that receives the memory; with `ready`, of the
        page server that the dump itself becomes. None if the memory is written to files too.
    ready: descriptor on which the dump reports that its files are complete. The memory then stays at the
        source until the destination has fetched it. None if all memory is written.
    previous: directory with the files of the previous round, beside `images`; None in the first round.
    round: whether this is a round of pre-copy: only memory is written, and the instance goes on.
    tracked: whether the kernel records which pages are written to from now on.
    """

    images: Path
    server: int | None = None
    ready: int | None = None
    previous: Path | None = None
    round: bool = False
    tracked: bool = False


Restore = Callable[[Path], AbstractContextManager[Instance]]
"""Restores an instance from a directory with images until exit. Nothing may run of the one that was
checkpointed, unless its memory is fetched. Raises RunError."""
MEMORY_FILES = "pages-*.img"
"""The files of a checkpoint that contain memory."""


@runtime_checkable
class BeginsEarly(Protocol):
    """Extra interface of a Restore that begins while the memory is copied, so that the instance stands still
    for a shorter time."""

    def begin(self, images: Path) -> None:
        """Start the program that restores. It waits until it is called with the same directory.

        images: contains all files except MEMORY_FILES; the layer is complete.
        Raises RunError.
        """


@runtime_checkable
class Checkpoints(Protocol):
    """Extra interface of backends whose instances can be written to files and restored from them.

    Only commands that run without a caller (command_alone) are part of a checkpoint.

    checkpoints_by: the methods, all of CRIU.
    """

    checkpoints_by: tuple[Method, ...]

    def refuses_checkpoint(self, host: Host, environment: Environment) -> Unavailable | None:
        """Return why no instance of an environment can be checkpointed; None if it can."""

    def command_alone(self, instance: Instance, argv: Sequence[str]) -> list[str]:
        """Return a command line that starts argv inside the instance and ends as soon as it runs.

        The command must write to files that the instance sees.
        """

    def dump_command(
        self, tools: Tools, criu: Criu, request: InstanceRequest, instance: Instance, dump: Dump
    ) -> list[str]:
        """Return the command line that writes a running instance to files, and thereby ends it.

        If the command fails, the instance goes on, if need be after thaw().

        request: the request by which it was started, with a layer.
        Raises RunError if the instance has ended.
        """

    def thaw(self, host: Host, tools: Tools, request: InstanceRequest, instance: Instance) -> None:
        """Let an instance go on whose dump was interrupted. Harmless if it runs."""

    def restoring(
        self, host: Host, tools: Tools, criu: Criu, request: InstanceRequest
    ) -> AbstractContextManager[Restore]:
        """Make what a restored instance needs besides its processes, such as control groups. On exit, all of
        it is removed.

        It may be called while the source runs, so that the source stands still for a shorter time.
        request: as for dump_command(); its layer holds what the instance had written to its root, when it is
            restored.
        Raises RunError.
        """


@runtime_checkable
class HoldsConnections(Checkpoints, Protocol):
    """Extra interface of backends whose checkpoints contain TCP connections (InstanceRequest.connections).

    restored_at: attachments whose instances are restored at another seat of their network, with the MAC and
        address of the seat where they were.
    """

    restored_at: frozenset[Attachment]

    def network_of_dump(self, request: InstanceRequest) -> tuple[str, ...]:
        """Return the words that enter the network namespace in which the dump of an instance runs, and so
        meets a page server; none for that of the machine."""


class Together:
    """Keeps the moves of several guests in step; each is made by a thread of its own.

    No guest is saved before all are stopped, and none goes on before all are restored. If a move fails, the
    guests continue at their source, except where the source has ended by then (libvirt); their errors say so.
    """

    def __init__(self, guests: int) -> None:
        self._barrier = threading.Barrier(guests)
        self._cause = "it took too long"

    def meet(self, seconds: float) -> None:
        """Wait until all guests are as far.

        Raises RunError if the move of another one has failed, or if they take longer than some seconds.
        """
        try:
            self._barrier.wait(max(seconds, 0.0))
        except threading.BrokenBarrierError as e:
            raise RunError(f"another guest of the job was not moved: {self._cause}") from e

    def fail(self, cause: str) -> None:
        """Say that the move of a guest has failed. Only the first cause is kept."""
        if not self._barrier.broken:
            self._cause = cause
        self._barrier.abort()


@dataclass(frozen=True, kw_only=True)
class MoveRequest:
    """How an instance is moved, and where to.

    destination: its place there. The instance keeps its host name, address and label; those of the
        destination are labels and places of what carries it there.
    bandwidth: most bytes per second; None for no limit.
    downtime_limit: seconds of standstill that pre-copy may spend on the rest of the memory.
    time_limit: seconds after which the move is given up, and the source continues.
    together: keeps it in step with the moves of other guests, by method OFFLINE only; None if it is alone.
    """

    method: Method
    destination: InstanceRequest
    bandwidth: float | None = None
    downtime_limit: float = 0.3
    time_limit: float = 60.0
    together: Together | None = None


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A finished move. Times are in seconds.

    instance: the instance as it runs now, with the label of the one that was moved.
    total: from the request until the instance ran at the destination and the source was not needed any more.
    downtime: standstill as the mechanism reports it; None if it reports none.
    stopped: from the stop at the source to the resumption at the destination.
    began, ended: of the move, by CLOCK_MONOTONIC of the machine.
    sent: bytes sent.
    rounds: times that the memory was gone through.
    copied: rounds that were seen while the instance still ran; none of methods without rounds.
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

    moves_by: the methods of migration that it has. AUTO is none of them.
    """

    moves_by: tuple[Method, ...]

    def unmovable(self, environment: Environment, method: Method) -> Unavailable | None:
        """Return why instances of an environment cannot be moved by a method; None if they can."""

    def migrate(
        self, host: Host, tools: Tools, instance: Instance, request: MoveRequest
    ) -> AbstractContextManager[Moved]:
        """Move an instance that start() or migrate() of this backend returned. On exit, the moved instance
        ends.

        If the move fails, the instance continues at its source, or the error says that it is lost. There are
        never two of it. The context of the instance that was moved must stay open.
        Raises UnavailableError or RunError; lifecycle.NotConvergedError if pre-copy took too long.
        """


@runtime_checkable
class EnablesMoves(Protocol):
    """Extra interface of backends whose instances need settings before a move (Environment.movable)."""

    def enable_moves(self, instance: Instance) -> None:
        """Set everything that a move of an instance by any method needs, and leave the instance where it is.

        Raises RunError.
        """


@runtime_checkable
class Predictable(Protocol):
    """Extra interface of backends whose moves can be predicted, so that `method: auto` can choose.

    costs: of a move between two places of one machine, with the bandwidth.
    """

    costs: Costs

    def sample_memory(self, instance: Instance) -> PageSample:
        """Sample the memory of an instance that start() or migrate() of this backend returned, for at most
        two seconds.

        Raises UnavailableError or RunError.
        """

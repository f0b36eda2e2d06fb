"""Hooks of a checkpoint and restore, and those that move an instance from one network address to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...environments import Instance, InstanceRequest, Seat, Tools
from ...errors import RunError
from ...host import Host
from ...model.change import replace

SECONDS = 30.0


class EventHooks:
    """Hooks that checkpoint_event.CheckpointEvent calls. In this base class they do nothing.

    They are called in the order in which they are written here. If the destination can be prepared only after
    the source has been removed, prepare() comes after leave().
    """

    def begun(self) -> None:
        """Called when the program runs in the source instance."""

    def destination(self, request: InstanceRequest) -> InstanceRequest:
        """Return the request for the restored instance. Called at the beginning of the move.

        request: like the request for the source instance, with the same seat.
        """
        return request

    def prepare(self) -> None:
        """Called before the destination is prepared."""

    def leave(self) -> None:
        """Called before the instance is stopped at the source."""

    def stay(self) -> None:
        """Called when the instance continues at the source after a failure."""

    def ended(self, restored: Instance) -> None:
        """Called after the program has verified itself in the restored instance, while both still run.

        Raises RunError if the instance is not where it should be.
        """


NO_HOOKS = EventHooks()


@dataclass(frozen=True, kw_only=True)
class SeatPort:
    """The node's end of the link between an instance and its emulated node.

    netns: path of the node's network namespace.
    interface: name of the link's interface in that namespace.
    """

    netns: str
    interface: str


@dataclass(kw_only=True)
class SeatChange(EventHooks):
    """Moves an instance from one seat to another. The instance keeps its MAC and IP addresses.

    The instance is cut off from the network before it stops, and connected again only when its TCP
    connections have been restored. Otherwise the kernel would answer the packets of its peers in the
    meantime, and reset their connections.
    here, there: the seats at the source and at the destination.
    port_here, port_there: the nodes' ends of their links.
    """

    host: Host
    tools: Tools
    here: Seat
    there: Seat
    port_here: SeatPort
    port_there: SeatPort

    def prepare(self) -> None:
        self._run("down", self.port_there.netns, self.port_there.interface)
        self._run("take", self.here.netns, self.there.netns, self.here.interface)

    def leave(self) -> None:
        self._run("down", self.port_here.netns, self.port_here.interface)

    def stay(self) -> None:
        self._run("down", self.port_there.netns, self.port_there.interface)  # a restore may have begun
        self._run("up", self.port_here.netns, self.port_here.interface)

    def destination(self, request: InstanceRequest) -> InstanceRequest:
        arrival = self._argv("up", self.port_there.netns, self.port_there.interface)
        return replace(request, seat=self.there, arrival=tuple(arrival))

    def ended(self, restored: Instance) -> None:
        """Check that the first restored process is in the network namespace of the other seat.

        Raises RunError if it is not, or if it has ended.
        """
        try:
            arrived = Path(f"/proc/{restored.pid}/ns/net").samefile(self.there.netns)
        except OSError as e:
            raise RunError(f"the instance was restored, but its first process has ended: {e.strerror}") from e
        if not arrived:
            raise RunError("the instance was restored, but not at the other node")

    def _argv(self, *words: str) -> Sequence[str]:
        return [self.tools / "nm-box", "seat", *words]

    def _run(self, *words: str) -> None:
        done = self.host.run(self._argv(*words), timeout=SECONDS)
        if not done.ok:
            raise RunError(f"the address of the instance cannot be moved: {done.failure()}")

"""Further steps of a checkpoint and restore: the instance may move from one network address to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..environments import Instance, InstanceRequest, Seat, Tools
from ..errors import RunError
from ..host import Host
from ..model.change import replace

SECONDS = 30.0


class Around:
    """Called by a checkpoint (checkpoint_event.CheckpointEvent) in this order. It does nothing."""

    def begun(self) -> None:
        """The program runs."""

    def destination(self, request: InstanceRequest) -> InstanceRequest:
        """Return the request for the restored instance, given one like that of the source. The move has been
        requested."""
        return request

    def prepare(self) -> None:
        """The destination is prepared."""

    def leave(self) -> None:
        """The instance is going to be stopped at the source."""

    def stay(self) -> None:
        """The instance continues at the source after a failure."""

    def ended(self, restored: Instance) -> None:
        """Act after the program has verified itself in the restored instance, while it still runs.

        Raises RunError.
        """


NOTHING = Around()


@dataclass(frozen=True, kw_only=True)
class SeatPort:
    """The end of an instance's link at its node.

    netns: path of the node's network namespace.
    interface: name of that end.
    """

    netns: str
    interface: str


@dataclass(kw_only=True)
class SeatChange(Around):
    """A change of seats. The instance takes its MAC and address along.

    It is cut off from the network before it stops, and connected again when its connections are restored.
    Otherwise the kernel would answer its peers meanwhile, and reset their connections.
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
        """Check that the restored processes are in the network of the other seat."""
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

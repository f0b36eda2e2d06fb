"""A node of a placement: where some of the instances of a trial run."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from ..environments import Backend, Instance, InstanceRequest, Tools
from ..host import Host


@dataclass(frozen=True, kw_only=True)
class PlacementNode:
    """A node of a placement: the machine that measures, a node that is emulated on it, or a machine that is
    reached by ssh (real_nodes.RealNode).

    local: the machine that measures.
    cpus: its usable CPUs, in the order in which they are assigned to ranks.
    adjacent: the same CPUs with those of a core, a NUMA node and a socket beside each other; () for the order
        of their numbers.
    """

    local: Host
    cpus: tuple[int, ...]
    adjacent: tuple[int, ...] = ()

    def start(
        self, backend: Backend, tools: Tools, request: InstanceRequest
    ) -> AbstractContextManager[Instance]:
        """Start an instance on the node, and stop it on exit.

        tools: the programs of nearmetal on the machine that measures.

        Raises UnavailableError if the backend cannot start instances on the node, and RunError.
        """
        return backend.start(self.local, tools, request)

    def forget(self, directory: Path) -> None:
        """Remove the copy of a directory that the start of instances has made on the node. There is none on
        the machine that measures."""

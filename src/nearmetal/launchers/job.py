"""What an MPI launch is made of, whatever the MPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import UsageError
from ..model.record import JsonValue
from ..model.study import SingleCopy, Transport

JOB_VARIABLE = "NEARMETAL_JOB"
"""Set, to MpiJob.scratch, in the environment of every rank: by it the ranks of one launch are found."""


def everywhere(scratch: str) -> dict[str, str]:
    """Variables of mpirun, its daemons and the ranks of one launch. scratch: as in MpiJob."""
    return {
        # Not /tmp: there another user's session directory may stand in the way.
        "TMPDIR": scratch,
        JOB_VARIABLE: scratch,
        # Probing of the node by hwloc through X11 or OpenCL only costs start-up time. So does loading its
        # plugins, which bring libxml2 and its tables of characters with them: a tenth of a launch.
        "HWLOC_COMPONENTS": "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero",
        "HWLOC_PLUGINS_PATH": "/proc/self/no-plugins",
    }


@dataclass(frozen=True, kw_only=True)
class HostSlots:
    """A host and how many ranks it takes."""

    host: str
    slots: int


@dataclass(frozen=True, kw_only=True)
class MpiJob:
    """An MPI program and where its ranks run.

    argv: the program of every rank.
    box: path of nm-box where mpirun runs.
    interface: network interface that TCP between ranks may use.
    scratch: directory for session files; short, since the names of sockets in it have at most 108 bytes.
    hosts: empty = all ranks where mpirun itself runs.
    agent: tokens of the agent that starts daemons on hosts.
    entering: whether the ranks are started beside mpirun and enter their instances on their own, since MPI
        lets only ranks of one host share memory.
    hub_interface, hub_address: by which the daemons reach mpirun.
    forward: names of variables that the ranks must get, besides what the launcher sets.
    shared_memory: directory for segments that all ranks see; empty for the library's own choice.
    yields: whether a rank that waits gives its CPU away, because another rank has to run there.
    """

    argv: tuple[str, ...]
    box: str
    ranks: int
    transport: Transport
    interface: str
    scratch: str
    single_copy: SingleCopy = SingleCopy.NONE
    hosts: tuple[HostSlots, ...] = ()
    agent: tuple[str, ...] = ()
    entering: bool = False
    hub_interface: str = ""
    hub_address: str = ""
    forward: tuple[str, ...] = ()
    shared_memory: str = ""
    yields: bool = False

    def check(self) -> None:
        """Raises UsageError when the ranks do not fit their hosts."""
        if self.hosts and sum(h.slots for h in self.hosts) != self.ranks:
            raise UsageError(f"{self.ranks} ranks do not fit hosts {self.hosts}")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """argv and env start it; transport: what was fixed, for the record."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    transport: Mapping[str, JsonValue]

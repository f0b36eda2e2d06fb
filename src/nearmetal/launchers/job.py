"""The data of an MPI launch, independent of the MPI implementation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import UsageError
from ..model.record import JsonValue
from ..model.study import SingleCopy, Transport

JOB_VARIABLE = "NEARMETAL_JOB"
"""Set to MpiJob.scratch in the environment of every rank, so that the ranks of one launch can be found."""


def everywhere(scratch: str) -> dict[str, str]:
    """Return the environment variables of mpirun, its daemons and the ranks of one launch.

    scratch: as in MpiJob.
    """
    return {
        # Not /tmp, where another user's session directory may be in the way.
        "TMPDIR": scratch,
        JOB_VARIABLE: scratch,
        # hwloc's probes through X11 or OpenCL only cost start-up time. So does loading its plugins, which
        # load libxml2 and its character tables: a tenth of a launch.
        "HWLOC_COMPONENTS": "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero",
        "HWLOC_PLUGINS_PATH": "/proc/self/no-plugins",
    }


@dataclass(frozen=True, kw_only=True)
class HostSlots:
    """A host of an MPI job, and the number of ranks on it."""

    host: str
    slots: int


@dataclass(frozen=True, kw_only=True)
class MpiJob:
    """An MPI program and where its ranks run.

    argv: the program of every rank.
    box: path of nm-box on the system where mpirun runs.
    interface: network interface that TCP between ranks may use.
    scratch: directory for session files. Its path must be short, since names of sockets in it have at most
        108 bytes.
    hosts: empty if all ranks run where mpirun itself runs.
    agent: command line of the agent that starts daemons on hosts.
    entering: whether the ranks are started where mpirun runs and then enter their instances. This is needed
        because MPI lets only ranks of one host share memory.
    hub_interface, hub_address: interface and address at which the daemons reach mpirun.
    forward: names of variables to pass to the ranks, in addition to those that the launcher sets.
    shared_memory: directory for segments that all ranks see; empty for the library's default.
    yields: whether a waiting rank yields its CPU, because another rank runs on the same CPU.
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
        """Check that the ranks fit their hosts.

        Raises UsageError if they do not.
        """
        if self.hosts and sum(h.slots for h in self.hosts) != self.ranks:
            raise UsageError(f"{self.ranks} ranks do not fit hosts {self.hosts}")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A launch of an MPI program.

    argv, env: command line and environment.
    transport: the settings that were fixed, for the record.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    transport: Mapping[str, JsonValue]

"""The input and the result of a launcher, independent of the MPI implementation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import UsageError
from ..model.record import JsonValue
from ..model.study import SingleCopy, Transport

_TRANSPORT = (
    *("OMPI_MCA_", "OMPI_COMM_WORLD_", "PRTE_MCA_", "PMIX_", "PMI_", "MPI_LOCAL"),
    *("MPIR_CVAR_", "MPICH_", "HYDRA_", "UCX_", "FI_"),
)
_BATCH = ("SLURM_", "SLURMD_", "PBS_", "LSB_", "LSF_", "OAR_", "FLUX_", "PE_HOSTFILE", "SGE_")


def withheld(environment: Iterable[str]) -> list[str]:
    """Return the names of the caller's variables that no process of an MPI launch gets, in order.

    Those that choose a transport would override the study's, in some environments only. By those of a batch
    system, mpirun would start ranks on the nodes of the job instead of in the instances.

    environment: names of the caller's variables.
    """
    return sorted(name for name in environment if name.startswith(_TRANSPORT + _BATCH))


JOB_VARIABLE = "NEARMETAL_JOB"
"""Environment variable of every rank. Its value is MpiJob.scratch, so that the ranks of one launch can be
found."""


def everywhere(scratch: str) -> dict[str, str]:
    """Return the environment variables for all processes of one launch: mpirun, its daemons and the ranks.

    scratch: as in MpiJob.
    """
    return {
        # Not /tmp, where a session directory of another user may have the same name.
        "TMPDIR": scratch,
        JOB_VARIABLE: scratch,
        # hwloc's probes by X11 or OpenCL, and its plugins, only lengthen the start. The plugins load libxml2
        # and its character tables, which takes a tenth of a launch.
        "HWLOC_COMPONENTS": "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero",
        "HWLOC_PLUGINS_PATH": "/proc/self/no-plugins",
    }


def fixed_names(environment: Iterable[str]) -> list[str]:
    """Return which of these variables an MPI launch sets or removes itself, in every environment alike."""
    names = list(environment)
    return [*withheld(names), *(name for name in names if name in everywhere(""))]


@dataclass(frozen=True, kw_only=True)
class HostSlots:
    """A host of an MPI job.

    host: host name.
    slots: number of ranks on it.
    """

    host: str
    slots: int


@dataclass(frozen=True, kw_only=True)
class MpiJob:
    """An MPI program, and where and how its ranks run.

    argv: command line of every rank.
    box: path of nm-box in the file system that mpirun sees.
    ranks: number of ranks.
    interface: network interface that TCP between ranks may use.
    scratch: directory for session files. Its path must be short, because the paths of sockets in it are
        limited to 108 bytes.
    hosts: hosts of the ranks; empty if all ranks run where mpirun runs.
    agent: command line of the agent by which mpirun starts its daemons on the hosts.
    entering: whether the ranks are started where mpirun runs, and then enter their instances. MPI then takes
        them for ranks of one host, which can share memory.
    hub_interface, hub_address: interface and address at which the daemons reach mpirun.
    forward: names of environment variables that are passed to the ranks, in addition to those of the
        launcher.
    shared_memory: directory for shared memory segments, which all ranks see; empty for the default of MPI.
    yields: whether a waiting rank yields its CPU to another rank on the same CPU.
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
        """Check that the hosts have as many slots as there are ranks.

        Raises UsageError if they do not.
        """
        if self.hosts and sum(h.slots for h in self.hosts) != self.ranks:
            raise UsageError(f"{self.ranks} ranks do not fit hosts {self.hosts}")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A launch of an MPI program.

    argv: command line.
    env: environment variables; None for one that is removed (withheld()).
    transport: MPI and its settings for the transport, for the record of the trial.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str | None]
    transport: Mapping[str, JsonValue]

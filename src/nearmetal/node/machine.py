"""The machine that a run measures on, and the cache of the tools compiled for it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from ..environments import Tools
from ..errors import UnavailableError
from ..host import Host, cgroups
from ..host.cgroups import EffectiveLimits
from ..host.facts.provenance import cpu_flags, llc_bytes, memory_bytes
from ..host.facts.topology import topology
from ..host.runtime import cache_directory
from ..images import ImageStore
from ..launchers import InstalledMpi, find_mpi
from ..model.study import Mpi
from ..workloads.build import BuiltTools, StoredTools, build_tools, stored_tools
from .progress import Progress

RDMA = Path("/sys/class/infiniband")


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Properties of this machine that applications may need.

    memory: bytes that all instances may use together.
    cpu_flags: as in /proc/cpuinfo; empty if there are none.
    rdma: names of the RDMA devices.
    """

    memory: int
    cpu_flags: frozenset[str] = frozenset()
    rdma: tuple[str, ...] = ()


OWN_MEMORY = 256 << 20
"""Memory of nearmetal itself and of mpirun, in bytes. In a batch job it counts too."""


def hardware_of(host: Host, rdma: Path = RDMA, limits: EffectiveLimits | None = None) -> Hardware:
    """Read the hardware properties of the host.

    rdma: the directory in which Linux lists its RDMA devices.
    limits: limits of the control groups in which nearmetal was started; None to read them.
    """
    memory = memory_bytes(host) or 1 << 30
    limit = (limits or cgroups.caller_limits()).memory
    if limit is not None and limit < memory:
        memory = max(limit - OWN_MEMORY, limit // 2)
    return Hardware(
        memory=memory,
        cpu_flags=cpu_flags(host),
        rdma=tuple(sorted(p.name for p in rdma.iterdir())) if rdma.is_dir() else (),
    )


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The host, with all tools compiled.

    llc: bytes of all last-level caches together.
    cpus: usable CPUs, in the order in which they are assigned to ranks.
    adjacent: as in PlacementNode.
    cores: number of cores that these CPUs belong to.
    hardware: properties from which applications choose their problem sizes.
    """

    host: Host
    tools: Tools
    built: BuiltTools
    mpi: InstalledMpi
    llc: int
    cpus: tuple[int, ...]
    adjacent: tuple[int, ...]
    cores: int
    hardware: Hardware


def image_store() -> ImageStore:
    return ImageStore(cache_directory() / "images")


def prepare_machine(
    host: Host, progress: Progress, mpi: Mpi | None = None, stored: StoredTools | None = None
) -> Machine:
    """Find the MPI and compile the tools for it (cached by digest).

    mpi: the requested MPI; None for the one that mpirun belongs to.
    stored: compiled tools of the run, used if CPU and MPI fit. No compiler is then needed here.

    Raises UnavailableError, which names what to install.
    """
    found = find_mpi(host, mpi)
    built = stored_tools(host, cache_directory(), stored) if stored is not None else None
    if built is None or not found.compiled_by(built.mpi):
        built = build_tools(host, cache_directory(), progress=progress.phase, mpicc=found.mpicc)
    if not found.compiled_by(built.mpi):
        raise UnavailableError(
            f"{found.mpirun} is of {found.title}, but {found.mpicc} compiles for {built.mpi}",
            remedy="write mpi: openmpi or mpi: mpich into the study's design, or set both to one MPI",
        )
    places, limits = topology(host, host.cpus()), cgroups.caller_limits()
    if limits.exist:
        sizes = "; sizes that are auto follow it" if limits.memory is not None else ""
        progress.note(f"every environment is limited to {limits.words}, as the control group here is{sizes}")
    return Machine(
        host=host,
        tools=Tools(directory=built.directory),
        built=built,
        mpi=found,
        llc=llc_bytes(host) or 32 << 20,
        cpus=places.order,
        adjacent=places.adjacent,
        cores=places.cores,
        hardware=hardware_of(host),
    )


def new_label() -> str:
    """Return a new label: 'nearmetal-' and six hexadecimal digits."""
    return f"nearmetal-{secrets.token_hex(3)}"

"""The machine that a run measures on, and the cache of the tools compiled for it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from ..environments import Tools
from ..errors import UnavailableError
from ..host import Host
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

    memory: bytes.
    cpu_flags: as in /proc/cpuinfo; empty if there are none.
    rdma: names of the RDMA devices.
    """

    memory: int
    cpu_flags: frozenset[str] = frozenset()
    rdma: tuple[str, ...] = ()


def hardware_of(host: Host, rdma: Path = RDMA) -> Hardware:
    """Read the hardware properties of the host.

    rdma: the directory in which Linux lists its RDMA devices.
    """
    return Hardware(
        memory=memory_bytes(host) or 1 << 30,
        cpu_flags=cpu_flags(host),
        rdma=tuple(sorted(p.name for p in rdma.iterdir())) if rdma.is_dir() else (),
    )


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The host, with all tools compiled.

    llc: bytes of all last-level caches together.
    cpus: usable CPUs, in the order in which they are assigned to ranks.
    cores: number of cores that these CPUs belong to.
    hardware: properties from which applications choose their problem sizes.
    """

    host: Host
    tools: Tools
    built: BuiltTools
    mpi: InstalledMpi
    llc: int
    cpus: tuple[int, ...]
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
    places = topology(host, host.cpus())
    return Machine(
        host=host,
        tools=Tools(directory=built.directory),
        built=built,
        mpi=found,
        llc=llc_bytes(host) or 32 << 20,
        cpus=places.order,
        cores=places.cores,
        hardware=hardware_of(host),
    )


def new_label() -> str:
    """Return a new label: 'nearmetal-' and six hexadecimal digits."""
    return f"nearmetal-{secrets.token_hex(3)}"

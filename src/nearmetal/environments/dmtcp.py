"""Finds DMTCP, and its command lines.

DMTCP writes the processes of a job to files by a library in each of them. It needs neither root nor CRIU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..host import Host
from ..model.environments.image import HOST
from ..model.study import Environment, Mpi
from .contract import Unavailable
from .criu import ADDRESS, FRESH

LEAST = (4,)
"""Version 3.1.2 does not start the mpirun of Open MPI 4.1."""
SOURCE = "https://github.com/dmtcp/dmtcp"
VARIABLES = {
    # DMTCP ends a program that opens an entry of /sys which is no file, as hwloc does for disks. Each word
    # excludes a component of hwloc, or a part of one.
    "HWLOC_COMPONENTS": "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero,-pci,-linux:io",
    # UCX and Open MPI overwrite the beginning of functions that DMTCP has replaced.
    "UCX_MEM_EVENTS": "no",
    "OMPI_MCA_memory": "^patcher",
    # DMTCP does not restore the local datagram sockets that UCX has for shared memory and for its monitor.
    "UCX_VFS_ENABLE": "n",
    "UCX_TLS": "tcp,self",
}
"""Variables of a job under DMTCP, in place of those that it would have."""
SIGNAL = 40
"""Signal by which DMTCP stops its processes. Its default, SIGUSR2, belongs to mpirun."""
IMAGES = "ckpt_*.dmtcp"
"""Names of the files of a checkpoint, one for each process."""
_SECONDS = 10.0
_FAILURE = re.compile(r"^(?:ASSERT|ERROR) at (?:\S+: )?(.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Dmtcp:
    """A DMTCP that is installed on this machine.

    directory: of its programs.
    """

    directory: Path
    version: str

    @property
    def binds(self) -> tuple[Path, ...]:
        """The directories to mount in an instance so that it sees DMTCP; none if DMTCP is in a part of the
        machine's root that the instance has."""
        hidden = any(self.directory.is_relative_to(top) for top in FRESH)
        return (self.directory.parent,) if hidden else ()

    def coordinator(self, port_file: Path, images: Path) -> list[str]:
        """Return the command line of a coordinator.

        port_file: where it writes the port on which it listens.
        """
        where = ["--coord-port", "0", "--port-file", str(port_file), "--ckptdir", str(images)]
        return [self._program("dmtcp_coordinator"), *where, "-q"]

    def launch(self, port: int, images: Path, scratch: Path, mpi: Mpi) -> list[str]:
        """Return the words in front of the command line of a job.

        mpi: to which the job belongs. DMTCP ends a job of MPICH that asks about shared memory of System V,
            unless it leaves such calls alone.
        """
        where = ["--ckptdir", str(images), "--tmpdir", str(scratch)]
        how = ["--join-coordinator", "--no-gzip", "--ckpt-signal", str(SIGNAL)]
        how += ["--disable-svipc-plugin"] if mpi is Mpi.MPICH else []
        return [self._program("dmtcp_launch"), *_at(port), *how, *where]

    def checkpoint(self, port: int) -> list[str]:
        """Return the command line that has a job written to files. Each process ends when it is written, and
        the command before all are."""
        return [self._program("dmtcp_command"), *_at(port), "--kcheckpoint"]

    def status(self, port: int) -> list[str]:
        """Return the command line whose output contains the number of processes (processes_in())."""
        return [self._program("dmtcp_command"), *_at(port), "--status"]

    def restart(self, port: int, images: Path, scratch: Path) -> list[str]:
        """Return the command line that restarts a job. It stays, or ends with 0 if the job is in a session of
        its own."""
        # It warns of files of another user, also if root restores its own.
        how = ["--join-coordinator", "--no-strict-checking"]
        where = ["--ckptdir", str(images), "--tmpdir", str(scratch)]
        files = sorted(str(file) for file in images.glob(IMAGES))
        return [self._program("dmtcp_restart"), *_at(port), *how, *where, *files]

    def _program(self, name: str) -> str:
        return str(self.directory / name)


def _at(port: int) -> Sequence[str]:
    return "--coord-host", ADDRESS, "--coord-port", str(port)


def find_dmtcp(host: Host) -> Dmtcp | Unavailable:
    """Return the DMTCP whose programs are on PATH, or why there is none that works."""
    remedy = f"build {SOURCE}, and put its directory bin on PATH"
    launch = host.which("dmtcp_launch")
    if launch is None:
        return Unavailable(reason="dmtcp_launch is not on PATH", remedy=remedy)
    said = host.run([launch, "--version"], timeout=_SECONDS).stdout
    number = re.search(r"\(DMTCP\) (\d+(?:\.\d+)*)", said)
    version = tuple(map(int, number[1].split("."))) if number else ()
    if version < LEAST:
        text = ".".join(map(str, version)) or "unknown"
        least = ".".join(map(str, LEAST))
        return Unavailable(reason=f"{launch} is of version {text}, older than {least}", remedy=remedy)
    return Dmtcp(directory=Path(launch).resolve().parent, version=".".join(map(str, version)))


def refuses_dmtcp(host: Host, environment: Environment) -> Unavailable | None:
    """Return why no job in an instance of an environment can be written to files by DMTCP, whatever its
    backend; None if it can."""
    if environment.image != HOST:
        return Unavailable(
            reason="DMTCP belongs to the machine, and is built for its C library only",
            remedy=f"image: {HOST}, or method criu",
        )
    if environment.inside is not None:
        return Unavailable(
            reason="DMTCP runs on the machine, not in a guest", remedy="take inside out of the environment"
        )
    found = find_dmtcp(host)
    return found if isinstance(found, Unavailable) else None


def processes_in(status: str) -> int | None:
    """Return the number of processes under DMTCP, from the output of Dmtcp.status(); None if it says none."""
    found = re.search(r"NUM_PEERS=(\d+)", status)
    return None if found is None else int(found[1])


def failure_in(output: str) -> str:
    """Return the first error in the output of a program under DMTCP; empty if there is none."""
    found = _FAILURE.search(output)
    return found[1].strip() if found else ""

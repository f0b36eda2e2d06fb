"""Finds DMTCP on this machine, and builds its command lines.

DMTCP checkpoints a job by a library that it preloads into each process. It needs neither root nor CRIU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..host import Host
from ..host.connection import LOOPBACK
from ..model.environments.image import HOST
from ..model.study import Environment, Mpi
from .contract import Unavailable
from .criu import FRESH

LEAST = (4,)
"""Oldest supported version. DMTCP 3.1.2 cannot start the mpirun of Open MPI 4.1."""
SOURCE = "https://github.com/dmtcp/dmtcp"
VARIABLES = {
    # DMTCP ends a program that opens an entry of /sys that is not a file, as hwloc does for disks. Each word
    # excludes a component of hwloc, or a part of one.
    "HWLOC_COMPONENTS": "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero,-pci,-linux:io",
    # UCX and Open MPI overwrite the beginning of functions that DMTCP has replaced.
    "UCX_MEM_EVENTS": "no",
    "OMPI_MCA_memory": "^patcher",
    # DMTCP does not restore the local datagram sockets that UCX has for shared memory and for its monitor.
    "UCX_VFS_ENABLE": "n",
    "UCX_TLS": "tcp,self",
}
"""Environment variables for a job under DMTCP. They replace variables of the same name."""
SIGNAL = 40
"""Signal by which DMTCP stops processes for a checkpoint. The default, SIGUSR2, is used by mpirun."""
IMAGES = "ckpt_*.dmtcp"
"""Glob pattern of the files of a checkpoint: one per process."""
_SECONDS = 10.0
_FAILURE = re.compile(r"^(?:ASSERT|ERROR) at (?:\S+: )?(.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Dmtcp:
    """An installation of DMTCP on this machine.

    directory: directory of its programs.
    version: such as '4.0.0'.
    """

    directory: Path
    version: str

    @property
    def binds(self) -> tuple[Path, ...]:
        """The directories that must be mounted in an instance, so that it sees DMTCP; empty if it sees DMTCP
        in the machine's root already."""
        hidden = any(self.directory.is_relative_to(top) for top in FRESH)
        return (self.directory.parent,) if hidden else ()

    def coordinator(self, port_file: Path, images: Path) -> list[str]:
        """Return the command line of a coordinator, which listens on a free port.

        port_file: file to which it writes the number of this port. Temporary files go to the same directory.
        images: directory for the checkpoint files.
        """
        where = ["--coord-port", "0", "--port-file", str(port_file), "--ckptdir", str(images)]
        # Its option --tmpdir has no effect, and any user can take the name that it uses in /tmp.
        own = ["env", f"DMTCP_TMPDIR={port_file.parent}"]
        return [*own, self._program("dmtcp_coordinator"), *where, "-q"]

    def launch(self, port: int, images: Path, scratch: Path, mpi: Mpi) -> list[str]:
        """Return the command prefix that runs a job under DMTCP.

        port: port of the coordinator.
        images: directory for the checkpoint files.
        scratch: directory for DMTCP's temporary files.
        mpi: MPI of the job. For MPICH, DMTCP's plugin for System V shared memory is disabled, because it
            aborts a job of MPICH that queries this memory.
        """
        where = ["--ckptdir", str(images), "--tmpdir", str(scratch)]
        how = ["--join-coordinator", "--no-gzip", "--ckpt-signal", str(SIGNAL)]
        how += ["--disable-svipc-plugin"] if mpi is Mpi.MPICH else []
        return [self._program("dmtcp_launch"), *_at(port), *how, *where]

    def checkpoint(self, port: int) -> list[str]:
        """Return the command line that requests a checkpoint. Each process of the job ends once it is written
        to its file. The command itself ends earlier, before all processes are written."""
        return [self._program("dmtcp_command"), *_at(port), "--kcheckpoint"]

    def status(self, port: int) -> list[str]:
        """Return the command line that prints the state of the coordinator. processes_in() parses its
        output."""
        return [self._program("dmtcp_command"), *_at(port), "--status"]

    def restart(self, port: int, images: Path, scratch: Path) -> list[str]:
        """Return the command line that restarts a job from its files. The command runs as long as the job, or
        exits with status 0 at once if the job has its own session."""
        # Without --no-strict-checking it warns about files of another user, even if root restores its own.
        how = ["--join-coordinator", "--no-strict-checking"]
        where = ["--ckptdir", str(images), "--tmpdir", str(scratch)]
        files = sorted(str(file) for file in images.glob(IMAGES))
        return [self._program("dmtcp_restart"), *_at(port), *how, *where, *files]

    def _program(self, name: str) -> str:
        return str(self.directory / name)


def _at(port: int) -> Sequence[str]:
    return "--coord-host", LOOPBACK, "--coord-port", str(port)


def find_dmtcp(host: Host) -> Dmtcp | Unavailable:
    """Return the DMTCP whose programs are on PATH, or why there is none or it is too old."""
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
    """Return why DMTCP cannot checkpoint jobs in instances of an environment, for reasons that hold for all
    backends; None if there is no such reason."""
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
    """Parse the number of processes under DMTCP from the output of the command Dmtcp.status(); None if the
    output has no number."""
    found = re.search(r"NUM_PEERS=(\d+)", status)
    return None if found is None else int(found[1])


def failure_in(output: str) -> str:
    """Return the first error in the output of a program under DMTCP; empty if there is none."""
    found = _FAILURE.search(output)
    return found[1].strip() if found else ""

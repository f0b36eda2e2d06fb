"""Finds the installed MPI: its kind and version as printed by mpirun, and its compiler wrapper."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from ..errors import UnavailableError
from ..host import Host
from ..model.study import Mpi
from . import mpich, openmpi
from .job import Launch, MpiJob

VERSION_SECONDS = 60.0
_COMPILER = re.compile(r"(Open MPI|MPICH version) (\d+)\.(\d+)(?:\.(\d+))?")
MPI_PACKAGES = {
    Mpi.OPENMPI: "apt-get install openmpi-bin libopenmpi-dev",
    Mpi.MPICH: "apt-get install mpich libmpich-dev",
}
_NAMES = {
    Mpi.OPENMPI: (("mpirun", "mpicc"), ("mpirun.openmpi", "mpicc.openmpi")),
    Mpi.MPICH: (("mpirun", "mpicc"), ("mpirun.mpich", "mpicc.mpich"), ("mpiexec.hydra", "mpicc")),
}
"""Names of mpirun and its compiler wrapper: those of a single MPI, and Debian's names if there are
several."""


@dataclass(frozen=True, kw_only=True)
class InstalledMpi:
    """An installed MPI.

    mpicc: name or path of the compiler wrapper.
    version: major, minor, patch.
    """

    kind: Mpi
    version: tuple[int, int, int]
    mpirun: str
    mpicc: str

    @property
    def title(self) -> str:
        """Name and version, for example 'Open MPI 4.1.4'."""
        return f"{'Open MPI' if self.kind is Mpi.OPENMPI else 'MPICH'} {'.'.join(map(str, self.version))}"

    def compiled_by(self, output: str) -> bool:
        """Return whether a compiler belongs to this kind of MPI.

        output: the name of the MPI, as printed by the compiler.
        """
        found = mpi_of_compiler(output)
        return found is not None and found[0] is self.kind

    def launch(self, job: MpiJob) -> Launch:
        """Return the command line and environment of a launch.

        Raises UsageError if the ranks do not fit their hosts.
        """
        match self.kind:
            case Mpi.OPENMPI:
                return openmpi.launch(job, self.mpirun, self.version)
            case Mpi.MPICH:
                return mpich.launch(job, self.mpirun, self.version)
            case _ as never:
                assert_never(never)


def mpi_of_compiler(output: str) -> tuple[Mpi, tuple[int, int, int]] | None:
    """Return kind and version of the MPI that a compiler belongs to; None for another MPI.

    output: the compiler's output, 'Open MPI 4.1.4 (Language: C)' or 'mpicc for MPICH version 4.0.2'.
    """
    m = _COMPILER.search(output)
    if m is None:
        return None
    return Mpi.OPENMPI if m[1] == "Open MPI" else Mpi.MPICH, (int(m[2]), int(m[3]), int(m[4] or 0))


def programs_of(which: Callable[[str], str | None], wanted: Mpi | None) -> tuple[str | None, str]:
    """Return the path of mpirun (None if missing) and the name of the compiler wrapper.

    Neither is run, so this also works for an image.
    wanted: as in find_mpi.
    """
    # Prefer the compiler that is named after its MPI: mpicc may belong to the other one.
    names = sorted(_NAMES[wanted], key=lambda n: n[1] == "mpicc") if wanted is not None else []
    for mpirun, mpicc in names:
        path = which(mpirun)
        if path is not None and which(mpicc) is not None:
            return path, mpicc
    return which("mpirun"), "mpicc"


def find_mpi(host: Host, wanted: Mpi | None) -> InstalledMpi:
    """Find the MPI of the requested kind; None for the kind that mpirun belongs to.

    Raises UnavailableError, which names what to install.
    """
    output: dict[str, str] = {}
    for kind in (wanted,) if wanted is not None else tuple(Mpi):
        for mpirun, mpicc in _NAMES[kind] if wanted is not None else _NAMES[kind][:1]:
            path = host.which(mpirun)
            if path is None:
                continue
            if path not in output:
                output[path] = host.run([path, "--version"], timeout=VERSION_SECONDS).stdout
            version = (openmpi if kind is Mpi.OPENMPI else mpich).version(output[path])
            if version is not None:
                return InstalledMpi(kind=kind, version=version, mpirun=path, mpicc=mpicc)
    if wanted is None:
        what = "no MPI: mpirun is missing, or neither Open MPI's nor MPICH's"
        raise UnavailableError(what, remedy=MPI_PACKAGES[Mpi.OPENMPI])
    raise UnavailableError(f"no mpirun of {wanted} here", remedy=MPI_PACKAGES[wanted])

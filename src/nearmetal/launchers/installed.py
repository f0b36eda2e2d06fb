"""Finds the installed MPI: its kind and version as printed by mpirun, and its compiler wrapper."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from ..errors import UnavailableError
from ..host import Host
from ..model.study import Mpi
from . import mpich, openmpi
from .job import Launch, MpiJob, withheld

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
"""Names of mpirun and of the compiler wrapper, in the order of search: first the usual ones, then Debian's
names for several MPIs side by side."""


@dataclass(frozen=True, kw_only=True)
class InstalledMpi:
    """An installed MPI.

    version: major, minor, patch.
    mpirun: path of mpirun.
    mpicc: name of the compiler wrapper.
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
        """Return whether a compiler wrapper belongs to this kind of MPI.

        output: as for mpi_of_compiler().
        """
        found = mpi_of_compiler(output)
        return found is not None and found[0] is self.kind

    def launch(self, job: MpiJob) -> Launch:
        """Return the command line and environment variables of a launch, without those that are withheld().

        Raises UsageError if the number of ranks does not match the hosts.
        """
        match self.kind:
            case Mpi.OPENMPI:
                found = openmpi.launch(job, self.mpirun, self.version)
            case Mpi.MPICH:
                found = mpich.launch(job, self.mpirun, self.version)
            case _ as never:
                assert_never(never)
        return replace(found, env={**dict.fromkeys(withheld(os.environ)), **found.env})


def mpi_of_compiler(output: str) -> tuple[Mpi, tuple[int, int, int]] | None:
    """Return kind and version of the MPI to which a compiler wrapper belongs; None if it is neither Open MPI
    nor MPICH.

    output: version output of the wrapper: 'Open MPI 4.1.4 (Language: C)', 'mpicc for MPICH version 4.0.2'.
    """
    m = _COMPILER.search(output)
    if m is None:
        return None
    return Mpi.OPENMPI if m[1] == "Open MPI" else Mpi.MPICH, (int(m[2]), int(m[3]), int(m[4] or 0))


def programs_of(which: Callable[[str], str | None], wanted: Mpi | None) -> tuple[str | None, str]:
    """Return the path of mpirun, None if it is missing, and the name of the compiler wrapper.

    The programs are not run, so this also works for programs in an image.
    which: returns the path of a program, None if it is missing.
    wanted: kind of MPI; None for the one of the program `mpirun`.
    """
    # Prefer the compiler that is named after its MPI: mpicc may belong to the other one.
    names = sorted(_NAMES[wanted], key=lambda n: n[1] == "mpicc") if wanted is not None else []
    for mpirun, mpicc in names:
        path = which(mpirun)
        if path is not None and which(mpicc) is not None:
            return path, mpicc
    return which("mpirun"), "mpicc"


def find_mpi(host: Host, wanted: Mpi | None) -> InstalledMpi:
    """Find the MPI on this machine.

    wanted: kind of MPI; None for the one of the program `mpirun`.
    Raises UnavailableError if there is none. Its remedy names the packages to install.
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

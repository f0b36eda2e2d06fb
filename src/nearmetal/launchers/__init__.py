"""From a job (ranks over hosts, a transport) to the tokens and environment of a launch; starts nothing but
the question which MPI is installed."""

from .installed import InstalledMpi, find_mpi, mpi_of_compiler, programs_of
from .job import JOB_VARIABLE, HostSlots, Launch, MpiJob, everywhere
from .places import PlacementDiffers, verify_places

__all__ = [
    "JOB_VARIABLE",
    "HostSlots",
    "InstalledMpi",
    "Launch",
    "MpiJob",
    "PlacementDiffers",
    "everywhere",
    "find_mpi",
    "mpi_of_compiler",
    "programs_of",
    "verify_places",
]

"""Builds the command line and environment variables of an MPI launch from an MpiJob: ranks, hosts, transport.

This package runs commands only to find the installed MPI. It does not depend on how instances are started and
on what the ranks run.
"""

from .installed import MPI_PACKAGES, InstalledMpi, find_mpi, mpi_of_compiler, programs_of
from .job import JOB_VARIABLE, HostSlots, Launch, MpiJob, everywhere, fixed_names, withheld
from .places import PlacementDiffers, verify_places

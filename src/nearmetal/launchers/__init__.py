"""Build the command line and environment of an MPI launch from a job, which is the ranks, their hosts and a
transport. The only commands that this package runs are those that find the installed MPI.

It does not know how an instance is started, or what the ranks run.
"""

from .installed import MPI_PACKAGES, InstalledMpi, find_mpi, mpi_of_compiler, programs_of
from .job import JOB_VARIABLE, HostSlots, Launch, MpiJob, everywhere
from .places import PlacementDiffers, verify_places

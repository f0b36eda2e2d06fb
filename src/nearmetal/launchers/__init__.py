"""From a job (ranks over hosts, a transport) to the tokens and environment of a launch; starts nothing."""

from .job import HostSlots, Launch, MpiJob
from .openmpi import launch as openmpi_launch
from .openmpi import version as openmpi_version
from .places import PlacementDiffers, verify_places

__all__ = [
    "HostSlots",
    "Launch",
    "MpiJob",
    "PlacementDiffers",
    "openmpi_launch",
    "openmpi_version",
    "verify_places",
]

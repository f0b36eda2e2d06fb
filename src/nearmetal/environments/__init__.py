"""Backends: how an instance of an environment is started and stopped. Knows no workload and no network."""

from ..model.network import Seat
from .contract import OWN_ALL, Available, Backend, Instance, InstanceRequest, Seated, Tools, Unavailable

__all__ = [
    "OWN_ALL",
    "Available",
    "Backend",
    "Instance",
    "InstanceRequest",
    "Seat",
    "Seated",
    "Tools",
    "Unavailable",
]

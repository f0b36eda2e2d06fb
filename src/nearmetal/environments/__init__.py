"""Backends: how an instance of an environment is started and stopped. Knows no workload and no network."""

from ..model.network import Seat
from .contract import (
    KERNEL,
    OWN_ALL,
    Accounted,
    Available,
    Backend,
    Elsewhere,
    Enclosed,
    Guest,
    GuestBase,
    Instance,
    InstanceRequest,
    Seated,
    Tools,
    Unavailable,
)

__all__ = [
    "KERNEL",
    "OWN_ALL",
    "Accounted",
    "Available",
    "Backend",
    "Elsewhere",
    "Enclosed",
    "Guest",
    "GuestBase",
    "Instance",
    "InstanceRequest",
    "Seat",
    "Seated",
    "Tools",
    "Unavailable",
]

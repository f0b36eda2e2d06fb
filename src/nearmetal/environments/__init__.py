"""Backends: how an instance of an environment is started and stopped. This package knows no workloads and
builds no networks."""

from ..model.capabilities import (
    BARE_ATTACHMENTS,
    CONTAINER_ATTACHMENTS,
    GUEST_ATTACHMENTS,
    KERNEL,
    OWN_ALL,
    Capabilities,
)
from ..model.environments.network import Seat
from .contract import (
    Accounted,
    Available,
    Backend,
    Elsewhere,
    Enclosed,
    Guest,
    GuestBase,
    Instance,
    InstanceRequest,
    Migrates,
    Moved,
    MoveRequest,
    Seated,
    Tools,
    Tuned,
    Unavailable,
)

__all__ = [
    "BARE_ATTACHMENTS",
    "CONTAINER_ATTACHMENTS",
    "GUEST_ATTACHMENTS",
    "KERNEL",
    "OWN_ALL",
    "Accounted",
    "Available",
    "Backend",
    "Capabilities",
    "Elsewhere",
    "Enclosed",
    "Guest",
    "GuestBase",
    "Instance",
    "InstanceRequest",
    "Migrates",
    "MoveRequest",
    "Moved",
    "Seat",
    "Seated",
    "Tools",
    "Tuned",
    "Unavailable",
]

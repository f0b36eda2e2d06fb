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
    Foreseen,
    Guest,
    GuestBase,
    Instance,
    InstanceRequest,
    Seated,
    Stays,
    Tools,
    Tuned,
    Unavailable,
)
from .moving import Checkpoints, Criu, Dump, EnablesMoves, Migrates, Moved, MoveRequest, Predictable, Restore

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
    "Checkpoints",
    "Criu",
    "Dump",
    "Elsewhere",
    "EnablesMoves",
    "Enclosed",
    "Foreseen",
    "Guest",
    "GuestBase",
    "Instance",
    "InstanceRequest",
    "Migrates",
    "MoveRequest",
    "Moved",
    "Predictable",
    "Restore",
    "Seat",
    "Seated",
    "Stays",
    "Tools",
    "Tuned",
    "Unavailable",
]

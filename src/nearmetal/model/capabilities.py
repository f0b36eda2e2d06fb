"""The capabilities that a backend declares. Other packages check them, and never a backend's name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from .environments.environment import Attachment, BackendSettings, Environment

ENTRY_POINTS = "nearmetal.environments"
"""The entry-point group of backends."""
OWN_ALL = frozenset({"mnt", "uts", "ipc", "pid", "net"})
"""Kinds of namespace, named as in /proc/<pid>/ns."""
KERNEL = "kernel"
"""Element of Capabilities.own for a backend whose instances are virtual machines."""

BARE_ATTACHMENTS = frozenset({Attachment.HOST, Attachment.LOOPBACK})
"""Attachments of a backend whose instance is the machine itself."""
NOT_OF_GUESTS: Mapping[Attachment, str] = {
    Attachment.HOST: "a guest cannot have the machine's own network; write attachment: none, or veth-bridge",
    Attachment.IPVLAN: "ipvlan delivers by the addresses of the machine's own interface, and a guest has its "
    "own; write attachment: macvlan",
}
"""The attachments that no virtual machine can have: why not, and what to write instead."""
GUEST_ATTACHMENTS = frozenset(Attachment) - NOT_OF_GUESTS.keys()
"""Attachments of virtual machines."""
CONTAINER_ATTACHMENTS = frozenset(a for a in Attachment if not a.of_guests)
"""Attachments of containers."""

KeyPath = tuple[str, ...]
"""Keys of a study file below an environment, for example ('guest', 'memory')."""
Misfits = Iterator[tuple[KeyPath, str]]
"""Yields (key of an environment that the backend does not support, what to write instead)."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The capabilities of a backend.

    own: kinds of namespace (OWN_ALL) that its instances do not share with the machine. With 'net', the
        instances can join a network. With KERNEL, they are virtual machines: they accept the key `guest` and
        may contain instances of other environments.
    attachments: the attachments that its instances support.
    needs_user_namespace: whether its instances, if run without root, need the user namespace that all
        instances of a run share (environments.contract: user_namespace).
    stands_inside: whether its instances can run inside a virtual machine of any backend (key `inside`); such
        a backend implements environments.contract.Enclosed.
    plants_work: whether it accepts the key `extra_work`.
    settings: class of the backend's own settings, which have a key of their own; None if there are none.
    not_attached: by attachment, why it is not supported and what to write instead, if the general message is
        not enough.
    not_of_guest: keys of `guest` that its virtual machines do not support, with the reason.
    steps: descriptions of start steps (Instance.phases) that only this backend has, by name of the step, in
        order.
    title: its name in headlines, such as 'Podman'; its own name if empty.
    misfits: given an environment and the keys that the study file sets, yields the keys that the backend does
        not support for other reasons.
    """

    own: frozenset[str]
    attachments: frozenset[Attachment]
    needs_user_namespace: bool = False
    stands_inside: bool = False
    plants_work: bool = False
    settings: type[BackendSettings] | None = None
    not_attached: Mapping[Attachment, str] = field(default_factory=dict)
    not_of_guest: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    misfits: Callable[[Environment, Collection[KeyPath]], Misfits] = lambda _environment, _given: iter(())

    @property
    def bare(self) -> bool:
        """Whether an instance is the machine itself."""
        return not self.own

    @property
    def virtual(self) -> bool:
        """Whether its instances are virtual machines."""
        return KERNEL in self.own

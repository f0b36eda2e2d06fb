"""Check that the keys of environments with virtual machines fit together. Mistakes are added to problems."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.environments.guest import MIB, GuestSettings
from ...model.environments.image import HOST
from ...model.keys import alternatives
from ...model.study import Environment, StorageKind
from ...units import Dimension, exact
from ..problems import Path
from ..tree import Located
from .backends import backends_that, capabilities_of

LEAST_MEMORY = 48 * MIB
"""Least memory of a guest, in bytes. With less, no kernel can unpack its initramfs."""

Mistakes = Iterator[tuple[Path, str]]
"""Mistakes, as pairs (path of the key, message)."""


def check_guest(section: Environment, found: Located) -> None:
    """Check the keys of an environment: those that a virtual machine cannot have, and `guest`, which only a
    virtual machine can have."""
    can = capabilities_of(section.backend)
    if can is None:
        return
    if not can.virtual:
        if section.guest is not None:
            takers = ", ".join(backends_that(lambda c: c.virtual))
            what = f"{section.backend} has no virtual machines; guest is for {takers}"
            found.mistake(("guest",), what, key=True)
        return
    given = found.get("guest")
    own = frozenset(given.entries) if given is not None else frozenset[str]()
    inside = _inside(section, section.guest, own) if section.guest is not None else ()
    for at, what in (*_around(section), *((("guest", *below), what) for below, what in inside)):
        if not found.unread(at[0]):
            found.mistake(at, what)
    for key in sorted(own & can.not_of_guest.keys()):
        if not found.unread("guest"):
            what = f"{can.not_of_guest[key]}; {key} is for {_takers(key)}"
            found.mistake(("guest", key), what, key=True)


def _takers(key: str) -> str:
    """Return the names of the backends that support a key of `guest`."""
    return alternatives(backends_that(lambda can: can.virtual and key not in can.not_of_guest))


def _around(section: Environment) -> Mistakes:
    """Yield the mistakes in keys outside `guest`: those that an environment with virtual machines cannot
    have."""
    if section.share:
        yield ("share",), "a guest shares no namespace with the machine"
    if section.storage is not None and section.storage.kind is not StorageKind.OVERLAY:
        yield (
            ("storage", "kind"),
            f"a guest has no storage {section.storage.kind}: write overlay, and guest: writable for a disk",
        )
    if section.limits.memory is not None:
        yield ("limits", "memory"), "a guest has the memory that it is given; write guest: memory"


def _inside(section: Environment, g: GuestSettings, own: frozenset[str]) -> Mistakes:
    """Yield the mistakes in `guest`, with paths below it.

    own: keys of `guest` that the file has.
    """
    if g.memory < LEAST_MEMORY:
        yield ("memory",), f"no guest boots in less than {exact(LEAST_MEMORY, Dimension.SIZE)}"
    if g.memory % MIB:
        yield ("memory",), "a guest's memory is a whole number of MiB"
    if g.vcpus is not None and g.numa > g.vcpus:
        yield ("numa",), f"{g.numa} NUMA nodes want as many vCPUs, and there are {g.vcpus}"
    yield from _disks(section, g, own)
    if "nic" in own and not section.attachment.interfaced:
        yield ("nic",), f"attachment {section.attachment} has no network card"


def _disks(section: Environment, g: GuestSettings, own: frozenset[str]) -> Mistakes:
    if g.modules is not None and (g.kernel is None or "/" not in g.kernel):
        yield ("modules",), "modules are of a kernel of your own; write kernel"
    if "root_device" in own and g.disk is None:
        yield ("root_device",), "root_device is of a disk of your own; write disk"
    if g.disk is not None and section.image != HOST:
        yield ("disk",), f"a disk of your own takes the place of image {section.image}; write one of the two"
    for key in ("kernel", "modules", "disk", "root_device"):
        text = getattr(g, key)
        named = key == "kernel" and "/" not in (text or "")
        if text is not None and (not (named or text.startswith("/")) or any(c.isspace() for c in text)):
            yield (key,), f'"{text[:60]}" is not an absolute path without spaces'

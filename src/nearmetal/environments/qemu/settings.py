"""Settings that no virtual machine of QEMU can have together."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...model.capabilities import KeyPath, Misfits
from ...model.environments.environment import Environment
from ...model.environments.guest import Accelerator, Aio, Cache, GuestSettings, MachineType, Nic, StartFrom
from ...model.environments.image import HOST

#: Largest MTU by network card, in bytes: max_mtu of Linux's drivers e1000 and 8139cp.
_MOST_MTU = {Nic.E1000: 16110, Nic.RTL8139: 4096}


def misfits(environment: Environment, given: Collection[KeyPath]) -> Misfits:
    """Yield the keys of `guest` that QEMU does not support together, each with the reason."""
    if environment.guest is not None:
        for name, why in _misfits(environment, environment.guest, given):
            yield ("guest", name), why


def _misfits(
    environment: Environment, g: GuestSettings, given: Collection[KeyPath]
) -> Iterator[tuple[str, str]]:
    shared = environment.image == HOST and g.disk is None
    if g.cpu == "host" and g.accelerator is Accelerator.TCG:
        yield "cpu", "cpu host needs accelerator kvm; write max"
    if g.machine is MachineType.MICROVM:
        yield from _microvm(g, shared=shared)
    if g.aio is Aio.NATIVE and g.cache not in (Cache.NONE, Cache.DIRECTSYNC):
        yield "aio", "aio native needs cache none or directsync"
    if shared and g.writable is None and g.swap is None:
        for key in ("aio", "cache", "format", "snapshot"):
            if ("guest", key) in given:
                yield (
                    key,
                    "it has no disk: its root is the machine's own, and what it writes stays in its memory",
                )
    mtu, most = environment.network.mtu, _MOST_MTU.get(g.nic)
    if mtu is not None and most is not None and mtu > most:
        yield "nic", f"{g.nic} carries at most {most} bytes in a packet, and network: mtu is {mtu}"
    if g.start is StartFrom.RESTORED and (g.vfio is not None or shared):
        what = (
            "a device that is passed through" if g.vfio is not None else f"image {HOST}, which it shares live"
        )
        yield "start", f"no checkpoint holds {what}; write start: cold, or an image"
    if g.start is StartFrom.RESTORED and (g.writable is not None or g.swap is not None):
        yield "start", "no checkpoint holds disks that are written to; write start: cold, or leave them out"


def _microvm(g: GuestSettings, *, shared: bool) -> Iterator[tuple[str, str]]:
    """Yield the keys that machine type microvm does not support.

    shared: whether the root of the guest is the machine's own.
    """
    if g.nic in (Nic.E1000, Nic.RTL8139):
        yield "nic", f"{g.nic} is a PCI card, and microvm has no PCI; write nic: virtio"
    if shared:
        what = f"microvm cannot share the files of image {HOST} (virtiofs); write an image, or machine: q35"
        yield "machine", what
    if g.vfio is not None:
        yield "vfio", "microvm has no PCI; write machine: q35"
    if g.numa > 1:
        yield "numa", "microvm has no NUMA nodes; write machine: q35"

"""What the tests of virtual machines share: a kernel, and guests as small as they come."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from tests.nested.machine import outer_image

from nearmetal.environments import GuestBase, InstanceRequest, Tools
from nearmetal.environments.guests.guest import GuestInstance
from nearmetal.environments.guests.initramfs import USUAL, initramfs
from nearmetal.environments.libvirt.backend import Libvirt
from nearmetal.environments.qemu.backend import Qemu
from nearmetal.host import LocalHost
from nearmetal.host.runtime import scratch_directory
from nearmetal.images import builtin_definition
from nearmetal.images.build import build
from nearmetal.model.environments.guest import MIB, GuestSettings
from nearmetal.model.study import Attachment, Environment
from nearmetal.node.bases import KERNEL_IMAGE, kernel_of
from nearmetal.node.machine import image_store

HOST = LocalHost()
QEMU = Qemu()
SMALL = GuestSettings(memory=256 * MIB, boot_timeout=1800)
NEEDED = (
    pytest.mark.skipif(os.geteuid() != 0, reason="guests need root"),
    pytest.mark.skipif(
        shutil.which("qemu-system-x86_64") is None and not os.environ.get("CI"),
        reason="QEMU is not installed",
    ),
)


@cache
def generic_kernel() -> tuple[Path, Path]:
    """As GENERIC_KERNEL_IMAGE has it, of an image that the nested tests need in any case."""
    found = kernel_of(outer_image().tree)
    assert found is not None
    return found


@cache
def kernel() -> tuple[Path, Path]:
    """A vmlinuz and its modules; built once on a machine, as a user would."""
    definition = builtin_definition(KERNEL_IMAGE)
    assert definition is not None
    found = kernel_of(build(HOST, image_store(), definition, progress=lambda _: None).tree)
    assert found is not None
    return found


def base(
    tools: Tools,
    directory: Path,
    root: Path | None = None,
    *,
    generic: bool = False,
    further: tuple[str, ...] = (),
) -> GuestBase:
    """directory: for the initramfs; root: a file with a root file system, None for the machine's own;
    generic: a kernel with drivers of real cards; further: modules."""
    vmlinuz, modules = generic_kernel() if generic else kernel()
    archive = initramfs(directory, modules, tools, (*USUAL, *further))
    return GuestBase(kernel=vmlinuz, initramfs=archive, root=root, cache=directory)


def request(
    slot: str,
    of: GuestBase,
    directory: Path,
    settings: GuestSettings = SMALL,
    binds: tuple[Path, ...] = (),
) -> InstanceRequest:
    """Of a guest without a network, on one CPU."""
    scratch = directory / f"scratch-{slot}"
    scratch.mkdir()
    return InstanceRequest(
        label=f"nearmetal-check-{os.getpid()}-{slot}",
        hostname=f"nm{slot}",
        environment=Environment(
            name="tested", backend="qemu", attachment=Attachment.NONE, placements=(), guest=settings
        ),
        cpus=HOST.cpus()[-1:],
        seat=None,
        binds=binds,
        scratch=scratch,
        base=of,
    )


@contextmanager
def booted(tools: Tools, asked: InstanceRequest, backend: Qemu | Libvirt = QEMU) -> Iterator[GuestInstance]:
    with scratch_directory(f"{asked.label}-run"), backend.start(HOST, tools, asked) as guest:
        yield guest

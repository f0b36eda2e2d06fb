"""What the tests of virtual machines share: a kernel, and guests as small as they come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from nearmetal.environments import GuestBase, InstanceRequest, Tools
from nearmetal.environments.guest import GuestInstance
from nearmetal.environments.initramfs import initramfs
from nearmetal.environments.qemu import Qemu
from nearmetal.execute.bases import KERNEL_IMAGE, kernel_of
from nearmetal.execute.machine import image_store
from nearmetal.host import LocalHost
from nearmetal.host.runtime import scratch_directory
from nearmetal.images import builtin_definition
from nearmetal.images.build import build
from nearmetal.model.guest import MIB, GuestSettings
from nearmetal.model.study import Attachment, Environment

HOST = LocalHost()
SMALL = GuestSettings(memory=256 * MIB)


@cache
def kernel() -> tuple[Path, Path]:
    """A vmlinuz and its modules; built once on a machine, as a user would."""
    definition = builtin_definition(KERNEL_IMAGE)
    assert definition is not None
    found = kernel_of(build(HOST, image_store(), definition, progress=lambda _: None).tree)
    assert found is not None
    return found


def base(tools: Tools, directory: Path, root: Path | None = None) -> GuestBase:
    """directory: for the initramfs; root: a file with a root file system, None for the machine's own."""
    vmlinuz, modules = kernel()
    return GuestBase(
        kernel=vmlinuz, initramfs=initramfs(directory, modules, tools), root=root, cache=directory
    )


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
def booted(tools: Tools, asked: InstanceRequest) -> Iterator[GuestInstance]:
    with scratch_directory(f"{asked.label}-run"), Qemu().start(HOST, tools, asked) as guest:
        yield guest

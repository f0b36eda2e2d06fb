"""What virtual machines boot from: a kernel, an initramfs of our own, the file system of an image; and how
their CPUs are numbered."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from ..environments import KERNEL, Backend, GuestBase
from ..environments.guest_needs import of_one_machine, require_device, require_drivers, require_tree
from ..environments.initramfs import USUAL, WANTED, initramfs, kernel_version
from ..errors import UnavailableError
from ..images import Image, in_use, require_image
from ..images.forms import Form, in_form
from ..model.guest import GuestSettings
from ..model.record import JsonValue
from ..model.study import Arm, Environment, Study
from .machine import Machine, cache_directory, image_store
from .progress import Progress
from .software import Software

KERNEL_IMAGE = "debian-kernel"
"""Has a kernel for images that bring none."""


def has_kernel(backend: Backend) -> bool:
    """Whether its instances are virtual machines."""
    return KERNEL in backend.own


def guest_bases(
    machine: Machine,
    study: Study,
    backends: Mapping[str, Backend],
    software: Mapping[str, Software],
    stack: ExitStack,
    progress: Progress,
) -> dict[str, GuestBase]:
    """By environment, of those that are virtual machines; no image that they boot from is removed before the
    stack is left. Raises UnavailableError for a kernel or a disk that cannot be booted, RunError."""
    return {
        e.name: _base(machine, e, software[e.image], stack, progress)
        for e in study.environments
        if e.backend in backends and has_kernel(backends[e.backend])
    }


def base_record(base: GuestBase) -> dict[str, JsonValue]:
    """For the provenance: what a virtual machine booted from."""
    return {
        "kernel": kernel_version(base.kernel),
        "kernel_file": str(base.kernel),
        "initramfs": base.initramfs.stem,
        "root": "virtiofs of the machine's own" if base.root is None else str(base.root),
    }


def _base(
    machine: Machine, environment: Environment, software: Software, stack: ExitStack, progress: Progress
) -> GuestBase:
    settings = environment.guest or GuestSettings()
    kernel, modules = _kernel(machine, settings, software.image, stack)
    root = None
    if settings.disk is not None:
        root = _disk(environment, Path(settings.disk))
    elif software.image is not None:
        require_tree(software.image.name, software.tree)
        for name in of_one_machine(software.tree):
            progress.note(f"image {software.image.name}: /{name} makes its guests one and the same machine")
        root = in_form(machine.host, software.image, Form.EROFS, progress=progress.phase)
    require_drivers(modules, settings, shared_root=root is None, network=environment.attachment.seated)
    if settings.vfio is not None:
        require_device(settings.vfio)
    return GuestBase(
        kernel=kernel,
        initramfs=initramfs(
            cache_directory(), modules, software.tools, USUAL if settings.vfio is None else WANTED
        ),
        root=root,
        cache=cache_directory(),
        disk=settings.disk is not None,
    )


def _disk(environment: Environment, path: Path) -> Path:
    if not path.is_file() or not os.access(path, os.R_OK):
        raise UnavailableError(
            f"environment {environment.name}: disk {path} is no file that can be read", remedy="another path"
        )
    return path


def _kernel(
    machine: Machine, settings: GuestSettings, image: Image | None, stack: ExitStack
) -> tuple[Path, Path | None]:
    """A kernel and its lib/modules/<version>, None where it has none: the user's own, that of the image, the
    machine's own for its own root, that of KERNEL_IMAGE. Raises UnavailableError."""
    if settings.kernel is not None:
        kernel = Path(settings.kernel)
        version = kernel_version(kernel)
        if settings.modules is not None:
            return kernel, Path(settings.modules)
        beside = [top / "lib/modules" / version for top in (kernel.parent.parent, Path("/"))]
        return kernel, next((m for m in beside if m.is_dir()), None)
    if image is None:
        release = os.uname().release
        own = Path(f"/boot/vmlinuz-{release}"), Path(f"/lib/modules/{release}")
        if own[0].is_file() and (own[1] / "modules.dep").is_file():
            return own
    elif (found := kernel_of(image.tree)) is not None:
        return found
    other = require_image(machine.host, image_store(), KERNEL_IMAGE, {})
    stack.enter_context(in_use(other))
    found = kernel_of(other.tree)
    if found is None:
        raise UnavailableError(
            f"image {KERNEL_IMAGE} has no kernel",
            remedy=f"nearmetal image remove {KERNEL_IMAGE}, and build it",
        )
    return found


def kernel_of(tree: Path) -> tuple[Path, Path] | None:
    """The newest kernel of a tree whose modules are there too."""
    kernels = sorted((tree / "boot").glob("vmlinuz-*"), key=lambda p: p.stat().st_mtime, reverse=True)
    for kernel in kernels:
        modules = tree / "lib/modules" / kernel.name.removeprefix("vmlinuz-")
        if modules.is_dir():
            return kernel, modules
    return None


def vcpus_of(
    arm: Arm, instance_cpus: Sequence[Sequence[int]], ranks: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """The CPUs of each rank as its guest numbers them. instance_cpus: of the machine, by instance; ranks:
    those of the machine, by rank."""
    settings = arm.environment.guest or GuestSettings()
    out = []
    for rank, cpus in enumerate(ranks):
        own = list(instance_cpus[rank // arm.placement.tasks])
        count = settings.vcpus or len(own)
        out.append(tuple(sorted({own.index(c) % count for c in cpus})))
    return tuple(out)

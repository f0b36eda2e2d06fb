"""Prepares what virtual machines boot from: a kernel, an initramfs built by nearmetal, and the file system of
an image."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from ..environments import Backend, GuestBase
from ..environments.contract import Accelerated
from ..environments.guests.initramfs import USUAL, WANTED, initramfs, kernel_version
from ..environments.guests.needs import (
    find_virtiofsd,
    network_drivers,
    of_one_machine,
    require_device,
    require_drivers,
    require_memory,
    require_tree,
    require_vhost,
)
from ..errors import UnavailableError
from ..host import Host
from ..host.runtime import cache_directory
from ..host.untrusted import UntrustedDirectory
from ..images import Image, in_use, require_image
from ..images.forms import Form, in_form
from ..model.environments.guest import GuestSettings, Nic
from ..model.environments.image import ImageDefinition
from ..model.record import JsonValue
from ..model.study import Environment, Mode, Study
from .host_suite import root_of_own_suite
from .machine import Machine, image_store
from .progress import Progress
from .software import Software

KERNEL_IMAGE = "debian-kernel"
"""The image whose kernel boots images that contain no kernel."""
GENERIC_KERNEL_IMAGE = "debian-kernel-generic"
"""The image that takes the place of KERNEL_IMAGE for guests with an emulated network card, or with a physical
one that is passed through. Its kernel has the drivers."""
_KERNEL = "vmlinuz-"
_OWN_ROOT = Path("/")


def guest_bases(
    machine: Machine,
    study: Study,
    backends: Mapping[str, Backend],
    software: Mapping[str, Software],
    stack: ExitStack,
    progress: Progress,
) -> dict[str, GuestBase]:
    """Prepare kernel, initramfs and root file system of every environment of virtual machines, and return
    them by the name of the environment.

    stack: keeps the images from being removed until it is closed.

    Raises UnavailableError if a kernel or a disk cannot be booted, and RunError.
    """
    require_room(machine.host, study, backends)
    own = {i.name: i for i in study.images}
    inside = {e.name: [i for i in study.environments if i.inside == e.name] for e in study.environments}
    return {
        e.name: _base(machine, e, inside[e.name], software[e.image], own, stack, progress)
        for e in study.environments
        if e.backend in backends and backends[e.backend].capabilities.virtual
    }


def require_room(host: Host, study: Study, backends: Mapping[str, Backend]) -> None:
    """Check that the memory of this machine is sufficient for all guests that run at the same time.

    In slices mode, these are the guests of all arms; otherwise those of the largest arm.

    Raises UnavailableError if it is not.
    """
    design = study.design
    twice = study.aa_arms() if design.mode is Mode.SLICES else ()
    own = [
        (a.environment.guest or GuestSettings(), a.placement.all_instances)
        for a in (*study.arms(), *twice)
        if isinstance(backends.get(a.environment.backend), Accelerated)
    ]
    for huge in (False, True):
        sizes = [g.memory * count for g, count in own if g.huge_pages is huge]
        at_once = sum(sizes) if design.mode is Mode.SLICES else max(sizes, default=0)
        if at_once:
            require_memory(host, "guests that run at the same time", at_once, huge=huge)


def base_record(base: GuestBase) -> dict[str, JsonValue]:
    """Return the provenance of the kernel, initramfs and root file system of a virtual machine."""
    return {
        "kernel": kernel_version(base.kernel),
        "kernel_file": str(base.kernel),
        "initramfs": base.initramfs.stem,
        "root": "virtiofs of the machine's own" if base.root is None else str(base.root),
    }


def _base(
    machine: Machine,
    environment: Environment,
    inside: Sequence[Environment],
    software: Software,
    own: Mapping[str, ImageDefinition],
    stack: ExitStack,
    progress: Progress,
) -> GuestBase:
    settings = environment.guest or GuestSettings()
    kernel, modules, tree = _kernel(machine, settings, software.image, own, stack)
    root = None
    if settings.disk is not None:
        root = _disk(environment, Path(settings.disk))
    elif software.image is not None:
        require_tree(software.image.name, software.tree)
        for name in of_one_machine(software.tree):
            progress.note(f"image {software.image.name} contains /{name}, so its guests share one identity")
        root = in_form(machine.host, software.image, Form.EROFS, progress=progress.phase)
    elif find_virtiofsd(machine.host) is None:
        root = root_of_own_suite(machine, environment.name, stack, progress)
    further = network_drivers(environment.network, inside)
    require_drivers(
        modules,
        settings,
        shared_root=root is None,
        network=environment.attachment.interfaced,
        further=further,
    )
    if settings.nic is Nic.VHOST and environment.attachment.interfaced:
        require_vhost()
    if settings.vfio is not None:
        require_device(settings.vfio)
    return GuestBase(
        kernel=kernel,
        initramfs=initramfs(
            cache_directory(),
            modules,
            software.tools,
            (*(USUAL if settings.vfio is None else WANTED), *further),
            tree=tree,
        ),
        root=root,
        cache=cache_directory(),
        disk=settings.disk is not None,
    )


def _disk(environment: Environment, path: Path) -> Path:
    if not path.is_file() or not os.access(path, os.R_OK):
        raise UnavailableError(
            f"environment {environment.name}: disk {path} is not a readable file", remedy="another path"
        )
    return path


def _kernel(
    machine: Machine,
    settings: GuestSettings,
    image: Image | None,
    own: Mapping[str, ImageDefinition],
    stack: ExitStack,
) -> tuple[Path, Path | None, Path]:
    """Choose a kernel. Return its path, its directory lib/modules/<version> (None for a kernel without
    modules), and the root directory that contains both.

    The first of these that is given or exists is used: the image named by kernel_image; the user's kernel
    file; the kernel in the guest's image, or the running kernel if the guest has the machine's own root;
    usual_kernel_image().

    Raises UnavailableError if the image that was chosen has no kernel.
    """
    if settings.kernel_image is not None:
        return _kernel_in(machine, settings.kernel_image, own, stack)
    if settings.kernel is not None:
        kernel = Path(settings.kernel)
        version = kernel_version(kernel)
        if settings.modules is not None:
            return kernel, Path(settings.modules), _OWN_ROOT
        beside = [top / "lib/modules" / version for top in (kernel.parent.parent, Path("/"))]
        return kernel, next((m for m in beside if m.is_dir()), None), _OWN_ROOT
    if (own_kernel := _own_kernel(image)) is not None:
        return *own_kernel, _OWN_ROOT if image is None else image.tree
    return _kernel_in(machine, usual_kernel_image(settings), {}, stack)


def usual_kernel_image(settings: GuestSettings) -> str:
    """Return the image whose kernel a guest boots if neither the guest's image nor the machine has one."""
    return KERNEL_IMAGE if settings.nic in (Nic.VIRTIO, Nic.VHOST) else GENERIC_KERNEL_IMAGE


def has_kernel(image: Image | None) -> bool:
    """Return whether an image has a kernel for guests.

    image: None for the machine's own root.
    """
    return _own_kernel(image) is not None


def _own_kernel(image: Image | None) -> tuple[Path, Path] | None:
    """Return the kernel of an image and the directory of its modules; None if there are none.

    image: None for the machine's own root, which has the running kernel.
    """
    if image is not None:
        return kernel_of(image.tree)
    release = os.uname().release
    running = Path(f"/boot/vmlinuz-{release}"), Path(f"/lib/modules/{release}")
    return running if running[0].is_file() and (running[1] / "modules.dep").is_file() else None


def _kernel_in(
    machine: Machine, name: str, own: Mapping[str, ImageDefinition], stack: ExitStack
) -> tuple[Path, Path, Path]:
    """Return the kernel of the image with this name, the directory of its modules, and the tree.

    own: images that the study defines.
    stack: keeps the image from being removed until it is closed.

    Raises UnavailableError if there is no such image, or it has no kernel.
    """
    image = require_image(machine.host, image_store(), name, own)
    stack.enter_context(in_use(image))
    found = kernel_of(image.tree)
    if found is None:
        raise UnavailableError(
            f"image {name} has no kernel",
            remedy="build it again with linux-image-cloud-amd64 among its packages, or name another",
        )
    return *found, image.tree


def kernel_of(tree: Path) -> tuple[Path, Path] | None:
    """Return the newest kernel of a tree that has its modules there, and the directory of the modules; None
    if there is no such kernel."""
    root = UntrustedDirectory(tree, as_root=True)
    kernels = [(f.st_mtime, n) for n in _kernels(root) if (f := root.stat(f"boot/{n}")) is not None]
    for _, name in sorted(kernels, reverse=True):
        modules = f"lib/modules/{name.removeprefix(_KERNEL)}"
        if root.is_file(f"boot/{name}") and root.is_directory(modules):
            return root.real_path(f"boot/{name}"), root.real_path(modules)
    return None


def _kernels(root: UntrustedDirectory) -> list[str]:
    try:
        return [name for name in root.names("boot") if name.startswith(_KERNEL)]
    except OSError:  # no directory
        return []

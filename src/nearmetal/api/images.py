"""Root trees of other systems on this machine: build, import, list, convert and remove them.

Names and definitions are those of the command `image` and of the section `images` of a study file.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..environments.registry import get_backend
from ..errors import UnavailableError, UsageError
from ..host import LocalHost
from ..images import builtin_definition, builtin_names, find_image, known_names, require_image
from ..images.build import build as _build
from ..images.build import wanted_packages
from ..images.find import known_definition
from ..images.forms import Form, in_form
from ..images.importing import import_image as _import
from ..images.sources import archive_lines, resolved_suite
from ..images.store import checked_name
from ..model.environments.image import HOST
from ..node.bases import has_kernel, usual_kernel_image
from ..node.criu import IMAGE as CRIU
from ..node.machine import image_store
from ..study_file.environments.images import load_definition
from ..subjects.registry import methods_of
from .studies import Note, ignore

if TYPE_CHECKING:
    from ..images import Image as Image
    from ..model.environments.image import ImageDefinition
    from ..model.study import Study

FORMS = tuple(form.value for form in Form)
"""The forms that an image can have."""


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """The contents of an image that would be built.

    suite: release of the distribution.
    variant: set of packages to start from.
    packages: further packages.
    pip: Python packages with their versions.
    archives: the archives that packages come from, as lines of sources.list.
    """

    name: str
    suite: str
    variant: str
    packages: tuple[str, ...]
    pip: tuple[str, ...]
    archives: tuple[str, ...]


def plan_build(name: str, file: Path | None = None) -> BuildPlan:
    """Return what build_image() with these arguments would build.

    Raises UsageError if there is no such definition.
    """
    host, definition = LocalHost(), _definition(name, file)
    return BuildPlan(
        name=name,
        suite=resolved_suite(host, definition),
        variant=definition.variant.value,
        packages=wanted_packages(definition),
        pip=definition.pip,
        archives=archive_lines(host, definition),
    )


def build_image(name: str, file: Path | None = None, *, progress: Note = ignore) -> Image:
    """Build an image if it does not exist yet.

    file: a definition, or a study file with a section `images`; None for a definition that comes with
        nearmetal.
    progress: receives a message for each slow step.

    Raises UsageError, UnavailableError or RunError.
    """
    return _build(LocalHost(), image_store(), _definition(name, file), progress=progress)


def unbuilt_images(study: Study) -> dict[str, ImageDefinition]:
    """Return the definitions of the images that a study needs and that are not built yet, by name. They are
    the images of its environments, those with the kernels of its guests, and the one with CRIU."""
    host, store = LocalHost(), image_store()
    own = {i.name: i for i in study.images}
    wanted = [e.image for e in study.environments if e.image != HOST]
    for e in study.environments:
        if e.guest is not None and e.guest.kernel_image is not None:
            wanted.append(e.guest.kernel_image)
        elif e.guest is not None and e.guest.kernel is None:
            image = None if e.image == HOST else find_image(host, store, e.image, own)
            # Assume that an image that is not built yet contains a kernel, as most images for guests do.
            if (image is not None or e.image == HOST) and not has_kernel(image):
                wanted.append(usual_kernel_image(e.guest))
    if _by_criu(study) and host.which(CRIU) is None:
        wanted.append(CRIU)
    wanted = list(dict.fromkeys(wanted))
    found = {n: known_definition(n, own) for n in wanted if find_image(host, store, n, own) is None}
    return {n: d for n, d in found.items() if d is not None}


def _by_criu(study: Study) -> bool:
    """Return whether a study checkpoints or moves an instance by CRIU."""
    backends = {}
    for name in {e.backend for e in study.environments}:
        with suppress(UnavailableError):
            backends[name] = get_backend(name)
    return any(m.by_criu for m in methods_of(study, backends))


def build_images(study: Study, progress: Note = ignore) -> None:
    """Build the images of unbuilt_images().

    progress: receives a message for each slow step.
    Raises UnavailableError or RunError.
    """
    for definition in unbuilt_images(study).values():
        _build(LocalHost(), image_store(), definition, progress=progress)


def import_image(path: Path, name: str, *, progress: Note = ignore) -> Image:
    """Import an image that was made elsewhere.

    path: an OCI layout or archive, a Docker archive, a SIF, a directory or a tar.
    progress: receives a message for each slow step.
    Raises UsageError, UnavailableError or RunError.
    """
    return _import(LocalHost(), image_store(), path, name, progress=progress)


def list_images() -> dict[str, Image | None]:
    """Return every image by name, with None for each that can be built but has not been built yet."""
    host, store = LocalHost(), image_store()
    return {name: find_image(host, store, name, {}) for name in known_names(store, {})}


def get_image(name: str) -> Image:
    """Return an image of the store.

    Raises UsageError if it does not exist.
    """
    return image_store().require(name)


def convert_image(name: str, form: str, *, progress: Note = ignore) -> tuple[Image, Path]:
    """Return an image and its path in another form. The form is made when it is first requested.

    form: one of FORMS.
    progress: receives a message for each slow step.
    Raises UsageError, UnavailableError or RunError.
    """
    if form not in FORMS:
        raise UsageError(f"unknown form {form}", remedy=f"one of {', '.join(FORMS)}")
    host = LocalHost()
    image = require_image(host, image_store(), name, {})
    return image, in_form(host, image, Form(form), progress=progress)


def remove_image(name: str) -> Image:
    """Remove an image with all its forms. Returns the removed image.

    Raises UsageError if it does not exist.
    """
    return image_store().remove(name)


def _definition(name: str, file: Path | None) -> ImageDefinition:
    checked_name(name)
    found = load_definition(file, name) if file is not None else builtin_definition(name)
    if found is None:
        raise UsageError(
            f"no image called {name} comes with nearmetal",
            remedy=f"one of {', '.join(builtin_names())}; one of your own: --file",
        )
    return found

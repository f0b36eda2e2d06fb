"""A substitute root for guests with image host if they cannot share the machine's own root: an image of the
same Debian suite, built once."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from ..environments.guests.needs import VIRTIOFSD_REMEDY
from ..errors import UnavailableError
from ..images import Image, in_use
from ..images.build import build
from ..images.find import builtin_definition
from ..images.forms import Form, in_form
from .machine import Machine, image_store
from .progress import Progress
from .software import find_program

OWN_SUITE = "debian-mpi"
"""An image of the machine's own suite, with an MPI."""


def root_of_own_suite(machine: Machine, name: str, stack: ExitStack, progress: Progress) -> Path:
    """Build the image and return a file system file made from it.

    stack: keeps the image from being removed until it is closed.

    Raises UnavailableError if the image cannot be built, or lacks the MPI that the programs were compiled
    for.
    """
    definition = builtin_definition(OWN_SUITE)
    assert definition is not None, "it comes with nearmetal"
    progress.note(
        f"environment {name}: without virtiofsd, guests cannot use the machine's own root; they use image "
        f"{OWN_SUITE} of the same suite. Next: {VIRTIOFSD_REMEDY}"
    )
    try:
        image = build(machine.host, image_store(), definition, progress=progress.phase)
    except UnavailableError as e:
        raise UnavailableError(
            f"environment {name}: image host needs virtiofsd, and in its place an image of this machine's "
            f"suite cannot be built: {e.what}",
            remedy=f"{VIRTIOFSD_REMEDY}; or {e.remedy}",
        ) from e
    require_same_mpi(machine.mpi.mpirun, image)
    stack.enter_context(in_use(image))
    return in_form(machine.host, image, Form.EROFS, progress=progress.phase)


def require_same_mpi(mpirun: str, image: Image) -> None:
    """Check that an image contains the machine's mpirun, since the machine's programs run in this image.

    Raises UnavailableError if it does not.
    """
    if find_program(image, mpirun) is None:
        raise UnavailableError(
            f"image {image.name} has no {mpirun}, for which this machine's programs are compiled",
            remedy=f"{VIRTIOFSD_REMEDY}; or image: {image.name} for every environment",
        )

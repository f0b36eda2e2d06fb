"""The names that study files may use on this machine: backends, kernels, applications and images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..environments.registry import backend_names as backend_names
from ..host import LocalHost
from ..images import no_image, require_image
from ..model.environments.image import HOST
from ..model.study import KernelWorkload, Study
from ..model.workloads.programs import RESOURCES
from ..studies import names, series_names
from ..study_file import COMMAND, Catalog
from ..workloads.applications.registry import application_names
from ..workloads.kernels.registry import kernel, kernel_names, metrics, parameters
from .workload_names import known_applications, type_of

if TYPE_CHECKING:
    from ..model.environments.image import ImageDefinition
    from ..study_file import Catalog


def catalog() -> Catalog:
    """Return the backends, kernels and applications that study files may name."""
    return Catalog(
        backends=backend_names(),
        kernels={k: {p.name: (type_of(p), p.doc) for p in parameters(k).values()} for k in kernel_names()},
        metrics={
            **{k: _every_metric(k) for k in kernel_names()},
            COMMAND: tuple(RESOURCES),
        },
        misfit=lambda owner, name, value: parameters(owner)[name].problem(value),
        writers=frozenset(k for k in kernel_names() if kernel(k).storage),
        applications=known_applications(),
        no_image=_no_image,
    )


def known_names() -> dict[str, tuple[str, ...]]:
    """Return what a command or a study file may name: studies, backends, kernels and applications."""
    return {
        "studies": (*names(), *series_names()),
        "environments": backend_names(),
        "kernels": kernel_names(),
        "applications": application_names(),
    }


def _no_image(name: str, own: Mapping[str, ImageDefinition], file: str) -> str | None:
    from ..node.machine import image_store

    return no_image(LocalHost(), image_store(), name, own, file)


def require_images(study: Study) -> None:
    """Check that the image of every environment exists on this machine.

    Raises UnavailableError if one is missing.
    """
    from ..node.machine import image_store

    for name in dict.fromkeys(e.image for e in study.environments if e.image != HOST):
        require_image(LocalHost(), image_store(), name, {i.name: i for i in study.images})


def _every_metric(name: str) -> tuple[str, ...]:
    """Return the metrics of a kernel for all values that its parameters accept."""
    choices = [{}, *({p.name: word} for p in parameters(name).values() for word in p.words)]
    found = [m for c in choices for m in metrics(KernelWorkload(name=name, kernel=name, params=c))]
    return tuple(dict.fromkeys(name for name, _, _ in found))

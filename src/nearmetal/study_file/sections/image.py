"""The section of one image."""

from __future__ import annotations

from pydantic import Field

from ...model.image import HOST, ImageDefinition
from ..fields import Mirror, Name, Package, Source, Suite, VariantWord
from .base import Section


class ImageSection(Section):
    """A root tree that nearmetal image build makes."""

    name: Name | None = Field(None, description="in a file of its own: its name", examples=["own"])
    suite: Suite = Field(
        description=f"which release of Debian or its kin; {HOST}: the machine's own",
        examples=[HOST, "trixie"],
    )
    packages: list[Package] = Field(
        default_factory=list,
        description="packages in it; kernels need a C compiler, make, CMake and an MPI with its headers",
        examples=[["gcc", "libc6-dev", "make", "cmake", "libopenmpi-dev", "openmpi-bin"]],
    )
    variant: VariantWord = Field(
        ImageDefinition.variant,
        description="what stands in it besides those, in the words of mmdebstrap",
        examples=["minbase"],
    )
    mirror: Mirror | None = Field(
        None,
        description="package archive; the one of the machine's own apt if omitted",
        examples=["file:/srv/debian"],
    )
    sources: list[Source] = Field(
        default_factory=list,
        description="further package archives, as lines of sources.list",
        examples=[["deb [trusted=yes] file:/srv/own ./"]],
    )

"""What an image is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

#: The image that is the machine's own root, and the suite that is the machine's own.
HOST = "host"


class Variant(StrEnum):
    """How much stands in a tree besides the packages asked for: mmdebstrap's words."""

    ESSENTIAL = "essential"
    APT = "apt"
    MINBASE = "minbase"
    BUILDD = "buildd"
    IMPORTANT = "important"
    STANDARD = "standard"


@dataclass(frozen=True, kw_only=True)
class ImageDefinition:
    """A root tree to be built.

    suite: of Debian or its kin, HOST = the machine's own.
    packages: as apt takes them.
    mirror: URI, None = the one that the machine's own apt uses.
    sources: further lines of sources.list.
    """

    name: str
    suite: str
    packages: tuple[str, ...]
    variant: Variant = Variant.MINBASE
    mirror: str | None = None
    sources: tuple[str, ...] = ()

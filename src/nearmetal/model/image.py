"""Definitions of images."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

#: As an image: the machine's own root. As a suite: the machine's own suite.
HOST = "host"


class Variant(StrEnum):
    """How much a tree contains besides the requested packages; the names are mmdebstrap's."""

    ESSENTIAL = "essential"
    APT = "apt"
    MINBASE = "minbase"
    BUILDD = "buildd"
    IMPORTANT = "important"
    STANDARD = "standard"


@dataclass(frozen=True, kw_only=True)
class ImageDefinition:
    """A root tree to be built.

    suite: release of Debian or of a distribution derived from it; HOST = the machine's own.
    packages: names as apt accepts them.
    mirror: URI; None = the one that the machine's own apt uses.
    sources: additional lines of sources.list.
    """

    name: str
    suite: str
    packages: tuple[str, ...]
    variant: Variant = Variant.MINBASE
    mirror: str | None = None
    sources: tuple[str, ...] = ()

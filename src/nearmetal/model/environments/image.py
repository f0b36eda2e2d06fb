"""Definitions of images: the packages that a root tree is built from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ..keys import NAME, ListOf, key, key_or, matching, one_of

#: Name of the image that is the machine's own root, and of the suite that is the machine's own release.
HOST = "host"


_PACKAGE = matching(
    r"^[a-z0-9][a-z0-9+.-]{0,199}(:[a-z0-9-]+)?([=/][A-Za-z0-9.+:~-]+)?$",
    "the name of a package, such as openmpi-bin",
)
_MIRROR = matching(
    r"^[a-z][a-z+]{1,19}:/[^\s,\"'\\]+$", "the URI of a package archive, such as file:/srv/debian"
)
_SOURCE = matching(
    r"^deb( \[[^\]\n]*\])? [a-z][a-z+]{1,19}:/\S+( \S+)+$",
    "a line of sources.list, such as deb file:/srv/own ./",
)
_REQUIREMENT = matching(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}==[A-Za-z0-9][A-Za-z0-9.+!_-]{0,49}$",
    "a Python package and its version, such as veros==1.7.0",
)


class Variant(StrEnum):
    """The base set of packages of a tree, to which the requested packages are added. The names are those of
    mmdebstrap."""

    EXTRACT = "extract"
    ESSENTIAL = "essential"
    APT = "apt"
    MINBASE = "minbase"
    BUILDD = "buildd"
    IMPORTANT = "important"
    STANDARD = "standard"


class Expired(StrEnum):
    """Whether an archive is accepted whose package lists have expired. Their signatures are verified in any
    case."""

    REFUSE = "refuse"
    ACCEPT = "accept"


@dataclass(frozen=True, kw_only=True)
class ImageDefinition:
    """Definition of a root tree that can be built."""

    name: str = field(
        metadata=key(NAME, "in a file of its own: its name", "own", optional=True, written=False)
    )
    suite: str = field(
        metadata=key(
            matching(r"^[a-z][a-z0-9.-]{0,99}$", "the name of a suite, such as trixie, or host"),
            f"which release of Debian or its kin; {HOST}: the machine's own",
            HOST,
            "trixie",
        )
    )
    packages: tuple[str, ...] = key_or(
        (),
        ListOf(_PACKAGE),
        "packages in it; kernels need a C compiler, make, CMake and an MPI with its headers",
        ["gcc", "libc6-dev", "make", "cmake", "libopenmpi-dev", "openmpi-bin"],
    )
    pip: tuple[str, ...] = key_or(
        (),
        ListOf(_REQUIREMENT),
        "Python packages of PyPI in it, each with its version; what they need is installed with them",
        ["veros==1.7.0"],
    )
    variant: Variant = key_or(
        Variant.MINBASE,
        one_of(Variant),
        "what it holds besides those, in the words of mmdebstrap",
        "minbase",
        always=True,
    )
    mirror: str | None = key_or(
        None, _MIRROR, "package archive; the one of the machine's own apt if omitted", "file:/srv/debian"
    )
    sources: tuple[str, ...] = key_or(
        (),
        ListOf(_SOURCE),
        "further package archives, as lines of sources.list",
        ["deb [trusted=yes] file:/srv/own ./"],
    )
    expired: Expired = key_or(
        Expired.REFUSE,
        one_of(Expired),
        "if lists of packages have expired; their signatures are always verified",
        "refuse",
        always=True,
    )

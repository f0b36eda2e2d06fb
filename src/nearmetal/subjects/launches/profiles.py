"""The profiles of one launch: the directory where its ranks write them, and their contents."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ...errors import TrialFailedError
from ...host.untrusted import UntrustedDirectory
from ...samplers.profile import LaunchProfile, parse_profile


def profile_directory(inside: Path) -> Path:
    """Make a fresh directory for the profiles of one launch, so that no older profile is read."""
    return Path(tempfile.mkdtemp(prefix="profile-", dir=inside))


def read_profiles(directory: Path, ranks: int) -> tuple[LaunchProfile, ...]:
    """Read the profile of each rank, in order.

    Raises TrialFailedError if one is missing or unreadable.
    """
    return tuple(_read(directory, rank) for rank in range(ranks))


def _read(directory: Path, rank: int) -> LaunchProfile:
    try:
        # The directory itself may have been replaced by a link.
        name = f"{directory.name}/profile.{rank}.json"
        text = UntrustedDirectory(directory.parent).read_bytes(name).decode(errors="replace")
    except OSError as e:
        raise TrialFailedError(
            f"rank {rank} wrote no profile ({e.strerror})",
            where=str(directory),
            remedy="a profile needs a program that calls MPI_Init and is linked with this machine's MPI as a"
            " shared library; leave profile out of the design for others",
        ) from e
    return parse_profile(text, str(directory.parent / name))

"""Parses the profile that libnm-profile.so writes for each MPI rank (kernels/profile)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ..errors import TrialFailedError
from ..model.workloads.profile import CallProfile, PeerProfile, RankProfile, calls_together, peers_together

FIRST_LEVEL = 3
"""MPI_Pcontrol level of the first kernel on nm-micro's command line; the next kernels have the following
levels (kernels/common/levels.h)."""


@dataclass(frozen=True, kw_only=True)
class LevelProfile:
    """The profile of a rank while MPI_Pcontrol was at one level.

    compute, communication: seconds of computation, and in communication calls of MPI.
    calls: calls by name of the MPI function.
    peers: messages that were sent, by receiving rank.
    """

    level: int
    compute: float
    communication: float
    calls: Mapping[str, CallProfile]
    peers: tuple[PeerProfile, ...]


@dataclass(frozen=True, kw_only=True)
class LaunchProfile:
    """The profile of one rank of one launch.

    ranks: number of ranks of the launch.
    complete: whether the rank reached MPI_Finalize.
    mpi: name of the MPI library, as the library reports it.
    before: seconds from the start of the process to MPI_Init.
    init, finalize: seconds in MPI_Init and in MPI_Finalize.
    sections: one for each level of MPI_Pcontrol.
    """

    rank: int
    ranks: int
    complete: bool
    mpi: str
    before: float
    init: float
    finalize: float
    sections: tuple[LevelProfile, ...]

    def whole(self) -> RankProfile:
        """Return the profile of the whole lifetime of the process."""
        return self._of(self.sections)

    def kernel(self, number: int) -> RankProfile:
        """Return the profile of the verified run of a kernel. Its times and counts are zero if the kernel did
        not run.

        number: index of the kernel on nm-micro's command line.
        """
        return self._of([s for s in self.sections if s.level == FIRST_LEVEL + number])

    def _of(self, sections: Sequence[LevelProfile]) -> RankProfile:
        return RankProfile(
            rank=self.rank,
            complete=self.complete,
            before=self.before,
            init=self.init,
            compute=sum(s.compute for s in sections),
            communication=sum(s.communication for s in sections),
            finalize=self.finalize,
            calls=calls_together(s.calls for s in sections),
            peers=peers_together(s.peers for s in sections),
        )


def parse_profile(text: str, where: str) -> LaunchProfile:
    """Parse the content of a file profile.<rank>.json.

    where: the file, for the error.

    Raises TrialFailedError if it is not a profile.
    """
    try:
        return msgspec.json.decode(text, type=LaunchProfile)
    except (ValueError, RecursionError) as e:
        raise TrialFailedError(
            f"unreadable profile: {e}: {text[:200]!r}", where=where, remedy="read the trial's logs"
        ) from e

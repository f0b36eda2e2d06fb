"""Parse the profile that libnm-profile.so writes for each MPI rank (kernels/profile)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import TrialFailedError
from ..model.workloads.profile import CallProfile, PeerProfile, RankProfile, calls_together, peers_together

FIRST_LEVEL = 3
"""MPI_Pcontrol level of the first kernel of nm-micro's command line (kernels/common/levels.h)."""


@dataclass(frozen=True, kw_only=True)
class LevelProfile:
    """The calls of a rank under one level of MPI_Pcontrol; times in seconds."""

    compute: float
    communication: float
    calls: Mapping[str, CallProfile]
    peers: tuple[PeerProfile, ...]


@dataclass(frozen=True, kw_only=True)
class LaunchProfile:
    """The profile of one rank of one launch.

    mpi: name that its MPI library reports.
    before, init, finalize: seconds.
    sections: by level of MPI_Pcontrol.
    """

    rank: int
    ranks: int
    complete: bool
    mpi: str
    before: float
    init: float
    finalize: float
    sections: Mapping[int, LevelProfile]

    def whole(self) -> RankProfile:
        """Return the profile of the whole lifetime of the process."""
        return self._of(list(self.sections.values()))

    def kernel(self, number: int) -> RankProfile:
        """Return the profile of a kernel's verified run; zero if it did not run.

        number: index of the kernel in nm-micro's arguments.
        """
        found = self.sections.get(FIRST_LEVEL + number)
        return self._of([found] if found else [])

    def _of(self, sections: list[LevelProfile]) -> RankProfile:
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


def parse_profile(text: str) -> LaunchProfile:
    """Parse one profile.<rank>.json.

    Raises TrialFailedError if the text is no profile.
    """
    try:
        return _launch(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise TrialFailedError(
            f"unreadable profile ({type(e).__name__}: {e}): {text[:200]!r}", remedy="read the trial's logs"
        ) from e


def _launch(d: dict[str, Any]) -> LaunchProfile:
    return LaunchProfile(
        rank=int(d["rank"]),
        ranks=int(d["ranks"]),
        complete=bool(d["complete"]),
        mpi=str(d["mpi"]),
        before=float(d["before"]),
        init=float(d["init"]),
        finalize=float(d["finalize"]),
        sections={int(s["level"]): _section(s) for s in d["sections"]},
    )


def _section(d: dict[str, Any]) -> LevelProfile:
    return LevelProfile(
        compute=float(d["compute"]),
        communication=float(d["communication"]),
        calls={
            name: CallProfile(count=int(c["count"]), seconds=float(c["seconds"]), bytes=int(c["bytes"]))
            for name, c in d["calls"].items()
        },
        peers=tuple(
            PeerProfile(rank=int(p["rank"]), messages=int(p["messages"]), bytes=int(p["bytes"]))
            for p in d["peers"]
        ),
    )

"""Checks that each rank runs on the host and the CPUs that the placement requires, from the reports of the
ranks."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import TrialFailedError
from ..model.record import RankPlace
from ..model.study import Placement

READ_LOG = "read the trial's log"


class PlacementDiffers(TrialFailedError):
    """A launch succeeded, but its ranks do not run where the placement requires it. For example, Open MPI 5
    with oversubscription has started all ranks on the first host, without an error message."""


def verify_places(
    places: Sequence[RankPlace], placement: Placement, cpus: Sequence[Sequence[int]], hosts: Sequence[str]
) -> None:
    """Check the hosts and CPUs that the ranks of a launch have reported.

    places: reports of the ranks.
    cpus: required CPUs of each rank, by rank.
    hosts: required host name of each instance.
    Raises PlacementDiffers if a report is missing, or for the first rank that runs elsewhere.
    """
    if sorted(p.rank for p in places) != list(range(placement.ranks)):
        raise PlacementDiffers(
            f"{len(places)} of {placement.ranks} ranks reported where they are", remedy=READ_LOG
        )
    for p in sorted(places, key=lambda q: q.rank):
        host = hosts[p.rank // placement.tasks]
        if p.host != host:
            raise PlacementDiffers(f"rank {p.rank} runs on {p.host}, not on {host}", remedy=READ_LOG)
        if p.cpus != tuple(cpus[p.rank]):
            wanted = ", ".join(map(str, cpus[p.rank]))
            raise PlacementDiffers(f"rank {p.rank} may use CPUs {p.cpus}, not only {wanted}", remedy=READ_LOG)

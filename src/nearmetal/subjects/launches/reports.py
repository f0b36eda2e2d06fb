"""Reports that nm-rank wrote about the ranks of one run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import TrialFailedError
from ...host.untrusted import UntrustedDirectory
from ...node.trial import DiskWrites, Trial
from ...workloads.command import ResourceUse
from ...workloads.protocol import RankReport, parse_report


def read_reports(directory: Path, ranks: int) -> list[RankReport]:
    """Read the report of each rank.

    Raises TrialFailedError if one is missing or invalid.
    """
    return [_report(directory, rank) for rank in range(ranks)]


def found_reports(directory: Path, ranks: int) -> list[RankReport]:
    """Read the reports that a failed launch has left; missing ones are skipped."""
    found = []
    for rank in range(ranks):
        with contextlib.suppress(TrialFailedError):
            found.append(_report(directory, rank))
    return found


def forget_reports(directory: Path, ranks: int) -> None:
    """Remove the reports of an earlier run, so that they are not mistaken for those of the next run."""
    for rank in range(ranks):
        try:
            UntrustedDirectory(directory).unlink(_name(rank))
        except OSError as e:  # a directory
            raise TrialFailedError(
                f"{_name(rank)} cannot be removed: {e.strerror}", where=str(directory)
            ) from e


def _report(directory: Path, rank: int) -> RankReport:
    try:
        text = UntrustedDirectory(directory).read_bytes(_name(rank))
    except OSError as e:
        raise TrialFailedError(f"rank {rank} did not report: {e.strerror}", where=str(directory)) from e
    return parse_report(text.decode(errors="replace"), str(directory / _name(rank)))


def _name(rank: int) -> str:
    return f"rank.{rank}.json"


def io_together(reports: Sequence[RankReport]) -> dict[str, int]:
    """Return the bytes that all ranks together read and wrote, by kind (RankReport.io). Kinds that some rank
    does not report are left out."""
    kinds = [k for k in reports[0].io if all(k in r.io for r in reports)]
    return {kind: sum(r.io[kind] for r in reports) for kind in kinds}


def resources_of(
    reports: Sequence[RankReport], *, wall: float | None = None, parts: Mapping[str, float] | None = None
) -> ResourceUse:
    """Return what all ranks used together: the CPU time of all, and the memory of the largest one.

    wall: seconds; None for the wall time of the slowest rank.
    parts: parts of this time, in seconds by kind.
    """
    return ResourceUse(
        wall=max(r.wall for r in reports) if wall is None else wall,
        user=sum(r.user for r in reports),
        system=sum(r.system for r in reports),
        max_rss=max(r.max_rss for r in reports),
        io=io_together(reports),
        parts=parts,
    )


def record_disk_writes(trial: Trial, name: str, reports: Sequence[RankReport]) -> None:
    """Record the bytes that one run of a program wrote to disks, if the kernel counts them."""
    written = io_together(reports).get("write_bytes")
    if written is not None:
        trial.found.disk_writes[name] = DiskWrites(bytes=written, seconds=max(r.wall for r in reports))


def instance_walls(reports: Sequence[RankReport], tasks: int) -> list[float]:
    """Return for each instance the seconds until its last task ended.

    tasks: number of tasks in each instance.
    """
    return [max(r.wall for r in reports[i : i + tasks]) for i in range(0, len(reports), tasks)]

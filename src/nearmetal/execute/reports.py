"""What nm-rank wrote of the ranks of one run."""

from __future__ import annotations

from pathlib import Path

from ..errors import TrialFailedError
from ..workloads.protocol import RankReport, parse_report


def read_reports(directory: Path, ranks: int) -> list[RankReport]:
    """By rank; nm-rank ends with an error where it cannot write. Raises TrialFailedError."""
    return [_report(directory, rank) for rank in range(ranks)]


def _report(directory: Path, rank: int) -> RankReport:
    try:
        return parse_report((directory / f"rank.{rank}.json").read_text())
    except OSError as e:
        raise TrialFailedError(f"rank {rank} did not report: {e}", where=str(directory)) from e

"""The file of the earlier moves of a user on this machine, which correct predictions."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path

from ...host.durable import write_file
from ...host.runtime import user_state
from ...host.untrusted import UntrustedDirectory
from ...lifecycle import Method, PastMove, Prediction
from ...records.json_files import parse_json

_RULES = 2
"""Number of the rules by which moves are predicted. Raise it when predictions of the same move change: moves
that were predicted by other rules correct nothing."""
_KEPT = 1000
"""Number of earlier moves that are kept when another one is recorded."""
_LONGEST = 1e9
"""Most seconds of a move that are believed."""
_NAME = "moves.jsonl"


def _directory() -> Path:
    return user_state() / "nearmetal"


def past_moves() -> list[PastMove]:
    """Read the earlier moves on this machine that were predicted by the rules of today. Lines that cannot be
    read are left out."""
    found = []
    for line in _lines():
        try:
            read: Mapping[str, str | float | None] = parse_json(line)
            if read.get("rules") != _RULES:
                continue
            times = {k: _number(v) for k, v in read.items() if k not in ("rules", "kind", "method")}
            found.append(PastMove(kind=str(read["kind"]), method=Method(str(read["method"])), **times))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def _lines() -> list[bytes]:
    try:
        return UntrustedDirectory(_directory()).read_bytes(_NAME).splitlines()
    except OSError:
        return []


def _number(value: str | float | None) -> float:
    seconds = math.nan if value is None else float(value)
    if seconds < 0 or seconds > _LONGEST:
        raise ValueError(f"no move takes {seconds:g} s")
    return seconds


def keep(kind: str, prediction: Prediction, total: float, downtime: float | None) -> None:
    """Record the duration of a move or a restore. If the disk is full, nothing is recorded.

    prediction: as it was before it was corrected, so that no correction is corrected again.
    total, downtime: measured seconds; None if the downtime is not known.
    """
    times = {
        "predicted_total": prediction.total.value,
        "total": total,
        "predicted_downtime": prediction.downtime.value,
        "downtime": downtime,
    }
    known = {k: v if v is not None and math.isfinite(v) else None for k, v in times.items()}
    line = json.dumps({"rules": _RULES, "kind": kind, "method": prediction.method.value, **known}).encode()
    with contextlib.suppress(OSError):  # a full disk must not turn a finished move into a failure
        _directory().mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(_directory() / _NAME, b"\n".join([*_lines()[-_KEPT:], line, b""]))

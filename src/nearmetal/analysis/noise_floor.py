"""The noise floor: the baseline compared with itself, and the measured disturbances. If the noise floor is
not trustworthy, no other result is trusted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..model.result import DIFFERENT, Cell, NoiseFloor, Verdict, deciding_cells
from ..model.study import Study
from .fold.counts import Counts, FloatArray, joined

CLEAR_TREND = 3.0
"""Number of standard errors of Kendall's tau above which a drift is reported."""
CLEAR_LOAD = 0.01
"""Steal and other processes are reported if they take at least this share of the CPU in the median trial."""
LOADS = {
    "steal_share": "the hypervisor took CPU away (steal)",
    "other_cpu_share": "other processes used the CPU",
}


def noise_floor(study: Study, cells: Sequence[Cell], disturbance: Mapping[str, float | None]) -> NoiseFloor:
    """Judge the machine by those of its A/A cells that decide (deciding_cells).

    The fields of the result:

    cells: all A/A cells.
    trusted: whether none is material or inconsistent. These verdicts are already corrected for the number of
        all A/A cells.
    proven: whether there are A/A cells and all are equivalent. This needs no correction.
    reason: why the machine is not trusted, with the most likely cause, or which comparisons are not decided
        yet; empty if proven.
    cause: the most likely cause of the noise, as text; empty if proven, or if no cause was found.
    """
    deciding = deciding_cells(study, cells)
    odd = [c for c in deciding if c.verdict in DIFFERENT]
    open_ = [c for c in deciding if c.verdict is Verdict.NONE]
    cause = _likeliest(odd or open_, disturbance)
    if odd:
        names = ", ".join(c.label for c in odd)
        why = f"likely cause: {cause}" if cause else _no_cause(disturbance)
        reason = f"the baseline differs from itself in {names}; {why}"
    elif open_:
        reason = (
            f"{len(open_)} of {len(deciding)} comparisons of the baseline with itself are not decided yet"
        )
    else:
        reason = "" if cells else "the baseline was not compared with itself"
    return NoiseFloor(
        cells=tuple(cells),
        trusted=not odd,
        proven=bool(cells) and not odd and not open_,
        reason=reason,
        cause=cause,
    )


def disturbances(sides: Iterable[Counts]) -> dict[str, float | None]:
    """Return the share of trials with a flag as 'flagged', and the median of each kind of disturbance.

    The median is taken over the trials that measured the disturbance. It is None if none did: a missing value
    is not zero.
    """
    if not (pieces := tuple(sides)):
        return {"flagged": None}
    counts = joined(pieces)
    out: dict[str, float | None] = {"flagged": float(np.mean(counts.flagged))}
    for kind in sorted(counts.disturbance):
        known = counts.disturbance[kind][~np.isnan(counts.disturbance[kind])]
        out[kind] = float(np.median(known)) if known.size else None
    return out


def trend(values: FloatArray) -> float:
    """Return how clearly values rise or fall from block to block: Kendall's tau in standard errors under the
    null hypothesis.

    Returns nan for fewer than 8 values. Longer series are thinned to at most 1000 values to limit the cost.
    """
    if values.size < 8:
        return math.nan
    thinned = values[:: -(-values.size // 1000)]
    n = int(thinned.size)
    signs = np.sign(thinned[None, :] - thinned[:, None])
    tau = float(np.sum(np.triu(signs, 1)))
    return tau / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)


def _likeliest(odd: Sequence[Cell], disturbance: Mapping[str, float | None]) -> str:
    """Return the most likely cause, as text: a measured load, else a drift, else ''."""
    if not odd:
        return ""
    loads = [
        (share, kind)
        for kind in LOADS
        if (share := disturbance.get(kind)) is not None and share >= CLEAR_LOAD
    ]
    if loads:
        share, kind = max(loads)
        return f"{LOADS[kind]}, {100 * share:.2g} % of it in the median trial"
    drifts = [abs(trend(np.asarray(c.baseline_values, dtype=np.float64))) for c in odd]
    if any(t > CLEAR_TREND for t in drifts):
        return "drift: the baseline rises or falls over the rounds (frequency, heat, caches)"
    return ""


def _no_cause(disturbance: Mapping[str, float | None]) -> str:
    """Return the text for the case that no cause was found. It names the loads that were not measured."""
    unknown = [words for kind, words in LOADS.items() if disturbance.get(kind) is None]
    rest = f" (not measured: whether {' or '.join(unknown)})" if unknown else ""
    return f"no cause seen: neither drift nor load{rest}"

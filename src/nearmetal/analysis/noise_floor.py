"""The baseline against itself, and what disturbed it: the gate that every other number has to pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..model.result import Cell, NoiseFloor, Verdict
from .fold.counts import Counts, joined

FloatArray = NDArray[np.float64]

CLEAR_TREND = 3.0
"""Standard errors of Kendall's tau from which a drift is named."""
CLEAR_LOAD = 0.01
"""Median share of the CPU from which steal or other processes are named."""
LOADS = {
    "steal_share": "the hypervisor took CPU away (steal)",
    "other_cpu_share": "other processes used the CPU",
}


def noise_floor(cells: Sequence[Cell], disturbance: Mapping[str, float | None]) -> NoiseFloor:
    """What the A/A cells say of the machine.

    trusted: no A/A cell is material or inconsistent; those verdicts are corrected for the number of cells.
    proven: there are A/A cells and all are equivalent, which needs no correction.
    reason: what speaks against trust, with the likeliest cause, or what is not decided yet; empty when
    proven."""
    odd = [c for c in cells if c.verdict in (Verdict.SLOWER, Verdict.FASTER, Verdict.INCONSISTENT)]
    open_ = [c for c in cells if c.verdict is Verdict.NONE]
    if odd:
        names = ", ".join(f"{c.workload}.{c.metric}" for c in odd)
        reason = f"the baseline differs from itself in {names}; {_likeliest(odd, disturbance)}"
    elif open_:
        reason = f"{len(open_)} of {len(cells)} comparisons of the baseline with itself are not decided yet"
    else:
        reason = "" if cells else "the baseline was not compared with itself"
    return NoiseFloor(
        cells=tuple(cells), trusted=not odd, proven=bool(cells) and not odd and not open_, reason=reason
    )


def disturbances(sides: Iterable[Counts]) -> dict[str, float | None]:
    """'flagged': share of trials with a flag; by kind of disturbance the median over the trials that know it,
    None where none does (missing is not zero)."""
    if not (pieces := tuple(sides)):
        return {"flagged": None}
    counts = joined(pieces)
    out: dict[str, float | None] = {"flagged": float(np.mean(counts.flagged))}
    for kind in sorted(counts.disturbance):
        known = counts.disturbance[kind][~np.isnan(counts.disturbance[kind])]
        out[kind] = float(np.median(known)) if known.size else None
    return out


def trend(values: FloatArray) -> float:
    """How clearly values rise or fall from block to block: Kendall's tau in standard errors of its null; nan
    for fewer than 8 values. Longer series are thinned to 1000, so that the cost stays bounded."""
    if values.size < 8:
        return math.nan
    thinned = values[:: -(-values.size // 1000)]
    n = int(thinned.size)
    signs = np.sign(thinned[None, :] - thinned[:, None])
    tau = float(np.sum(np.triu(signs, 1)))
    return tau / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)


def _likeliest(odd: Sequence[Cell], disturbance: Mapping[str, float | None]) -> str:
    """The load where one was measured, else the drift where there is one, else that neither was seen."""
    loads = [
        (share, kind)
        for kind in LOADS
        if (share := disturbance.get(kind)) is not None and share >= CLEAR_LOAD
    ]
    if loads:
        share, kind = max(loads)
        return f"likeliest: {LOADS[kind]}, {100 * share:.2g} % of it in the median trial"
    drifts = [abs(trend(np.asarray(c.baseline_values, dtype=np.float64))) for c in odd]
    if any(t > CLEAR_TREND for t in drifts):
        return "likeliest: drift, the baseline rises or falls over the blocks (frequency, heat, caches)"
    unknown = [words for kind, words in LOADS.items() if disturbance.get(kind) is None]
    rest = f" (not measured: whether {' or '.join(unknown)})" if unknown else ""
    return f"no cause seen: neither drift nor load{rest}"

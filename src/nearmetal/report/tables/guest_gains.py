"""The section on guests that are faster than bare metal, or above an upper bound of it. It says whether their
clocks explain this."""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.guest_gains import ClockAnswer, GuestGain, guest_gains
from ...analysis.instances import InstanceFigures
from ...model.record import JsonValue
from ...model.result import Analysis
from ...model.study import Study
from ...units import show_effect
from ..sheet import Grid, Leaf
from ..text import one_line
from .cells import is_bare, metric_label, side
from .roofs import roof_text, share_figure

_ASK = "the study has to count instances: design: {instance_counters: true}"


def gains_of(study: Study, analysis: Analysis, figures: Sequence[InstanceFigures]) -> tuple[GuestGain, ...]:
    guests = {e.name for e in study.environments if e.guest is not None}
    bare = {e.name for e in study.environments if is_bare(e.backend)}
    return guest_gains(analysis.cells, figures, guests, bare)


def gains_grids(study: Study, gains: Sequence[GuestGain]) -> tuple[Grid, ...]:
    """Return the table; an empty tuple if no guest is faster than bare metal or above an upper bound."""
    rows = tuple(
        (
            f"{metric_label(g.cell)}, {side(study, g.cell.arm).title}",
            _gain_text(g),
            _rate_text(g),
            f"{g.answer}; {_ASK}" if g.answer is ClockAnswer.UNKNOWN else g.answer.value,
        )
        for g in gains
    )
    heads = ("metric, environment", "overhead", "rate of its clock", "answer")
    title = "Guests faster than bare metal, and whether their clocks explain it"
    return (Grid(title=title, heads=heads, rows=rows),) if rows else ()


def gains_leaf(study: Study, analysis: Analysis, figures: Sequence[InstanceFigures]) -> Leaf | None:
    """Return the section; None if no guest is faster than bare metal or above an upper bound."""
    grids = gains_grids(study, gains_of(study, analysis, figures))
    return Leaf(key="gains", title="Guests faster than bare metal", blocks=grids) if grids else None


def gains_json(gains: Sequence[GuestGain]) -> list[JsonValue]:
    """Return the gains as JSON values. Overheads and clock rates are fractions; null where the clocks were
    not compared."""
    return [
        {
            "arm": g.cell.arm,
            "baseline": g.cell.baseline,
            "workload": g.cell.workload,
            "metric": g.cell.metric,
            "beyond_bound": g.beyond,
            "overhead": g.gain[0],
            "clock_rate": g.rate,
            "clock_rate_error": None if g.rate is None else g.error,
            "answer": g.answer.value,
        }
        for g in gains
    ]


def _gain_text(g: GuestGain) -> str:
    if g.beyond and g.cell.beyond is not None:
        return f"{share_figure(g.cell.beyond.share)} of the bound: {roof_text(g.cell.beyond, g.cell.unit)}"
    return f"{show_effect(*g.gain)} against {one_line(g.cell.baseline)}"


def _rate_text(g: GuestGain) -> str:
    """Return the rate of a clock relative to the machine's: '−2.1 % ±0.003 %'."""
    if g.rate is None:
        return "not known"
    return f"{100 * g.rate:+.2g} % ±{100 * g.error:.1g} %".replace("-", "−")

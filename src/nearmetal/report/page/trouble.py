"""TCP losses and timeouts of one cell as texts and tables, if anything was lost."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.record import TrialRecord
from ...model.result import Analysis, Cell, NetworkTrouble
from ...units import show
from ..record_index import RecordIndex
from ..tables.cells import metric_label
from ..text import one_line
from .markup import Markup, join, table, tag

SHOWN_CONNECTIONS = 6
"""Maximum number of connections that are shown. They are those of the trial with most retransmitted
segments."""
SHOWN_PLACES = 6
OWN_NETWORK = "Counted on the machine's own network: other programs' traffic is in it."


def trouble_sentence(t: NetworkTrouble) -> str:
    """Describe TCP timeouts and retransmissions in a trial, the time that they cost, and where packets were
    dropped."""
    timeouts, sent = number_text(t.timeouts), number_text(t.retransmitted)
    before = f"{number_text(t.baseline_timeouts)} and {number_text(t.baseline_retransmitted)}"
    texts = [
        f"In the timed part of a trial {timeouts} TCP time-outs and {sent} segments sent again "
        f"(baseline: {before})."
    ]
    if t.timeouts and t.waited is not None:
        rto = (
            f"{time_text(t.rto)} (the smallest RTO seen)"
            if t.rto is not None
            else "0.2 s (Linux's least RTO)"
        )
        extra = f", of {time_text(t.extra_seconds)} more in all" if t.extra_seconds is not None else ""
        texts.append(f"At {rto} each, the time-outs waited {time_text(t.waited)}{extra}.")
    if t.drops:
        place, count = next(iter(t.drops.items()))
        texts.append(f"Most packets were dropped by {place}: {number_text(count)} in a trial.")
    elif t.timeouts:
        texts.append("No drop was counted in the devices, queues and buffers of this machine that were read.")
    if t.shared:
        texts.append(OWN_NETWORK)
    return one_line(" ".join(texts))


def trouble_lines(analysis: Analysis) -> list[tuple[str, str]]:
    """Return (cell, sentence) for every cell with timeouts."""
    return [
        (f"{metric_label(c)}, {c.arm} against {c.baseline}", trouble_sentence(c.network))
        for c in analysis.cells
        if c.network is not None and c.network.timeouts
    ]


def tcp_trouble(cell: Cell, records: RecordIndex) -> Markup:
    """Return sentence, counts, and the connections of the worst trial; empty if nothing was lost."""
    t = cell.network
    if t is None:
        return Markup("")
    title = "TCP trouble"
    heads = ("per trial, mean", "baseline", "this environment")
    return join(
        tag("h4", title),
        tag("p", trouble_sentence(t)),
        table(heads, _rows(t), label=title, numbers=True),
        _connections(records.trials(cell.arm)),
    )


def _rows(t: NetworkTrouble) -> list[list[str]]:
    rows = [
        ["time-outs, timed part", number_text(t.baseline_timeouts), number_text(t.timeouts)],
        [
            "segments sent again, timed part",
            number_text(t.baseline_retransmitted),
            number_text(t.retransmitted),
        ],
        ["smallest RTO of a connection in trouble", seen_text(t.baseline_rto), seen_text(t.rto)],
        ["waited in time-outs (time-outs × RTO)", time_text(t.baseline_waited), time_text(t.waited)],
    ]
    places = dict.fromkeys((*t.drops, *t.baseline_drops))
    dropped = sorted(places, key=lambda p: -max(t.drops.get(p, 0.0), t.baseline_drops.get(p, 0.0)))
    for place in dropped[:SHOWN_PLACES]:
        counts = [number_text(side.get(place, 0.0)) for side in (t.baseline_drops, t.drops)]
        rows.append([one_line(f"drops, whole trial: {place}"), *counts])
    return rows


def _connections(trials: Sequence[TrialRecord]) -> Markup:
    def sent_again(trial: TrialRecord) -> int:
        return sum(c.retransmitted or 0 for c in trial.connections or ())

    worst = max(trials, key=sent_again, default=None)
    shown = [c for c in (worst.connections or () if worst else ()) if c.retransmitted][:SHOWN_CONNECTIONS]
    if worst is None or not shown:
        return Markup("")
    heads = ("connection", "RTO", "round trip", "cwnd", "sent again", "time-outs", "congestion control")
    rows = [
        [
            one_line(f"{c.scope}: {c.local} to {c.remote}"),
            time_text(c.rto),
            f"{time_text(c.rtt)} ± {time_text(c.rttvar)}",
            *(number_text(v) for v in (c.cwnd, c.retransmitted, c.timeouts)),
            one_line(c.congestion_control or "unavailable"),
        ]
        for c in shown
    ]
    title = f"Connections of the worst trial (round {worst.block})"
    return join(tag("h4", title), table(heads, rows, label=title, numbers=True))


def number_text(value: float | None) -> str:
    """Return a count as text; 'unavailable' for None."""
    return "unavailable" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def time_text(seconds: float | None) -> str:
    """Return seconds as text; 'unavailable' for None."""
    return "unavailable" if seconds is None else one_line(show(seconds, "s"))


def seen_text(seconds: float | None) -> str:
    """Return the smallest observed time as text; 'none seen' for None."""
    return "none seen" if seconds is None else time_text(seconds)

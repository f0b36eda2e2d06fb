"""Sentences on how long each rank of a job paused while it was checkpointed or moved. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ...model.record import JsonValue
from ...model.study import Arm, Study
from ...model.workloads.event import Extent
from ...units import show
from ..record_index import RecordIndex
from ..text import plural
from .cells import side

MOST_RANKS = 4
"""Maximum number of ranks whose pauses are stated one by one."""
_DIGIT = 0.01
"""Seconds to which pauses are rounded; shorter ones to a twentieth."""


def pauses_sentences(study: Study, records: RecordIndex) -> tuple[str, ...]:
    """Return a sentence for each environment and workload with a job, with the median of each rank's pauses
    over all events. Older records do not contain pauses."""
    arms = study.arms()
    placements = Counter(arm.environment.name for arm in arms)
    return tuple(
        f"{_title(study, arm, placements)}, {w.name}: {_sentence(w.extent, events)}."
        for w in study.events
        if w.extent is not Extent.INSTANCE
        for arm in arms
        if (events := list(_events(arm.name, w.name, records)))
    )


def _title(study: Study, arm: Arm, placements: Mapping[str, int]) -> str:
    name = arm.environment.name
    return name if placements[name] == 1 else side(study, arm.name).title


def _events(arm: str, workload: str, records: RecordIndex) -> Iterator[Sequence[float]]:
    """Yield the pauses in seconds of all ranks, by rank number, for each event."""
    for trial in records.trials(arm):
        facts = trial.facts.get(workload, {})
        events = facts.get("moves", facts.get("events"))
        for event in events if isinstance(events, list) else []:
            pauses = _pauses(event)
            if pauses and all(isinstance(p, int | float) for p in pauses):
                yield [float(p) for p in pauses if isinstance(p, int | float)]


def _pauses(event: JsonValue) -> Sequence[JsonValue]:
    """Return the recorded pauses of one event; empty if there are none.

    An event of several guests, one for each rank, is recorded as a list with the standstill of each.
    """
    if isinstance(event, list):
        return [guest.get("stopped") for guest in event if isinstance(guest, Mapping)]
    pauses = event.get("pauses") if isinstance(event, Mapping) else None
    return pauses if isinstance(pauses, list) else []


def _sentence(extent: Extent, events: Sequence[Sequence[float]]) -> str:
    ranks = min(len(event) for event in events)
    pauses = [median(event[rank] for event in events) for rank in range(ranks)]
    if extent is Extent.RANK:
        *others, own = pauses
        text = f"rank {ranks - 1} was moved and paused for {_show(own)}"
        if others:
            text += f", and {_ranks(others, 'waited for it for', 'for')}"
    else:
        text = _ranks(pauses, "paused for", "for")
    return text if len(events) == 1 else f"{text} (medians of {plural(len(events), 'event')})"


def _ranks(pauses: Sequence[float], verb: str, again: str) -> str:
    """Return a clause with the pauses of the ranks from 0 on.

    verb, again: words between a rank and its pause, for the first rank and for the others.
    """
    low, high = _show(min(pauses)), _show(max(pauses))
    last = len(pauses) - 1
    if last > 0 and (last >= MOST_RANKS or low == high):
        ranks = f"ranks 0 {'and' if last == 1 else 'to'} {last}"
        return f"{ranks} {verb} {low if low == high else f'{low} to {high}'}"
    parts = [f"rank {rank} {verb if rank == 0 else again} {_show(p)}" for rank, p in enumerate(pauses)]
    return ", ".join(parts[:-1]) + " and " + parts[-1] if last > 0 else parts[0]


def _show(pause: float) -> str:
    return show(pause, "s", half_width=min(_DIGIT, pause / 20))

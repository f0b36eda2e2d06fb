"""Sentences on checkpoints and moves: the methods that were chosen, and how long each rank of a job paused.
No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ....lifecycle import Method
from ....model.record import JsonValue
from ....model.study import Arm, Study
from ....model.workloads.moves import Extent, LifecycleSubject
from ....units import show
from ...record_index import RecordIndex
from ...text import enumerated, one_line, plural
from ..cells import side

MOST_RANKS = 4
"""Maximum number of ranks whose pauses are stated one by one."""
_DIGIT = 0.01
"""Seconds to which pauses are rounded; shorter ones to a twentieth."""


def event_sentences(study: Study, records: RecordIndex) -> tuple[str, ...]:
    """Return sentences for each environment and event: which methods `auto` chose, and why at last; and the
    median of each rank's pauses over all events of a job. Older records do not contain pauses."""
    arms = study.arms()
    placements = Counter(arm.environment.name for arm in arms)
    return tuple(
        f"{_title(study, arm, placements)}, {w.name}: {sentence}."
        for w in study.lifecycles
        for arm in arms
        for sentence in _sentences(w, list(_events(arm.name, w.name, records)))
    )


def _title(study: Study, arm: Arm, placements: Mapping[str, int]) -> str:
    name = arm.environment.name
    return name if placements[name] == 1 else side(study, arm.name).title


def _events(arm: str, workload: str, records: RecordIndex) -> Iterator[JsonValue]:
    for trial in records.trials(arm):
        facts = trial.facts.get(workload, {})
        events = facts.get("moves", facts.get("events"))
        yield from events if isinstance(events, list) else ()


def _sentences(w: LifecycleSubject, events: Sequence[JsonValue]) -> Iterator[str]:
    if w.method is Method.AUTO:
        chosen = [e for e in events if isinstance(e, Mapping) and "chosen" in e]
        if chosen:
            yield _choices(chosen)
    if w.extent is not Extent.INSTANCE:
        paused = [p for p in map(_pauses, events) if p]
        if paused:
            yield _job(w.extent, paused)


def _choices(moves: Sequence[Mapping[str, JsonValue]]) -> str:
    """Say which methods were chosen, how often the predicted standstill held, and why the last one was."""
    counted = Counter(str(move["chosen"]) for move in moves)
    (most, number), *others = counted.most_common()
    methods = f"{most} in {number} of {len(moves)} moves" if others else most
    methods += "".join(f" and {method} in {number}" for method, number in others)
    held = sum(map(_held, moves))
    return (
        f"auto chose {methods}; the standstill was as predicted in {held} of {len(moves)}; "
        f"{'the last time, ' if len(moves) > 1 else ''}{one_line(str(moves[-1]['reason']))}"
    )


def _held(move: Mapping[str, JsonValue]) -> bool:
    """Return whether the standstill was within the predicted interval, whose upper end may be unknown."""
    stopped = move["stopped"]
    match stopped:
        case {"predicted": [int() | float() as low, _, high], "measured": int() | float() as measured}:
            return low <= measured and not (isinstance(high, int | float) and measured > high)
    return False


def _pauses(event: JsonValue) -> Sequence[float]:
    """Return the pauses in seconds of all ranks, by rank number; empty if they were not recorded.

    An event of several guests, one for each rank, is recorded as a list with the standstill of each.
    """
    if isinstance(event, list):
        found: JsonValue = [guest.get("stopped") for guest in event if isinstance(guest, Mapping)]
    else:
        found = event.get("pauses") if isinstance(event, Mapping) else None
    pauses = [p for p in found if isinstance(p, int | float)] if isinstance(found, list) else []
    return pauses if isinstance(found, list) and len(pauses) == len(found) else []


def _job(extent: Extent, events: Sequence[Sequence[float]]) -> str:
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
    return enumerated([f"rank {rank} {again if rank else verb} {_show(p)}" for rank, p in enumerate(pauses)])


def _show(pause: float) -> str:
    return show(pause, "s", half_width=min(_DIGIT, pause / 20))

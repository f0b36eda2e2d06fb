"""Sweeps: workloads of one study that differ in one number only, such as the size of a message."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .workloads import Workload
from .workloads.event import EventSubject
from .workloads.kernel import KernelWorkload
from .workloads.programs import ApplicationWorkload

LEAST_POINTS = 3
"""Fewest values of the number."""
_OF_EVENTS = ("memory", "working_set", "dirty_rate", "bandwidth", "downtime_limit", "count")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Workloads that differ in one number.

    name: the beginning that their names have in common; the name of what they run if there is none.
    over: key of the number.
    points: name of the workload, by the number in base units, in ascending order.
    """

    name: str
    over: str
    points: Mapping[float, str]


def sweeps(workloads: Sequence[Workload]) -> tuple[Sweep, ...]:
    """Return the sweeps among workloads. Numbers that are not above zero are left out."""
    groups: dict[tuple[Hashable, str], dict[float, Workload]] = {}
    for w in workloads:
        for rest, key, number in _views(w):
            groups.setdefault((rest, key), {})[number] = w
    return tuple(
        Sweep(
            name=_common_start([w.name for w in found.values()]) or next(iter(found.values())).ran,
            over=key,
            points={number: found[number].name for number in sorted(found)},
        )
        for (_, key), found in groups.items()
        if len(found) >= LEAST_POINTS
    )


def _common_start(names: Sequence[str]) -> str:
    """Return the beginning that all names have in common, without punctuation at its end."""
    first, last = min(names), max(names)
    at = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:at].rstrip("-_.")


def _views(w: Workload) -> Iterator[tuple[Hashable, str, float]]:
    """Yield each number of a workload with its key and with everything else that the workload consists of."""
    kind, settings = _settings(w)
    for key, value in settings.items():
        if isinstance(value, int | float) and value > 0:
            others = frozenset((k, v) for k, v in settings.items() if k != key)
            yield (kind, others), key, float(value)


def _settings(w: Workload) -> tuple[Hashable, Mapping[str, str | int | float]]:
    match w:
        case KernelWorkload():
            return (w.kernel, w.pages, w.metrics), w.params
        case ApplicationWorkload():
            return (w.application, w.time_limit), w.params
        case EventSubject():
            numbers = {k: v for k in _OF_EVENTS if (v := getattr(w, k)) is not None}
            return (w.facts.name, w.method, w.load), numbers
        case _:
            return w.name, {}

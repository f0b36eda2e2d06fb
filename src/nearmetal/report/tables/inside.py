"""Text on the counters that were read during a run, the missing ones with reasons, and the cost of
sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...model.record import JsonValue, section
from ...samplers import SamplingCost
from ...units import show
from ..text import one_line, plural


@dataclass(frozen=True, kw_only=True)
class InsideRecord:
    """The counters that a run read, and the cost of sampling.

    found: the section 'inside' of the provenance; empty if there is none.
    cost: cost of the sampler; None if unknown.
    """

    found: Mapping[str, JsonValue]
    cost: SamplingCost | None

    def lines(self) -> list[tuple[str, str]]:
        """Return (label, text) of each line."""
        out: list[tuple[str, str]] = []
        if self.cost is not None:
            out.append(("sampling", self._sampling(self.cost)))
        if self.found:
            out.append(("perf events", events_words(self.found)))
            out.append(("energy", self._energy()))
        return out

    def as_json(self) -> dict[str, JsonValue]:
        """Return the record as JSON. The cost is a share of one core, null if unknown."""
        cost = self.cost
        return {
            **self.found,
            "sampling": None
            if cost is None
            else {
                "seconds": cost.seconds,
                "cpu_seconds": cost.cpu,
                "samples": cost.samples,
                "share_of_a_core": cost.share,
            },
        }

    def _sampling(self, cost: SamplingCost) -> str:
        every = self.found.get("sample_every")
        often = f"every {show(float(every), 's')}: " if isinstance(every, int | float) else ""
        share = "unknown" if cost.share is None else f"{cost.share * 100:.3f} % of a core"
        return f"{often}{share} ({plural(cost.samples, 'sample')} in {show(cost.seconds, 's')})"

    def _energy(self) -> str:
        domains = self.found.get("energy")
        if isinstance(domains, list):
            return one_line(f"of {', '.join(map(str, domains))}, by RAPL")
        return one_line(f"absent: {self.found.get('energy_absent')}")


def events_words(found: Mapping[str, JsonValue]) -> str:
    """Return the counted and the absent perf events as text: 'task_clock; absent: cycles, instructions (No
    such file or directory)'.

    found: as in InsideRecord.
    """
    counted = found.get("perf_events")
    events = ", ".join(map(str, counted)) if isinstance(counted, list) else ""
    reasons: dict[str, list[str]] = {}
    for name, why in section(found, "perf_events_absent").items():
        reasons.setdefault(str(why), []).append(name)
    missing = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
    return one_line("; ".join(s for s in (events, f"absent: {missing}" if missing else "") if s)) or "none"


NOTHING = InsideRecord(found={}, cost=None)


def inside_of(provenance: Mapping[str, JsonValue], cost: SamplingCost | None) -> InsideRecord:
    """Return the counters of a run from its provenance, as read from disk."""
    return InsideRecord(found=section(provenance, "inside"), cost=cost)

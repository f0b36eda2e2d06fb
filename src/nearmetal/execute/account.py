"""The accounts of one group of trials: counters before and after, what other processes took meanwhile."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ..host.counters import Snapshot, delta, disturbance, flags, snapshot
from .session import Session
from .standing import Standing


@dataclass(frozen=True, kw_only=True)
class Window:
    """begin, end: Unix seconds; node: counter differences; instances: the same by trial id and instance."""

    begin: float
    end: float
    node: Mapping[str, float | None]
    instances: Mapping[str, Mapping[str, Mapping[str, float | None]]]
    disturbance: Mapping[str, float | None]
    flags: tuple[str, ...]

    def counters(self, s: Standing) -> dict[str, Mapping[str, float | None]]:
        """The node's counters and those of one trial's own instances."""
        return {"node": self.node, **self.instances.get(s.trial.id, {})}


class Account:
    """begin() once the instances stand, end() before they fall."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._unix = time.time()
        self._before: dict[str, list[Snapshot]] = {}
        self._node: Snapshot = snapshot(session.machine.host)
        self._own = time.process_time()

    def begin(self, arms: Sequence[Standing], stack: ExitStack) -> None:
        """Count the instances from here; tell the sampler of them until `stack` unwinds."""
        host, sampler = self._session.machine.host, self._session.sampler
        for s in arms:
            self._before[s.trial.id] = [snapshot(host, i.cgroups) for i in s.instances]
            for i in s.instances:
                if sampler is not None:
                    sampler.add_instance(i.label, i.cgroups)
                    stack.callback(sampler.remove_instance, i.label)
        self._node = snapshot(host)
        self._own = time.process_time()
        self._unix = time.time()

    def end(self, arms: Sequence[Standing]) -> Window:
        """Everything since begin()."""
        host = self._session.machine.host
        now = time.time()
        seconds = now - self._unix
        node = delta(self._node, snapshot(host), seconds)
        instances = {
            s.trial.id: {
                f"instance.{i.hostname}": delta(before, snapshot(host, i.cgroups), seconds)
                for i, before in zip(s.instances, self._before[s.trial.id], strict=True)
            }
            for s in arms
        }
        everyone = [c for by_name in instances.values() for c in by_name.values()]
        noise = disturbance(
            node, everyone, time.process_time() - self._own, seconds, len(self._session.machine.cpus)
        )
        return Window(
            begin=self._unix, end=now, node=node, instances=instances, disturbance=noise, flags=flags(noise)
        )

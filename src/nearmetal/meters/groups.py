"""The accounts of one group of trials: counters before and after, what other processes took meanwhile."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..environments import Guest, Instance
from ..host.counter_files import CounterFiles, cgroup_paths
from ..host.counters import Snapshot, delta, disturbance, flags, online_cpus
from ..host.procfiles import Counters
from ..model.scope import BESIDE, NODE, Scope
from ..node.kept_groups import HELD_INSTANCES
from ..node.node import Session
from ..node.trial import Standing
from .inside import InsideCounters, grown, own_sources, sources_of
from .network import NetworkAccount, watch_network


@dataclass(frozen=True, kw_only=True)
class Window:
    """What was counted from when the instances stood until just before they fell.

    begin, end: Unix seconds.
    node: counter differences.
    instances: the same by trial id and instance.
    sources: the same of what instances count themselves.
    networks: by trial id, of the arms that use one.
    """

    begin: float
    end: float
    node: Mapping[str, float | None]
    instances: Mapping[str, Mapping[str, Mapping[str, float | None]]]
    sources: Mapping[str, Mapping[str, Mapping[str, float | None]]]
    disturbance: Mapping[str, float | None]
    flags: tuple[str, ...]
    networks: Mapping[str, NetworkAccount]

    def counters(self, s: Standing) -> dict[str, Mapping[str, float | None]]:
        """The node's counters, those of one trial's own instances, and what these used in timed parts."""
        inside = {} if s.inside is None else s.inside.scopes()
        own = self.instances.get(s.trial.id, {})
        return {NODE: self.node, **own, **self.sources.get(s.trial.id, {}), **inside}


@dataclass(frozen=True, kw_only=True)
class _Reading:
    unix: float
    own: float
    node: Snapshot
    energy: float | None
    launcher: Snapshot
    instances: Mapping[str, tuple[Snapshot, ...]]
    sources: Mapping[str, Mapping[str, Counters]]


def members(s: Standing) -> dict[str, Instance]:
    """The instances of an arm and its companion, by the scope of their counters."""
    own = {str(Scope.instance(i.hostname)): i for i in s.instances}
    return own if s.beside is None else {**own, BESIDE: s.beside.instance}


class Account:
    """Counts from when the instances stand until just before they fall; the sampler knows them meanwhile."""

    def __init__(self, session: Session, arms: Sequence[Standing], stack: ExitStack) -> None:
        self._session, self._arms = session, arms
        self._members = {s.trial.id: members(s) for s in arms}
        self._sources = {s.trial.id: own_sources(s.instances) for s in arms}
        everyone = {i.label: i for s in arms for i in (*s.instances, *self._members[s.trial.id].values())}
        held = len(everyone) <= HELD_INSTANCES
        self._launcher = self._files_of(session.launcher_groups, held, stack)
        self._files = {
            i.label: kept.files
            if (kept := session.kept.get(i.label)) is not None
            else self._files_of(i.cgroups, held, stack)
            for i in everyone.values()
        }
        if session.sampler is not None:
            for i in everyone.values():
                threads = i.threads if isinstance(i, Guest) else ()
                session.sampler.add_instance(i.label, i.cgroups, threads)
                stack.callback(session.sampler.remove_instance, i.label)
        for s in arms:
            s.watch = watch_network(session, s, stack)
            s.inside = InsideCounters(sources_of(session, s, self._files, alone=len(arms) == 1))
        self._before = self._read()

    def _files_of(self, groups: Mapping[str, Path], held: bool, stack: ExitStack) -> CounterFiles:
        files = CounterFiles(self._session.machine.host, cgroup_paths(groups), held=held)
        stack.callback(files.close)
        return files

    def _read(self) -> _Reading:
        energy = self._session.energy
        return _Reading(
            unix=time.time(),
            own=time.process_time(),
            node=Snapshot(node=True, files=self._session.node_files.read()),
            energy=None if energy is None else energy.read()["energy"],
            launcher=Snapshot(node=False, files=self._launcher.read()),
            instances={
                trial: tuple(Snapshot(node=False, files=self._files[i.label].read()) for i in own.values())
                for trial, own in self._members.items()
            },
            sources={
                trial: {source.name: source.read() for source in own} for trial, own in self._sources.items()
            },
        )

    def close(self) -> Window:
        """Everything since the account was opened."""
        first, last = self._before, self._read()
        seconds = last.unix - first.unix
        node = delta(first.node, last.node, seconds)
        if last.energy is not None:
            node["energy"] = grown(first.energy, last.energy)
        instances = {
            trial: {
                scope: delta(a, b, seconds)
                for scope, a, b in zip(own, first.instances[trial], last.instances[trial], strict=True)
            }
            for trial, own in self._members.items()
        }
        # What stands inside another arm's guest has no group of its own: its time is that guest's.
        lodgers = {s.trial.id for s in self._arms if s.arm.environment.inside is not None and not s.alone}
        ours = [c for trial, named in instances.items() if trial not in lodgers for c in named.values()]
        if self._session.launcher_groups:
            ours.append(delta(first.launcher, last.launcher, seconds))
        noise = disturbance(node, ours, last.own - first.own, seconds, online_cpus(last.node))
        return Window(
            begin=first.unix,
            end=last.unix,
            node=node,
            instances=instances,
            sources={
                trial: {
                    name: {k: grown(first.sources[trial][name].get(k), v) for k, v in counters.items()}
                    for name, counters in by_name.items()
                }
                for trial, by_name in last.sources.items()
            },
            disturbance=noise,
            flags=flags(noise),
            networks={s.trial.id: s.watch.close() for s in self._arms if s.watch is not None},
        )

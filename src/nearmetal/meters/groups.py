"""Reads counters before and after a group of trials whose instances run at the same time, and computes the
CPU time that other processes used in between."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from ..environments import Instance, RemoteInstance
from ..host.counters.files import CounterFiles, cgroup_paths
from ..host.counters.procfiles import Counters as HostCounters
from ..host.counters.trial import Snapshot, delta, disturbance, flags, online_cpus
from ..model.record import Connection, Counters, JsonValue
from ..model.scope import BESIDE, NODE, RANKS, Scope
from ..node.arms.accounting_groups import HELD_INSTANCES
from ..node.arms.running_arm import RunningArm
from ..node.node import Node
from ..samplers import Sampler
from .contract import Meter
from .inside import InsideCounters, grown, own_sources, sources_of
from .instances import InstanceCounters
from .network import NetworkWatch, watch_network
from .transport import TransportWatch


@dataclass(frozen=True, kw_only=True)
class MeteredArm:
    """A running arm, and the meters that count while its subjects run.

    events: names of the perf events that its ranks count.
    inside: counters inside the timed parts.
    instances: counters of each instance over timed runs; None in the rehearsal, and if the study does not
        request them.
    network: counters of the arm's network; None if the arm uses no network.
    transport: checks of the transport of its ranks.
    """

    running: RunningArm
    events: tuple[str, ...]
    inside: InsideCounters
    instances: InstanceCounters | None
    network: NetworkWatch | None
    transport: TransportWatch

    @contextmanager
    def timed_run(self, workload: str) -> Iterator[None]:
        """Count from entry to exit, which is one whole run of a program."""
        meters: tuple[Meter | None, ...] = (self.instances, self.network, self.inside)
        with ExitStack() as stack:
            for meter in meters:
                if meter is not None:
                    stack.enter_context(meter.timed(workload))
            yield

    def timed_slice(self, workload: str) -> AbstractContextManager[None]:
        """Count one slice, if the arm uses a network that it shares with other arms; otherwise do nothing.

        The slice is counted from the end of the previous slice on this network: in between, only arms with
        their own networks have worked.
        """
        if self.network is None or not self.network.shared:
            return nullcontext()
        return self.network.timed(workload, since_last=True)


@contextmanager
def timed_slices(arms: Sequence[MeteredArm], workload: str) -> Iterator[None]:
    """Count from entry to exit, in which these arms take turns at slices of a workload: while one arm works,
    the others are idle.

    The counters of an arm's instances and of its own network over the whole time therefore belong to this
    arm. A network that arms share must be counted slice by slice (MeteredArm.timed_slice).
    """
    networks = [arm.network for arm in arms if arm.network is not None]
    with ExitStack() as stack:
        for network in networks:
            if not network.shared:
                stack.enter_context(network.timed(workload))
        for network in networks:
            if network.shared:
                network.mark()
        for arm in arms:
            stack.enter_context(arm.inside.timed(workload))
        yield


@dataclass(frozen=True, kw_only=True)
class TrialCounters:
    """Counters of one trial; see TrialRecord.

    counters: counters by scope and name.
    transport: the transport that was observed between its ranks.
    network: network counters by scope and name.
    connections: TCP connections; None if no segment was lost.
    """

    counters: Mapping[Scope, Counters]
    transport: Mapping[str, JsonValue]
    network: Mapping[Scope, Counters]
    connections: tuple[Connection, ...] | None


@dataclass(frozen=True, kw_only=True)
class Window:
    """Counters of a group of trials, from the moment when all instances had started until just before their
    end.

    begin, end: Unix seconds.
    node: increase of the node's counters.
    disturbance: disturbances by other processes in this time, by kind.
    flags: names of the disturbances that exceeded their limits.
    trials: counters of each trial whose instances ran, by trial ID.
    """

    begin: float
    end: float
    node: Counters
    disturbance: Counters
    flags: tuple[str, ...]
    trials: Mapping[str, TrialCounters]

    def of(self, trial: str) -> TrialCounters:
        """Return the counters of a trial. If its instances did not run, these are only the counters of the
        node."""
        return self.trials.get(trial) or TrialCounters(
            counters={NODE: self.node}, transport={}, network={}, connections=None
        )


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """All counters as read at one moment.

    unix: time in Unix seconds.
    at: time in seconds of CLOCK_MONOTONIC. Differences are computed from it, because the time of day may be
        changed between two readings.
    own: CPU time of this process in seconds.
    energy: counter of energy in joules; None if the node has none.
    launcher: control groups of the launchers.
    instances: control groups of the instances, by trial ID, in the order of members().
    guests: control groups of virtual machines that contain several instances (own_guest()), by trial ID.
    sources: counters that instances provide themselves, by trial ID and scope.
    """

    unix: float
    at: float
    own: float
    node: Snapshot
    energy: float | None
    launcher: Snapshot
    instances: Mapping[str, tuple[Snapshot, ...]]
    guests: Mapping[str, Snapshot]
    sources: Mapping[str, Mapping[Scope, HostCounters]]


def members(arm: RunningArm) -> dict[Scope, Instance]:
    """Return the instances of an arm by the scope of their counters. The instance of its companion, if it has
    one of its own, is included."""
    own = {Scope.instance(i.hostname): i for i in arm.instances}
    beside = None if arm.companion is None else arm.companion.instance
    return own if beside is None else {**own, BESIDE: beside}


def own_guest(arm: RunningArm) -> Instance | None:
    """Return the virtual machine that was booted only to contain several instances of an arm; None if there
    is none.

    These instances have no control groups of their own. The control groups of the virtual machine count them
    together.
    """
    if arm.lodges_with is not None or any(i.cgroups for i in arm.instances):
        return None
    return arm.guest_around


class GroupMeters:
    """The meters of a group of trials. They count from the creation of this object until close(). During this
    time, the sampler also samples the instances.

    arms: the running arms with their meters, by trial ID.
    """

    def __init__(
        self,
        node: Node,
        arms: Sequence[RunningArm],
        stack: ExitStack,
        *,
        events: tuple[str, ...],
        sampler: Sampler | None,
        alone: bool,
    ) -> None:
        """Begin to count.

        stack: receives the clean-up of everything that is opened here.
        events: names of the perf events that the ranks count.
        sampler: the running sampler of the node; None in the rehearsal.
        alone: whether the group has only one trial.
        """
        self._node, self._running = node, tuple(arms)
        self._lodgers = frozenset(a.trial.id for a in arms if a.lodges_with is not None)
        shared = self._lodgers | {a.lodges_with for a in arms}
        self._members = {a.trial.id: members(a) for a in arms}
        self._sources = {a.trial.id: own_sources(a.instances) for a in arms}
        everyone = {i.label: i for own in self._members.values() for i in own.values()}
        guests = {a.trial.id: guest for a in arms if (guest := own_guest(a)) is not None}
        held = len(everyone) <= HELD_INSTANCES
        self._launcher = self._files_of(node.launcher_groups, held, stack)
        self._files = {
            i.label: kept.files
            if (kept := node.accounting.get(i.label)) is not None
            else self._files_of(i.cgroups, held, stack)
            for i in everyone.values()
        }
        self._guests = {trial: self._files_of(g.cgroups, held, stack) for trial, g in guests.items()}
        if sampler is not None:
            for i in everyone.values():
                threads = i.threads if isinstance(i, RemoteInstance) else ()
                sampler.add_instance(i.label, i.cgroups, threads)
                stack.callback(sampler.remove_instance, i.label)
        networks = {a.trial.id: watch_network(a, stack) for a in arms}
        inside = {
            a.trial.id: InsideCounters(
                sources_of(
                    a,
                    self._files,
                    alone=alone,
                    unshared=a.trial.id not in shared,
                    guest=self._guests.get(a.trial.id),
                )
            )
            for a in arms
        }
        self._before = self._read()
        each = dict.fromkeys(networks, None) | self._each_instance(sampler, stack)
        self.arms = {
            a.trial.id: MeteredArm(
                running=a,
                events=events,
                inside=inside[a.trial.id],
                instances=each[a.trial.id],
                network=networks[a.trial.id],
                transport=TransportWatch(a, networks[a.trial.id]),
            )
            for a in arms
        }

    def _each_instance(self, sampler: Sampler | None, stack: ExitStack) -> dict[str, InstanceCounters]:
        if sampler is None or not self._node.study.design.instance_counters:
            return {}
        made: dict[str, InstanceCounters] = {}
        for arm in self._running:
            with arm.guard():
                made[arm.trial.id] = InstanceCounters(arm, sampler, stack)
        return made

    def _files_of(self, groups: Mapping[str, Path], held: bool, stack: ExitStack) -> CounterFiles:
        files = CounterFiles(self._node.machine.host, cgroup_paths(groups), held=held)
        stack.callback(files.close)
        return files

    def _read(self) -> _Reading:
        energy = self._node.energy
        return _Reading(
            unix=time.time(),
            at=time.monotonic(),
            own=time.process_time(),
            node=Snapshot(node=True, files=self._node.files.read()),
            energy=None if energy is None else energy.read()["energy"],
            launcher=Snapshot(node=False, files=self._launcher.read()),
            instances={
                trial: tuple(Snapshot(node=False, files=self._files[i.label].read()) for i in own.values())
                for trial, own in self._members.items()
            },
            guests={trial: Snapshot(node=False, files=files.read()) for trial, files in self._guests.items()},
            sources={
                trial: {source.scope: source.read() for source in own} for trial, own in self._sources.items()
            },
        )

    def close(self) -> Window:
        """Stop counting, and return the counters since the creation of this object."""
        first, last = self._before, self._read()
        seconds = last.at - first.at
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
        # Instances that share a guest have no control groups of their own: those of the guest count them.
        ours = [
            c
            for trial, own in instances.items()
            if trial not in self._lodgers
            for scope, c in own.items()
            if trial not in self._guests or scope == BESIDE
        ]
        ours += [delta(first.guests[trial], last.guests[trial], seconds) for trial in self._guests]
        if self._node.launcher_groups:
            ours.append(delta(first.launcher, last.launcher, seconds))
        noise = disturbance(node, ours, last.own - first.own, seconds, online_cpus(last.node))
        if self._node.real.nodes:  # the ranks do not run on this machine
            node, noise = {}, {}
        sources = {
            trial: {
                scope: {k: grown(first.sources[trial][scope].get(k), v) for k, v in counters.items()}
                for scope, counters in by_scope.items()
            }
            for trial, by_scope in last.sources.items()
        }
        return Window(
            begin=first.unix,
            end=last.unix,
            node=node,
            disturbance=noise,
            flags=flags(noise),
            trials={
                trial: _trial_counters(arm, {NODE: node, **instances[trial], **sources[trial]})
                for trial, arm in self.arms.items()
            },
        )


def _trial_counters(arm: MeteredArm, outside: Mapping[Scope, Counters]) -> TrialCounters:
    """Close the meters of an arm, and return the counters of its trial.

    outside: increase, over the whole trial, of the counters of the node, the instances and their sources, by
        scope.
    """
    inside = arm.inside.close()
    network = {} if arm.network is None else arm.network.close()
    if arm.transport.tcp_bytes is not None:
        network[RANKS] = {"tcp_bytes": float(arm.transport.tcp_bytes)}
    each: Mapping[Scope, Counters] = {}
    if arm.instances is not None and arm.running.trial.sound:
        with arm.running.guard():
            each = arm.instances.close()
    return TrialCounters(
        counters={**outside, **inside, **each},
        transport={"seen": arm.transport.words()} if arm.transport.launched else {},
        network=network,
        connections=None if arm.network is None else arm.network.connections,
    )

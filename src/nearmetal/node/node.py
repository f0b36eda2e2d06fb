"""A machine on which trials run, opened once for a run: its networks, its images, and the label by which
leftovers are found."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..environments import Backend, GuestBase, Instance
from ..environments.holder import user_namespace_holder
from ..environments.leftovers import clean_up
from ..environments.storage import DISKS, SHARED, mounted_once
from ..host import LocalHost, MissingValue, cgroups
from ..host.caller import NO_INPUT, Caller, StandardInput, caller
from ..host.counters.energy import EnergyMeter, energy_domains
from ..host.counters.files import CounterFiles, node_paths
from ..host.counters.network_meter import NetworkMeter, open_descriptors
from ..host.outside import outside_directory
from ..host.runtime import memory_scratch_directory
from ..launchers import withheld
from ..lifecycle import RESTS, PastMove
from ..model.environments.image import HOST
from ..model.plan import nodes_of_block
from ..model.record import JsonValue
from ..model.study import Arm, Placement, Reach, Storage, Study, Transport
from ..network.build import Network, build_networks
from .arms.accounting_groups import AccountingGroups, accounting_groups
from .arms.instances import Instances
from .arms.seats import prepare_seats, with_aa
from .bases import guest_bases
from .inner_networks import inner_network
from .links import Links, node_links
from .machine import Machine
from .placement_node import PlacementNode
from .progress import Progress
from .real_nodes import NodeSet, real_nodes
from .software import Software, all_software, launcher
from .ssh import SshKeys, make_keys
from .survey.attachments import wanted_by
from .survey.programs import runs_mpi
from .working_directory import WorkingDirectory


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine, prepared for the trials of one study. It is complete once it is opened.

    label: part of the name of everything that the run creates on the machine.
    scratch: directory of the run, in memory if a tmpfs can be mounted.
    work: parent of the programs' working directories, on a disk if there is one; None if no program has a
        directory of its own.
    working_directory: where nearmetal was started, and all other programs of the user run.
    arms: the arms that can run here, by name.
    backends: by name.
    networks: by name of the arm and whether it is the A/A arm; only for arms with their own network outside
        of a guest.
    links: links of emulated nodes; None if no network was built.
    user_namespace: path of the user namespace that all instances share if run without root, else None.
    launchers: instances in which the mpirun of an image runs, by image and network namespace.
    launcher_groups: control groups of an mpirun that runs outside all instances; empty if there is none.
    accounting: control groups that exist for the whole run, by the label of their instances.
    ssh: keys, if instances are reached by ssh, else None.
    files: the machine's counter files, kept open.
    network_meter: meter of the machine's own network; None if no arm uses any network.
    storages: mount points of storage that instances share.
    bases: what virtual machines boot from, by environment.
    energy: meter of the energy; None if it cannot be read.
    real: the machines on which the instances run, if the study names any.
    caller: what programs inherit from the caller of nearmetal.
    instances: the instances that run at present.
    works_by_hand: workloads whose program was run by hand and succeeded.
    past_moves: the moves whose method was chosen (`method: auto`) since the node was opened, by arm and
        workload; see Trial.past_moves().
    probe_rests: intervals at which probes may ask while answers come, in seconds, the preferred one first.
        The first probe chooses one of them, and only this one is left, so that all arms are asked alike.
    """

    machine: Machine
    study: Study
    label: str
    scratch: Path
    work: Path | None
    working_directory: WorkingDirectory
    arms: Mapping[str, Arm]
    backends: Mapping[str, Backend]
    networks: Mapping[tuple[str, bool], Network]
    links: Links | None
    user_namespace: str | None
    software: Mapping[str, Software]
    launchers: Mapping[tuple[str, str], Instance]
    launcher_groups: Mapping[str, Path]
    accounting: Mapping[str, AccountingGroups]
    ssh: SshKeys | None
    files: CounterFiles
    network_meter: NetworkMeter | None
    storages: Mapping[Storage, Path]
    bases: Mapping[str, GuestBase]
    energy: EnergyMeter | None
    real: NodeSet
    caller: Caller
    instances: Instances = field(default_factory=Instances)
    works_by_hand: set[str] = field(default_factory=set)
    past_moves: dict[tuple[str, str], list[PastMove]] = field(default_factory=dict)
    probe_rests: list[float] = field(default_factory=lambda: list(RESTS))

    def nodes_of(self, place: Placement, block: int) -> tuple[PlacementNode, ...]:
        """Return the nodes of a placement, in the order in which a block uses them.

        Emulated nodes share the CPUs of this machine: each begins with those that the nodes before it leave.
        """
        if not place.node.remote:
            cpus, own = self.machine.cpus, place.instances * place.tasks
            firsts = [number * own % len(cpus) for number in range(place.nodes)]
            return tuple(PlacementNode(local=self.machine.host, cpus=cpus[n:] + cpus[:n]) for n in firsts)
        design, known = self.study.design, {node.name: node for node in self.real.nodes}
        names = tuple(known)
        if design.nodes is not None and design.nodes.draw:
            # The rehearsal runs on the machines of the first block.
            names = nodes_of_block(max(block, 1), names, design.seed)
        return tuple(known[name] for name in names[: place.nodes])

    def network_record(self) -> dict[str, JsonValue]:
        """Return the provenance of each network, by its number in the run: its arms, the request, and the
        network as built."""
        arms: dict[str, dict[str, JsonValue]] = {}
        for (arm, _), network in self.networks.items():
            arms.setdefault(network.label, {})[arm] = None
        stand = {n.label: n for n in self.networks.values()}
        return {
            label.rpartition("-")[2]: {"arms": list(arms[label]), **n.record(), **self._link(n)}
            for label, n in stand.items()
        }

    def _link(self, network: Network) -> dict[str, JsonValue]:
        return self.links.record(network) if self.links is not None else {}

    def software_of(self, arm: Arm) -> Software:
        return self.software[arm.environment.image]


_NOT_COMPARED = ("loadavg",)  # averages over minutes say nothing about one trial


def sweep(progress: Progress, label: str | None = None) -> None:
    """Remove what earlier runs have left behind, for example ranks of a killed run that still use the CPUs.

    label: remove only what has this label, even if its run is still active; None for the leftovers of all
        runs that have ended.
    """
    cleaned = clean_up(LocalHost(), label, quietly=True)
    for text in cleaned.failures:  # it belongs to another user: report it and leave it
        progress.note(f"left by a killed run, and still there: {text.splitlines()[0]}")
    if removed := {item.kind for item in cleaned.found if item not in cleaned.left}:
        progress.note(f"removed what a killed run had left: {', '.join(sorted(removed))}")


@contextmanager
def _launcher_groups(label: str) -> Iterator[dict[str, Path]]:
    """Create a control group for an mpirun that runs outside all instances.

    Its CPU time is then attributed to nearmetal, and not mistaken for a disturbance by other processes.
    """
    parents = cgroups.machine_parents()
    made: dict[str, Path] = {}
    if not isinstance(parents, MissingValue):
        made = cgroups.directories(parents, f"{label}-launcher", {"cpuacct"})
    try:
        cgroups.create(made, cgroups.GroupLimits())
        yield made
    finally:
        cgroups.remove(cgroups.unique(made))


@contextmanager
def open_node(
    machine: Machine,
    study: Study,
    backends: Mapping[str, Backend],
    label: str,
    progress: Progress,
    *,
    force: bool = False,
    given: StandardInput = NO_INPUT,
) -> Iterator[Node]:
    """Open a machine for a run: make the scratch directory, build the networks, and so on. Everything is
    undone on exit.

    The caller must hold the lock of the machine.

    force: use the machines of a placement even if another run measures there.
    given: standard input of the user's programs.

    Raises UsageError if a network is impossible, UnavailableError if something is missing on the machine, and
    RunError if something cannot be built or started.
    """
    arms = {a.name: a for a in study.arms()}
    for arm in arms.values():
        inner_network(arm, label)  # built with its guest: an impossible one is found before anything starts
    with ExitStack() as stack:
        sweep(progress)
        if any(runs_mpi(w, study) for w in study.workloads) and (names := withheld(os.environ)):
            progress.note(f"mpirun and its ranks do not get {', '.join(names)}: env: gives a program its own")
        scratch = stack.enter_context(memory_scratch_directory(label))
        work = None
        if any(w.own_directory for w in study.workloads):
            work = stack.enter_context(outside_directory(DISKS / f"{label}-work"))
        holder = None
        images = {e.image for e in study.environments} - {HOST}
        emulated = any(arm.placement.node.emulated for arm in arms.values())
        needed = images or emulated or any(b.capabilities.needs_user_namespace for b in backends.values())
        if not machine.host.is_root() and needed:
            holder = stack.enter_context(user_namespace_holder(machine.host, machine.tools, label))
        user_namespace = holder.path if holder else None
        software = all_software(machine, study, stack, scratch, user_namespace, progress)
        tools = [found.tools for found in software.values()]
        real = stack.enter_context(real_nodes(machine, study, tools, scratch, label, progress, force=force))
        bases = guest_bases(machine, study, backends, software, stack, progress)
        wanted = {
            (arm.name, aa): want
            for arm, aa in with_aa(arms.values(), study.design.baselines[0])
            if (want := wanted_by(arm)) is not None
        }
        networks: dict[tuple[str, bool], Network] = {}
        groups = dict[str, Path]()
        links: Links | None = None
        if wanted:
            kinds = dict.fromkeys(w.attachment.value for w in wanted.values())
            progress.phase(f"building the network ({', '.join(kinds)})")
            built = stack.enter_context(
                build_networks(label, tuple(wanted.values()), scratch, user_namespace_holder=holder)
            )
            networks = dict(zip(wanted, built, strict=True))
            groups = stack.enter_context(_launcher_groups(label))
            links = stack.enter_context(
                node_links(machine.host, machine.tools, built, groups, scratch, label, holder)
            )
        prepare_seats(machine, arms, backends, networks, label, scratch, stack)
        across = {n: software[a.environment.image] for n, a in arms.items() if a.placement.all_instances > 1}
        # One for all arms of an image and a network: a second one could not have the same label.
        launching = {
            (chosen.image.name, network.hub_netns): chosen
            for (arm, _), network in networks.items()
            if (chosen := across.get(arm)) is not None and chosen.image is not None
        }
        launchers = {
            (image, netns): stack.enter_context(launcher(machine, chosen, scratch, netns, user_namespace))
            for (image, netns), chosen in launching.items()
        }
        shared = dict.fromkeys(a.environment.storage for a in arms.values())
        storages = {
            storage: stack.enter_context(mounted_once(machine.host, storage, scratch / f"shared-{number}"))
            for number, storage in enumerate(shared)
            if storage is not None and storage.kind in SHARED
        }
        several = any(arm.placement.all_instances > 1 for arm in arms.values())
        ssh = make_keys(machine.host, scratch) if several and study.design.reach is Reach.SSH else None
        energy = energy_domains()
        node_meter = None
        if wanted or any(arm.transport is Transport.TCP for arm in arms.values()):
            node_meter = NetworkMeter(open_descriptors())
            stack.callback(node_meter.close)
        node = {name: path for name, path in node_paths(machine.host).items() if name not in _NOT_COMPARED}
        node_files = CounterFiles(machine.host, node, held=True)
        stack.callback(node_files.close)
        # The objects made until now live as long as the run. Freeze them, so that no garbage collection
        # during a trial scans them.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        yield Node(
            machine=machine,
            study=study,
            label=label,
            scratch=scratch,
            work=work,
            working_directory=WorkingDirectory(machine.host, machine.tools, Path.cwd(), label, stack),
            launcher_groups=groups,
            accounting=accounting_groups(machine.host, study, arms, backends, label, scratch, stack),
            ssh=ssh,
            files=node_files,
            network_meter=node_meter,
            arms=arms,
            backends=backends,
            storages=storages,
            bases=bases,
            networks={**networks, **real.networks},
            links=links,
            user_namespace=user_namespace,
            software=software,
            launchers=launchers,
            energy=None if isinstance(energy, MissingValue) else EnergyMeter(energy),
            real=real,
            caller=caller(given),
        )

"""What all blocks of one run share: the machine lock, the tools, the network, the sampler, the label by which
everything left behind is found."""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..environments import Backend, GuestBase, Instance, Tools
from ..environments.holder import user_namespace_holder
from ..environments.kept import find_all, remove_any
from ..environments.registry import get_backend
from ..environments.storage import DISKS, SHARED, mounted_once, why_not
from ..errors import NearmetalError, UnavailableError, UsageError
from ..host import Host, LocalHost, cgroups
from ..host import Unavailable as Absent
from ..host.counter_files import CounterFiles, node_paths
from ..host.energy import EnergyMeter, energy_domains
from ..host.network_meter import NetworkMeter, open_descriptors
from ..host.provenance import llc_bytes
from ..host.runtime import memory_scratch_directory, outside_directory
from ..host.topology import topology
from ..launchers import find_mpi
from ..model.image import HOST
from ..model.record import JsonValue
from ..model.study import Arm, Mpi, Pinning, Placement, Reach, Storage, Study, Transport, has_directory
from ..network.build import Network, build_networks
from ..network.plan import Want
from ..samplers import Sampler
from ..workloads.build import build_tools
from ..workloads.protocol import EVENTS
from .attachments import missing_networks, wanted_by
from .available import usable_backends
from .bases import guest_bases, vcpus_of
from .hardware import hardware_of
from .kept_groups import KeptGroups, kept_groups
from .links import Links, node_links
from .machine import Machine, cache_directory
from .progress import Progress
from .seats import prepare_seats
from .software import Software, all_software, launcher
from .ssh import SshKeys, make_keys


@dataclass(frozen=True, kw_only=True)
class Session:
    """Everything that the blocks of one run need on this machine.

    label: on everything that the run leaves on the machine.
    scratch: directory of the run's own, in memory where it may be mounted.
    work: directory in which the directories of programs are made, on a disk where there is one; None where no
        program has a directory.
    logs: directory with the output of each trial.
    arms: those that can run here, by name.
    backends: by name.
    networks: by name of the arm and whether it is its A/A run; of arms with a network of their own.
    links: of emulated nodes; None where no network was built.
    user_namespace: path of the user namespace that all share without root, else None.
    software: by image.
    launchers: instances in which the mpirun of an image runs, by image and network namespace.
    launcher_groups: control groups of the mpirun that runs in no instance; empty where there is none.
    kept: control groups that stand as long as the run, by the label of their instances.
    ssh: keys, where instances are reached by ssh; else None.
    node_files: the machine's counters, held open.
    node_meter: of the machine's own network; None where no arm uses any.
    storages: where the storage is mounted that instances share.
    bases: what virtual machines are started from, by environment.
    events: perf events that the ranks count.
    energy: None where it cannot be read.
    sampler: None in the rehearsal.
    """

    machine: Machine
    study: Study
    label: str
    scratch: Path
    work: Path | None
    logs: Path
    arms: Mapping[str, Arm]
    backends: Mapping[str, Backend]
    networks: Mapping[tuple[str, bool], Network]
    links: Links | None
    user_namespace: str | None
    software: Mapping[str, Software]
    launchers: Mapping[tuple[str, str], Instance]
    launcher_groups: Mapping[str, Path]
    kept: Mapping[str, KeptGroups]
    ssh: SshKeys | None
    node_files: CounterFiles
    node_meter: NetworkMeter | None
    storages: Mapping[Storage, Path]
    bases: Mapping[str, GuestBase]
    events: tuple[str, ...]
    energy: EnergyMeter | None
    sampler: Sampler | None

    def cpus(self, arm: Arm) -> tuple[tuple[int, ...], ...]:
        """The CPUs that each rank of an arm may use, the same for every arm of as many ranks and the same
        pinning; as the rank sees them, which in a guest are numbered from 0."""
        ranks = cpus_of_ranks(arm.placement, self.machine.cpus)
        if not self.backends[arm.environment.backend].capabilities.virtual and arm.environment.inside is None:
            return ranks
        own = [self.instance_cpus(arm, i) for i in range(arm.placement.all_instances)]
        return vcpus_of(arm, own, ranks)

    def instance_cpus(self, arm: Arm, number: int) -> tuple[int, ...]:
        """The CPUs of one instance of an arm, as the machine numbers them: those of its ranks."""
        return cpus_of_instance(arm.placement, self.machine.cpus, number)

    def network_record(self) -> dict[str, JsonValue]:
        """Of each network that stands, by its number in the run: its arms, what was asked for and what was
        got."""
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


def cpus_of_ranks(place: Placement, usable: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """By rank. usable: in the order in which ranks take them; with more ranks than these they go round."""
    own = place.cpus or tuple(usable[rank % len(usable)] for rank in range(place.ranks))
    match place.pinning:
        case Pinning.RANK:
            return tuple((cpu,) for cpu in own)
        case Pinning.INSTANCE:
            return tuple(
                tuple(sorted(set(own[first : first + place.tasks])))
                for first in range(0, place.ranks, place.tasks)
                for _ in range(place.tasks)
            )
        case Pinning.NONE:
            return (tuple(sorted(usable)),) * place.ranks


def cpus_of_instance(place: Placement, usable: Sequence[int], number: int) -> tuple[int, ...]:
    """Those of its ranks."""
    ranks = cpus_of_ranks(place, usable)[number * place.tasks : (number + 1) * place.tasks]
    return tuple(sorted({cpu for cpus in ranks for cpu in cpus}))


_NOT_COMPARED = ("loadavg",)  # averages of the last minutes say nothing of a trial
_OUTSIDE = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "MPIR_CVAR_", "MPICH_", "HYDRA_", "UCX_", "FI_")


def prepare_machine(host: Host, progress: Progress, mpi: Mpi | None = None) -> Machine:
    """Find the MPI and compile the tools for it (cached by digest); mpi: None = the one that mpirun is.

    Raises UnavailableError with what to install.
    """
    for name in [n for n in os.environ if n.startswith(_OUTSIDE)]:
        # It would reach the ranks of some arms and not of others, and no record would show it.
        del os.environ[name]
        progress.note(f"{name} is set outside and not passed on: the transport is fixed alike for all arms")
    found = find_mpi(host, mpi)
    built = build_tools(host, cache_directory(), progress=progress.phase, mpicc=found.mpicc)
    if not found.compiled_by(built.mpi):
        raise UnavailableError(
            f"{found.mpirun} is of {found.title}, but {found.mpicc} compiles for {built.mpi}",
            remedy="write mpi: openmpi or mpi: mpich into the study's design, or set both to one MPI",
        )
    places = topology(host, host.cpus())
    return Machine(
        host=host,
        tools=Tools(directory=built.directory),
        built=built,
        mpi=found,
        llc=llc_bytes(host) or 32 << 20,
        cpus=places.order,
        cores=places.cores,
        hardware=hardware_of(host),
    )


def new_label() -> str:
    """'nearmetal-' and six hexadecimal digits."""
    return f"nearmetal-{secrets.token_hex(3)}"


def usable_arms(
    machine: Machine, study: Study, progress: Progress
) -> tuple[dict[str, Arm], dict[str, Backend], dict[str, str]]:
    """Arms that can run here, their backends, and why the others cannot (by arm name).

    Raises UsageError when a placement asks for more CPUs than there are, UnavailableError when a baseline
    cannot run.
    """
    usable = usable_backends(machine, study, progress)
    by_name = {e.name: e for e in study.environments}
    arms: dict[str, Arm] = {}
    absent: dict[str, str] = {}
    for arm in study.arms():
        around = by_name.get(arm.environment.inside or "", arm.environment)
        why = (
            usable.lacks(around)
            or usable.lacks(arm.environment)
            or _no_companion(machine, arm, usable.missing)
        )
        why = why or _no_storage(machine, arm)
        if why is None:
            arms[arm.name] = arm
        else:
            absent[arm.name] = why
    for name, error in missing_networks(machine.host, machine.tools, arms).items():
        del arms[name]
        absent[name] = f"{error.what}; {error.remedy}"
        progress.note(f"{name} cannot run here: {error.what}. Next: {error.remedy}")
    standing = {arm.environment.name for arm in arms.values()}
    for arm in [a for a in arms.values() if a.environment.inside not in (None, *standing)]:
        del arms[arm.name]
        absent[arm.name] = f"its guest {arm.environment.inside} cannot run here"
        progress.note(f"{arm.name} cannot run here: {absent[arm.name]}")
    for arm in arms.values():
        wanted = set(arm.placement.cpus)
        shared = arm.placement.oversubscribe
        if not wanted <= set(machine.cpus) or (arm.placement.ranks > len(machine.cpus) and not shared):
            raise UsageError(
                f"placement {arm.placement.name} needs {arm.placement.ranks} CPUs"
                f"{f' {sorted(wanted)}' if wanted else ''}; this machine gives {sorted(machine.cpus)}",
                remedy="use fewer tasks: MPI ranks that share a CPU wait for each other by spinning; "
                "or say oversubscribe: true",
            )
        if arm.placement.all_instances > machine.cores and not shared:
            raise UsageError(
                f"placement {arm.placement.name} has {arm.placement.all_instances} instances; "
                f"this machine has {machine.cores} cores",
                remedy="at most one instance for each core, or say oversubscribe: true",
            )
    first = study.design.baselines[0]
    if not any(a.environment.name == first for a in arms.values()):
        raise UnavailableError(f"the baseline {first} cannot run here: {next(iter(absent.values()), '')}")
    return arms, dict(usable.backends), absent


def _no_companion(machine: Machine, arm: Arm, missing: Mapping[str, str]) -> str | None:
    """Why an arm has not the companion that it wants; None where it has, or wants none."""
    beside = arm.environment.beside
    if beside is None:
        return None
    if not set(beside.cpus) <= set(machine.cpus):
        return f"its companion wants CPUs {beside.cpus}; this machine gives {sorted(machine.cpus)}"
    why = missing.get(beside.backend)
    return None if why is None else f"its companion's backend {beside.backend}: {why}"


def _no_storage(machine: Machine, arm: Arm) -> str | None:
    storage = arm.environment.storage
    own_root = "mnt" in get_backend(arm.environment.backend).capabilities.own
    why = None if storage is None else why_not(machine.host, storage, own_root=own_root)
    return None if why is None else f"environment {arm.environment.name}: {why.reason}; {why.remedy}"


def sweep(progress: Progress, label: str | None = None) -> None:
    """Remove what runs that are gone have left: ranks of a run that was killed may still spin on the CPUs
    that this one measures on. label: what bears this label instead, of whichever run."""
    removed: set[str] = set()
    host = LocalHost()
    for item in find_all(host, label, quietly=True):
        try:
            remove_any(host, item)
            removed.add(item.kind)
        except NearmetalError as e:  # another user's: visible, and not ours to remove
            progress.note(f"left by a killed run, and still there: {e.what}")
    if removed:
        progress.note(f"removed what a killed run had left: {', '.join(sorted(removed))}")


def _wanted_networks(arms: Mapping[str, Arm], first_baseline: str) -> dict[tuple[str, bool], Want]:
    wanted: dict[tuple[str, bool], Want] = {}
    for arm in arms.values():
        want = wanted_by(arm)
        if want is not None:
            wanted[arm.name, False] = want
            if arm.environment.name == first_baseline:
                wanted[arm.name, True] = want
    return wanted


@contextmanager
def _launcher_groups(label: str) -> Iterator[dict[str, Path]]:
    """A group for the mpirun that starts ranks across instances and stands in none of them: what it uses is
    ours, not a disturbance."""
    parents = cgroups.machine_parents()
    made: dict[str, Path] = {}
    if not isinstance(parents, Absent):
        made = cgroups.directories(parents, f"{label}-launcher", {"cpuacct"})
    try:
        cgroups.create(made, cgroups.GroupLimits())
        yield made
    finally:
        cgroups.remove(cgroups.unique(made))


@contextmanager
def open_session(
    machine: Machine,
    study: Study,
    backends: Mapping[str, Backend],
    label: str,
    progress: Progress,
) -> Iterator[Session]:
    """Make the scratch directory, build the network; everything is undone on leaving. The caller holds the
    machine."""
    arms = {a.name: a for a in study.arms()}
    with ExitStack() as stack:
        sweep(progress)
        scratch = stack.enter_context(memory_scratch_directory(label))
        work = None
        if any(has_directory(w) for w in study.workloads):
            work = stack.enter_context(outside_directory(DISKS / f"{label}-work", scratch))
        holder = None
        images = {e.image for e in study.environments} - {HOST}
        emulated = any(arm.placement.emulated for arm in arms.values())
        needed = images or emulated or any(b.capabilities.needs_user_namespace for b in backends.values())
        if not machine.host.is_root() and needed:
            holder = stack.enter_context(user_namespace_holder(machine.host, machine.tools, label))
        user_namespace = holder.path if holder else None
        software = all_software(machine, study, stack, scratch, user_namespace, progress)
        bases = guest_bases(machine, study, backends, software, stack, progress)
        wanted = _wanted_networks(arms, study.design.baselines[0])
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
        launchers = {
            (chosen.image.name, network.hub_netns): stack.enter_context(
                launcher(machine, chosen, scratch, network.hub_netns, user_namespace)
            )
            for (arm, _), network in networks.items()
            if (chosen := across.get(arm)) is not None and chosen.image is not None
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
        # What set-up has made stands as long as the run: no trial need wait while it is searched for garbage.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        yield Session(
            machine=machine,
            study=study,
            label=label,
            scratch=scratch,
            work=work,
            launcher_groups=groups,
            kept=kept_groups(machine.host, study, arms, backends, label, scratch, stack),
            logs=scratch,
            ssh=ssh,
            node_files=node_files,
            node_meter=node_meter,
            arms=arms,
            backends=backends,
            storages=storages,
            bases=bases,
            networks=networks,
            links=links,
            user_namespace=user_namespace,
            software=software,
            launchers=launchers,
            energy=None if isinstance(energy, Absent) else EnergyMeter(energy),
            events=EVENTS if study.design.perf_events else (),
            sampler=None,
        )

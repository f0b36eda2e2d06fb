"""Instances inside guests: which guest they stand in, what is counted of it, and by what it is run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearmetal.environments import (
    CONTAINER_ATTACHMENTS,
    OWN_ALL,
    Capabilities,
    Enclosed,
    Instance,
    InstanceRequest,
    Tools,
)
from nearmetal.environments.guests.guest import EnclosedBox, GuestInstance
from nearmetal.environments.guests.kvm import KvmAnswer
from nearmetal.environments.registry import backend_names, get_backend
from nearmetal.errors import UnavailableError, UsageError
from nearmetal.launchers import Launch
from nearmetal.lifecycle import Method
from nearmetal.meters.inside import sources_of
from nearmetal.model.environments.guest import Accelerator, GuestSettings
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.plan import TrialSpec
from nearmetal.model.study import Arm, Attachment, Design, Environment, Pinning, Placement, Starts, Study
from nearmetal.node.arms import starting
from nearmetal.node.arms.instances import Instances
from nearmetal.node.arms.running_arm import RunningArm, arm_around
from nearmetal.node.arms.start_group import Group
from nearmetal.node.arms.starting import Surroundings, guest_around
from nearmetal.node.inner_networks import inner_network, joined_in
from nearmetal.node.node import open_node
from nearmetal.node.placement_node import PlacementNode
from nearmetal.node.survey import accelerator, emulation
from nearmetal.node.survey.attachments import wanted_by
from nearmetal.node.trial import Trial
from nearmetal.subjects.launches import mpi_job

PLACES = (Placement(name="1x1", instances=1, tasks=1), Placement(name="1x2", instances=1, tasks=2))
SEVERAL = Placement(name="2x1", instances=2, tasks=1)
VM = Environment(name="vm", backend="qemu", attachment=Attachment.VETH_BRIDGE, placements=("1x1", "1x2"))
BOX = Environment(name="box", backend="namespaces", inside="vm", placements=("1x1", "1x2"))

INSTANCE: dict[str, Any] = {
    **dict.fromkeys(("host", "process", "ahead")),
    **{"pid": 1, "phases": {}, "cgroups": {}, "tools": Tools(directory=Path("/t"))},
    **{"socket": Path("/s"), "scratch": Path("/x")},
}
"""Fields of a guest and of the instances in it that no test reads."""


def trial_of(
    environment: Environment, place: Placement, *, aa: bool = False, node: Any = None, nodes: Any = ()
) -> Trial:
    arm = Arm(environment=environment, placement=place)
    spec = TrialSpec(id=f"0/{arm.name}{aa}", block=0, position=0, arm=arm.name, aa=aa)
    return Trial(spec=spec, arm=arm, node=node, nodes=nodes, directory=Path("/d"), log=Path("/l"))


def running(trial: Trial) -> RunningArm:
    instance: Any = f"guest of {trial.arm.name}"
    return RunningArm(
        trial=trial,
        group=Group(instances=(instance,), seconds=(0.0,), steps={}),
        volumes=(),
        companion=None,
        lodges_with=None,
        shared_memory=None,
        ssh=(),
    )


def test_enclosed_instance_runs_in_the_guest_with_its_placement() -> None:
    vms = [running(trial_of(VM, p)) for p in PLACES]
    again = running(trial_of(VM, PLACES[1], aa=True))
    assert arm_around(trial_of(BOX, PLACES[1]), [again, *vms]) is vms[1]


def test_several_instances_run_in_the_one_guest_with_their_ranks() -> None:
    vms = [running(trial_of(VM, p)) for p in (PLACES[0], SEVERAL, PLACES[1])]
    assert arm_around(trial_of(BOX, SEVERAL), vms) is vms[2]
    unbound = replace(SEVERAL, pinning=Pinning.NONE)
    assert arm_around(trial_of(BOX, unbound), vms) is None


def test_instances_in_one_guest_have_its_cpus_and_a_network_inside_it() -> None:
    seated = replace(BOX, attachment=Attachment.VETH_BRIDGE, network=NetworkSettings(mtu=1400))
    arm = Arm(environment=seated, placement=SEVERAL)
    network = inner_network(arm, "nearmetal-0a1b2c-3")
    assert network is not None and wanted_by(arm) is None, "none of it is on the machine"
    assert [s.netns for s in network.seats] == [f"/run/netns/nearmetal-0a1b2c-3-{name}" for name in "ab"]
    assert network.hub_command(["mpirun"])[:2] == ["nsenter", "--net=/run/netns/nearmetal-0a1b2c-3-hub"]
    asked: list[Any] = []

    class Guest:
        @contextmanager
        def joined(self, *words: object) -> Iterator[None]:
            asked.append(words)
            yield

    guest: Any = Guest()
    with joined_in(guest, network):
        assert asked == [
            (
                {
                    "nearmetal-0a1b2c-3-hub": "br0,10.99.0.1/24,1400",
                    "nearmetal-0a1b2c-3-a": "eth0,10.99.0.2/24,1400",
                    "nearmetal-0a1b2c-3-b": "eth0,10.99.0.3/24,1400",
                },
                network.settings,
            )
        ]
    with pytest.raises(UnavailableError, match="no network can be built"), joined_in(None, network):
        pass
    assert inner_network(trial_of(BOX, SEVERAL).arm, "l") is None, "it has no address"
    assert inner_network(replace(arm, environment=replace(seated, inside=None)), "l") is None
    node: Any = SimpleNamespace(
        study=SimpleNamespace(workloads=()),
        backends={"namespaces": SimpleNamespace(capabilities=SimpleNamespace(virtual=False))},
    )
    host: Any = None
    trial = trial_of(seated, SEVERAL, node=node, nodes=[PlacementNode(local=host, cpus=(4, 6))])
    assert trial.cpus_of() == ((0,), (1,)), "as their guest numbers them"
    assert trial.all_cpus == (4, 6)


def test_a_network_in_a_guest_without_addresses_for_all_is_found_before_anything_starts() -> None:
    nothing: Any = None
    eight = Placement(name="8x1", instances=8, tasks=1)
    small = NetworkSettings(subnet="10.0.0.0/29")
    box = replace(BOX, attachment=Attachment.VETH_BRIDGE, network=small, placements=("8x1",))
    design = Design(baselines=("box",), margin=0.03, confidence=0.95, seed=1)
    study = Study(
        name="s", question="", environments=(box,), placements=(eight,), workloads=(), design=design
    )
    with pytest.raises(UsageError, match=r"10\.0\.0\.0/29 has addresses for 1 to 5 instances, not 8"):
        open_node(nothing, study, {}, "l", nothing).__enter__()


def test_mpirun_of_several_instances_in_one_guest_runs_there_and_enters_each() -> None:
    guest = GuestInstance(label="g", hostname="vm", enter=("guest", "/s", "--"), **INSTANCE)
    boxes = [
        EnclosedBox(
            label=name,
            hostname=name,
            enter=(*guest.enter, "enter", name),
            guest=guest,
            first=7,
            inner=("enter", name),
            **INSTANCE,
        )
        for name in ("a", "b")
    ]
    seated = replace(BOX, attachment=Attachment.VETH_BRIDGE)
    node: Any = SimpleNamespace(
        label="n", arms=("box/2x1",), instances=Instances({b.label: b for b in boxes}), networks={}
    )
    node.software_of = lambda _: None
    group = Group(instances=tuple(boxes), seconds=(0.0, 0.0), steps={})
    arm = replace(running(trial_of(seated, SEVERAL, node=node)), group=group)
    assert arm.guest_around is guest and arm.guests == tuple(boxes)
    assert arm.machines == (boxes[0],), "both see the files of the guest"
    assert arm.inner_lines == ["a = enter a", "b = enter b"]
    launch = Launch(argv=("mpirun", "x"), env={}, transport={})
    words = ["guest", "/s", "--", "nsenter", "--net=/run/netns/n-0-hub", "--", "mpirun", "x"]
    assert mpi_job._words(arm, launch) == words
    apart = replace(arm, trial=trial_of(replace(seated, inside=None), SEVERAL, node=node))
    assert apart.guest_around is None and apart.inner_lines == []
    assert apart.machines == tuple(boxes), "on machines that are reached by ssh, each has its own files"


class RemoteCell:
    """An instance of a backend of another package: no class of nearmetal, and only the members that the
    contract has. It shares what it can with its guest."""

    pid = os.getpid()
    phases: Mapping[str, float] = {}
    cgroups: Mapping[str, Path] = {}
    threads: tuple[int, ...] = ()
    agent_line = "unused = by the agent on the machine"

    def __init__(self, guest: Any, label: str) -> None:
        self._guest = guest
        self.label = self.hostname = label

    def command(self, argv: Sequence[str]) -> list[str]:
        return [*self._guest.command(["cell", self.label]), *argv]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._guest, name)


class EnclosedCell(RemoteCell):
    @property
    def guest(self) -> Any:
        return self._guest

    @property
    def inner_agent_line(self) -> str:
        return f"{self.hostname} = cell {self.label}"


@dataclass
class Cells:
    """A backend of another package that starts instances inside guests."""

    cell: type[RemoteCell]
    name = "cells"
    capabilities = Capabilities(own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS, stands_inside=True)

    @contextmanager
    def start_inside(
        self, guest: Instance, tools: Tools, request: InstanceRequest, *, alone: bool
    ) -> Iterator[RemoteCell]:
        assert not alone, "it is one of two"
        yield self.cell(guest, request.label)


@contextmanager
def cells_in_a_guest(cell: type[RemoteCell], monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningArm]:
    guest = GuestInstance(label="g", hostname="vm", enter=("guest", "/s", "--"), **INSTANCE)

    def request(trial: Trial, number: int) -> InstanceRequest:
        name = "ab"[number]
        return InstanceRequest(
            label=name, hostname=name, environment=trial.arm.environment, scratch=Path("/s")
        )

    monkeypatch.setattr(starting, "_request", request)
    box = replace(BOX, backend="cells", attachment=Attachment.VETH_BRIDGE)
    node: Any = SimpleNamespace(
        study=SimpleNamespace(
            environments=(VM, box), design=SimpleNamespace(starts=Starts.IN_TURN), workloads=()
        ),
        backends={"cells": Cells(cell)},
        machine=SimpleNamespace(host=None),
        software_of=lambda _: SimpleNamespace(tools=Tools(directory=Path("/t"))),
        label="n",
        arms=("box/2x1",),
        instances=Instances(),
    )
    trial = trial_of(box, SEVERAL, node=node)
    monkeypatch.setattr(starting, "_network_in", lambda *_: nullcontext())
    with starting.started_instances(trial, Surroundings(guest=guest, alone=False)) as (group, _):
        yield replace(running(trial), group=group)


def test_a_backend_of_another_package_runs_instances_inside_a_guest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with cells_in_a_guest(EnclosedCell, monkeypatch) as arm:
        guest = arm.guest_around
        assert guest is not None and guest.hostname == "vm"
        assert len(arm.guests) == 2 and arm.machines == arm.guests[:1]
        assert arm.inner_lines == ["a = cell a", "b = cell b"]
        words = mpi_job._words(arm, Launch(argv=("mpirun", "x"), env={}, transport={}))
        assert words == ["guest", "/s", "--", "nsenter", "--net=/run/netns/n-0-hub", "--", "mpirun", "x"]


def test_an_instance_inside_a_guest_that_cannot_be_reached_there_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        pytest.raises(UnavailableError, match=r"cells started a inside a guest.* EnclosedInstance\n"),
        cells_in_a_guest(RemoteCell, monkeypatch),
    ):
        pass


def test_counters_of_a_guest_shared_by_two_arms_belong_to_neither() -> None:
    assert sources_of(running(trial_of(VM, PLACES[1])), {}, alone=True, unshared=False) == ()


def test_without_one_it_boots_its_own() -> None:
    failed = running(trial_of(VM, PLACES[0]))
    failed.trial.found.failure = "it did not boot"
    for others in ([], [failed], [running(trial_of(VM, PLACES[1]))]):
        assert arm_around(trial_of(BOX, PLACES[0]), others) is None


def test_guest_booted_for_one_instance_ends_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[InstanceRequest] = []
    events: list[str] = []
    request = InstanceRequest(
        label="l",
        hostname="h",
        environment=BOX,
        cpus=(1,),
        seat=None,
        binds=(Path("/b"),),
        scratch=Path("/s"),
    )
    monkeypatch.setattr(starting, "_request", lambda *_, **more: replace(request, label=more["name"]))

    @contextmanager
    def start(_host: object, tools: object, request: InstanceRequest) -> Iterator[Any]:
        asked.append(request)
        yield SimpleNamespace(label="l-guest", pid=os.getpid(), cgroups={})
        events.append("gone")

    node: Any = SimpleNamespace(
        study=SimpleNamespace(environments=(VM, BOX), workloads=()),
        backends={"qemu": SimpleNamespace(start=start)},
        bases={"vm": "base"},
        machine=SimpleNamespace(host=None),
        software_of=lambda _: SimpleNamespace(tools="tools"),
        instances=Instances(),
    )
    nodes = [PlacementNode(local=node.machine.host, cpus=(1, 2))]
    box = trial_of(BOX, PLACES[1], node=node, nodes=nodes)
    with guest_around(box, Surroundings()) as around:
        assert around.guest is node.instances["l-guest"] and around.alone
        with guest_around(box, around) as same:
            assert same is around and len(asked) == 1, "it runs already"
        assert not events
    assert events == ["gone"]
    (one,) = asked
    assert (one.label, one.environment.name, one.environment.attachment) == ("guest", "vm", Attachment.NONE)
    assert one.binds == () and one.seat is None and str(one.base) == "base" and one.cpus == (1, 2)
    with guest_around(trial_of(VM, PLACES[0], node=node), Surroundings()) as none:
        assert none.guest is None and len(asked) == 1, "it is one itself"


def test_instance_inside_a_guest_reports_how_the_guest_is_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    machine: Any = SimpleNamespace(
        host=None, tools=None, built=SimpleNamespace(flags=accelerator.EMULATED_CPU), mpi=None
    )
    why = KvmAnswer(works=False, reason="it hangs", remedy="another machine")
    monkeypatch.setattr(accelerator, "kvm_answer", lambda *_: why)
    monkeypatch.setattr(emulation, "emulator", lambda *_: "")
    monkeypatch.setattr(emulation, "_nested", lambda _, e: "TCG too" if e.name == "vm" else "")
    monkeypatch.setattr(emulation, "emulator", lambda *_: "")
    box = replace(BOX, guest=GuestSettings(memory=1 << 28))
    study = Study(
        name="s",
        question="",
        environments=(
            replace(VM, guest=box.guest),
            box,
            replace(VM, name="vm-criu", guest=box.guest, method=Method.CRIU),
        ),
        placements=PLACES,
        workloads=(),
        design=Design(baselines=("vm",), margin=0.03, confidence=0.95, seed=1),
    )
    notes: list[str] = []
    progress: Any = SimpleNamespace(note=notes.append)
    _, found = accelerator.with_accelerators(machine, study, progress)
    vm, inner, _ = found.environments
    told = "warning: vm is emulation, not virtualisation (TCG, no KVM: it hangs)"
    assert notes[1:] == [told], "QEMU has no method criu, so that environment is left out"
    assert inner.guest == vm.guest and inner.guest is not None
    assert inner.guest.accelerator is Accelerator.TCG and inner.guest.label == "TCG, no KVM: it hangs"
    assert inner.emulation == vm.emulation == "TCG too", "what stands around the guest stands around it"


def test_backends_that_claim_to_run_inside_guests_are_enclosed() -> None:
    for name in backend_names():
        try:
            backend = get_backend(name)
        except UnavailableError:
            continue
        assert backend.capabilities.stands_inside == isinstance(backend, Enclosed), name

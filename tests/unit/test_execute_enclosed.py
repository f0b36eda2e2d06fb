"""Instances inside guests: which guest they stand in, what is counted of it, and by what it is run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearmetal.environments import Enclosed, InstanceRequest
from nearmetal.environments.kvm import KvmAnswer
from nearmetal.environments.registry import backend_names, get_backend
from nearmetal.errors import UnavailableError
from nearmetal.execute import accelerator, emulation, starting
from nearmetal.execute.arms import borrow_guest
from nearmetal.execute.inside import sources_of
from nearmetal.execute.standing import Standing
from nearmetal.execute.starting import guest_around
from nearmetal.model.guest import Accelerator, GuestSettings
from nearmetal.model.plan import TrialSpec
from nearmetal.model.study import Arm, Attachment, Design, Environment, Placement, Study

PLACES = (Placement(name="1x1", instances=1, tasks=1), Placement(name="1x2", instances=1, tasks=2))
VM = Environment(name="vm", backend="qemu", attachment=Attachment.VETH_BRIDGE, placements=("1x1", "1x2"))
BOX = Environment(name="box", backend="namespaces", inside="vm", placements=("1x1", "1x2"))


def standing_of(environment: Environment, place: Placement, *, aa: bool = False, up: bool = True) -> Standing:
    arm = Arm(environment=environment, placement=place)
    trial = TrialSpec(id=f"0/{arm.name}{aa}", block=0, position=0, arm=arm.name, aa=aa)
    found = Standing(trial=trial, arm=arm, directory=Path("/d"), log=Path("/l"))
    found.instances = (f"guest of {arm.name}",) if up else ()  # type: ignore[assignment]
    return found


def test_it_stands_in_the_guest_of_the_block_on_its_own_placement() -> None:
    vms = [standing_of(VM, p) for p in PLACES]
    again = standing_of(VM, PLACES[1], aa=True)
    box = standing_of(BOX, PLACES[1], up=False)
    borrow_guest(box, [again, *vms, box])
    assert str(box.around) == "guest of vm/1x2" and not box.alone
    assert [s.alone for s in (*vms, again)] == [True, False, True]
    nobody: Any = None
    assert sources_of(nobody, box, {}, alone=False) == sources_of(nobody, vms[1], {}, alone=True) == ()


def test_without_one_it_boots_its_own() -> None:
    failed, fallen = standing_of(VM, PLACES[0]), standing_of(VM, PLACES[0], up=False)
    failed.failure = "it did not boot"
    for others in ([], [failed], [fallen], [standing_of(VM, PLACES[1])]):
        box = standing_of(BOX, PLACES[0], up=False)
        borrow_guest(box, [*others, box])
        assert box.around is None and box.alone


def test_its_own_guest_needs_no_network_and_goes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[InstanceRequest] = []
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

    def start(_host: object, tools: object, request: InstanceRequest) -> Any:
        asked.append(request)
        return nullcontext("a guest")

    session: Any = SimpleNamespace(
        study=SimpleNamespace(environments=(VM, BOX)),
        backends={"qemu": SimpleNamespace(start=start)},
        bases={"vm": "base"},
        machine=SimpleNamespace(host=None),
        software_of=lambda _: SimpleNamespace(tools="tools"),
    )
    box = standing_of(BOX, PLACES[0], up=False)
    with guest_around(session, box):
        assert str(box.around) == "a guest"
        with guest_around(session, box):
            assert len(asked) == 1, "it stands already"
    assert box.around is None
    (one,) = asked
    assert (one.label, one.environment.name, one.environment.attachment) == ("guest", "vm", Attachment.NONE)
    assert one.binds == () and one.seat is None and str(one.base) == "base"
    with guest_around(session, standing_of(VM, PLACES[0])):
        assert len(asked) == 1, "it is one itself"


def test_what_runs_its_guest_is_said_of_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
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
        environments=(replace(VM, guest=box.guest), box),
        placements=PLACES,
        workloads=(),
        design=Design(baselines=("vm",), margin=0.03, confidence=0.95, seed=1),
    )
    progress: Any = SimpleNamespace(note=print)
    _, found = accelerator.with_accelerators(machine, study, progress)
    vm, inner = found.environments
    assert inner.guest == vm.guest and inner.guest is not None
    assert inner.guest.accelerator is Accelerator.TCG and inner.guest.label == "TCG, no KVM: it hangs"
    assert inner.emulation == vm.emulation == "TCG too", "what stands around the guest stands around it"


def test_who_says_that_it_stands_inside_guests_can_be_started_there() -> None:
    for name in backend_names():
        try:
            backend = get_backend(name)
        except UnavailableError:
            continue
        assert backend.capabilities.stands_inside == isinstance(backend, Enclosed), name

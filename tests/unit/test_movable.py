"""Instances that are ready to be moved: what is prepared, what is refused, and what a move records."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearmetal.environments import Available, Backend, InstanceRequest
from nearmetal.environments.containers.namespaces import Namespaces
from nearmetal.environments.qemu import backend as qemu_backend
from nearmetal.environments.qemu.backend import Qemu
from nearmetal.environments.qemu.guest import FORGETS_WRITES, QemuGuest
from nearmetal.environments.registry import get_backend
from nearmetal.lifecycle import Phase, PhaseTimes
from nearmetal.model.environments.guest import GuestSettings
from nearmetal.model.record import STEP
from nearmetal.model.study import (
    Arm,
    Attachment,
    Design,
    Environment,
    EventSubject,
    LifecycleSubject,
    MoveSubject,
    Placement,
    Study,
)
from nearmetal.node.arms.starting import with_layers
from nearmetal.node.survey.available import asks_for_moves, usable_backends, why_unmovable
from nearmetal.subjects.checkpoint import CHECKPOINT
from nearmetal.subjects.events.rows import event_row, with_steps
from nearmetal.subjects.migrate import MIGRATE
from nearmetal.subjects.start_stop import START
from nearmetal.testing.fake_host import FakeHost


def request(tmp_path: Path, *, movable: bool) -> InstanceRequest:
    return InstanceRequest(
        label="nearmetal-000000-a",
        hostname="a",
        environment=Environment(name="e", backend="namespaces", movable=movable),
        cpus=(0,),
        seat=None,
        binds=(),
        scratch=tmp_path,
    )


@pytest.mark.parametrize(
    ("backend", "movable", "kept"),
    [(Namespaces(), True, True), (Namespaces(), False, False), (Qemu(), True, False)],
)
def test_the_root_of_a_movable_container_is_kept_outside_of_it_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Backend, movable: bool, kept: bool
) -> None:
    monkeypatch.setattr("nearmetal.host.runtime.runtime_directory", lambda: tmp_path / "run")
    asked = request(tmp_path, movable=movable)
    with with_layers(backend, [asked]) as (made,):
        assert (made.layer is not None) is kept
        if made.layer is None:
            assert made == asked
        else:
            assert made.layer.is_dir() and list(made.layer.iterdir()) == []
            assert made.calls is not None and made.calls.parent == made.layer.parent
    assert made.layer is None or not made.layer.parent.exists()


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        (Environment(name="e", backend="namespaces", attachment=Attachment.NONE, movable=True), None),
        (
            Environment(name="e", backend="namespaces", attachment=Attachment.MACVLAN, movable=True),
            "environment e: attachment macvlan is not restored; attachment: host or none or veth-bridge",
        ),
        (Environment(name="e", backend="namespaces", attachment=Attachment.VETH_BRIDGE, movable=True), None),
        (
            Environment(name="e", backend="native", attachment=Attachment.VETH_BRIDGE, movable=True),
            "environment e: attachment veth-bridge is not restored; attachment: host",
        ),
        (Environment(name="e", backend="namespaces", attachment=Attachment.VETH_BRIDGE), None),
        (
            Environment(name="e", backend="bubblewrap", attachment=Attachment.NONE, movable=True),
            "environment e: bubblewrap neither moves its instances nor writes them to files; "
            "take movable out of the environment",
        ),
        (
            Environment(
                name="e", backend="qemu", image="own", attachment=Attachment.NONE, guest=None, movable=True
            ),
            None,
        ),
        (
            Environment(
                name="e",
                backend="qemu",
                image="own",
                attachment=Attachment.NONE,
                guest=GuestSettings(vfio="0000:01:10.0"),
                movable=True,
            ),
            "environment e: device 0000:01:10.0 is passed through and stays where it is; "
            "take vfio out of guest",
        ),
    ],
)
def test_what_cannot_be_moved_is_not_made_ready(environment: Environment, why: str | None) -> None:
    machine: Any = SimpleNamespace(host=FakeHost(root=True))
    arm = Arm(environment=environment, placement=Placement(name="1x1", instances=1, tasks=1))
    assert get_backend(environment.backend).name == environment.backend
    assert why_unmovable(machine, arm) == why


@pytest.mark.parametrize(
    ("movable", "events", "noted"),
    [
        (False, (), False),
        (False, (EventSubject(name="s", facts=START),), False),
        (False, (MoveSubject(name="m", facts=MIGRATE),), True),
        (False, (LifecycleSubject(name="c", facts=CHECKPOINT),), True),
        (True, (), True),
    ],
)
def test_what_only_moves_suffer_from_is_noted_only_in_studies_with_moves(
    monkeypatch: pytest.MonkeyPatch, movable: bool, events: tuple[EventSubject, ...], noted: bool
) -> None:
    answer = Available(version="QEMU 7.2", notes=("TCG, no KVM",), of_moves=(FORGETS_WRITES,))
    monkeypatch.setattr(Qemu, "check", lambda *_: answer)
    environment = Environment(name="e", backend="qemu", image="own", movable=movable)
    place = Placement(name="1x1", instances=1, tasks=1)
    design = Design(baselines=("e",), seed=1)
    study = Study(
        name="s",
        question="",
        environments=(environment,),
        placements=(place,),
        workloads=events,
        design=design,
    )
    machine: Any = SimpleNamespace(host=FakeHost(), tools=None)
    said: list[str] = []
    progress: Any = SimpleNamespace(note=said.append)
    assert asks_for_moves(study) is noted
    assert usable_backends(machine, study, progress).missing == {}
    assert said == ["qemu: TCG, no KVM", *([f"qemu: {FORGETS_WRITES}"] if noted else [])]


def test_a_movable_guest_has_every_capability_that_its_qemu_allows_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, Any]] = []

    class Recorder:
        def __init__(self, socket: Path) -> None:
            self.socket = socket

        def __enter__(self) -> Recorder:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def ask(self, command: str, arguments: Any = None) -> Any:
            asked.append((command, arguments))
            names = ("auto-converge", "events", "multifd", "postcopy-ram", "xbzrle")
            return [{"capability": name, "state": False} for name in names]

    monkeypatch.setattr(qemu_backend, "Monitor", Recorder)
    guest = object.__new__(QemuGuest)
    object.__setattr__(guest, "plan", SimpleNamespace(sockets=SimpleNamespace(qmp=Path("qmp"))))
    Qemu().enable_moves(guest)
    (states,) = (a["capabilities"] for c, a in asked if c == "migrate-set-capabilities")
    assert {s["capability"] for s in states if s["state"]} == {"auto-converge", "events", "postcopy-ram"}
    assert not any(command == "migrate" for command, _ in asked)


def test_a_row_has_the_steps_that_all_its_events_have() -> None:
    event = MoveSubject(name="moved", facts=MIGRATE)
    row = event_row(event, "total", "s", [0.5, 0.7])
    phases = [
        PhaseTimes({Phase.COPY: 0.3, Phase.RESTORE: 0.2}),
        PhaseTimes({Phase.COPY: 0.4, Phase.FREEZE: 0.1, Phase.RESTORE: 0.2}),
    ]
    assert with_steps(row, phases).parts == {f"{STEP}copy": (0.3, 0.4), f"{STEP}restore": (0.2, 0.2)}
    assert with_steps(row, []).parts == {}

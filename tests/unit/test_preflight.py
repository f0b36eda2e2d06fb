"""Mistakes that are found before anything starts, and directories that instances would not see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearmetal.environments import Available, Unavailable
from nearmetal.environments.containers.namespaces import Namespaces
from nearmetal.environments.qemu.backend import Qemu
from nearmetal.environments.xen.backend import Xen
from nearmetal.errors import UnavailableError, UsageError
from nearmetal.model.environments.guest import GuestSettings
from nearmetal.model.study import Arm, CommandWorkload, Companion, Design, Environment, Placement, Study
from nearmetal.node.progress import NullProgress
from nearmetal.node.survey.available import usable_arms, usable_backends
from nearmetal.node.survey.preflight import require_commands, seen_directories
from nearmetal.testing.fake_host import FakeHost

PLACE = Placement(name="1x1", instances=1, tasks=1)
BOX = Environment(name="box", backend="namespaces", placements=("1x1",))


def study(*argv: str, environment: Environment = BOX) -> tuple[Study, Arm]:
    return (
        Study(
            name="s",
            question="",
            environments=(environment,),
            placements=(PLACE,),
            workloads=(CommandWorkload(name="app", argv=argv),),
            design=Design(baselines=("box",), margin=0.03, confidence=0.95, seed=1),
        ),
        Arm(environment=environment, placement=PLACE),
    )


def program(directory: Path, mode: int = 0o755) -> Path:
    path = directory / "app"
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_a_program_has_to_be_there_and_to_be_executable(tmp_path: Path) -> None:
    asked, arm = study("./app")
    with pytest.raises(UsageError, match=r"there is no \./app"):
        require_commands([arm], asked, FakeHost(), tmp_path)
    program(tmp_path, 0o644)
    with pytest.raises(UsageError, match="cannot be executed"):
        require_commands([arm], asked, FakeHost(), tmp_path)
    program(tmp_path)
    require_commands([arm], asked, FakeHost(), tmp_path)


def test_programs_of_images_and_disks_are_not_looked_for_on_this_machine(tmp_path: Path) -> None:
    for environment in (replace(BOX, image="debian-mpi"), replace(BOX, guest=GuestSettings(disk="/d.img"))):
        asked, arm = study("./app", environment=environment)
        require_commands([arm], asked, FakeHost(), tmp_path)


def test_a_directory_that_every_instance_has_for_itself_cannot_be_shared() -> None:
    asked, arm = study("./app", environment=replace(BOX, image="debian-mpi"))
    with pytest.raises(UsageError, match="instances have a /tmp of their own"):
        require_commands([arm], asked, FakeHost(), Path("/tmp"))
    assert seen_directories(asked, arm, Path("/tmp")) == ()


def test_instances_have_the_working_directory_where_they_would_not_see_it_or_could_not_write(
    tmp_path: Path,
) -> None:
    program(tmp_path)
    asked, arm = study("./app")
    home = Path("/home/me/work")
    assert seen_directories(asked, arm, home) == (home,)
    assert seen_directories(asked, arm, home, virtual=True) == ()
    below = Path("/tmp") in tmp_path.parents
    assert seen_directories(asked, arm, tmp_path, virtual=True) == ((tmp_path,) if below else ())
    other, in_image = study("./app", environment=replace(BOX, image="debian-mpi"))
    assert seen_directories(other, in_image, home, virtual=True) == (home,)


def test_a_baseline_that_cannot_run_is_named_with_its_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend, reason in ((Qemu, "no QEMU"), (Namespaces, "no namespaces")):
        answer = Unavailable(reason=reason, remedy="install it")
        monkeypatch.setattr(backend, "check", lambda *_, answer=answer: answer)
    asked, _ = study("./app")
    vm = Environment(name="vm", backend="qemu", image="own", placements=("1x1",))
    machine: Any = SimpleNamespace(host=FakeHost(), tools=None, cpus=(0,), cores=1)
    with pytest.raises(UnavailableError, match="the baseline box cannot run here: no namespaces; install it"):
        usable_arms(machine, replace(asked, environments=(vm, BOX)), NullProgress())


def test_the_backend_of_a_companion_is_checked_beside_guests_on_another_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Xen, "check_environment", lambda *_: Available(version="Xen 4.19"))
    monkeypatch.setattr(Namespaces, "check", lambda *_: Available(version="Linux 6.18"))
    beside = Companion(argv=("vmstat", "1"), backend="namespaces")
    vm = Environment(name="vm", backend="xen", image="own", beside=beside, placements=("1x1",))
    machine: Any = SimpleNamespace(host=FakeHost(), tools=None)
    found = usable_backends(machine, replace(study("./app")[0], environments=(vm,)), NullProgress())
    assert set(found.backends) == {"xen", "namespaces"} and found.elsewhere == {"vm": None}

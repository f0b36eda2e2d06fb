"""A QEMU that is killed in the middle of a run: its trial fails with the cause, and the study goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.blocks import run_one
from tests.contract.guests import NEEDED, kernel
from tests.system.test_program_faults import running

from nearmetal.host import LocalHost
from nearmetal.host.leftovers import find
from nearmetal.host.lock import machine_lock
from nearmetal.host.processes import labelled as processes
from nearmetal.model.environments.guest import MIB, GuestSettings
from nearmetal.model.record import Status
from nearmetal.model.study import Attachment, CommandWorkload, Design, Environment, Placement, Study
from nearmetal.node.arms.running_arm import RunningArm
from nearmetal.node.guests import guests_among
from nearmetal.node.machine import new_label, prepare_machine
from nearmetal.node.node import open_node
from nearmetal.node.progress import NullProgress
from nearmetal.node.survey.accelerator import with_accelerators
from nearmetal.node.survey.available import usable_arms

pytestmark = [pytest.mark.more, *NEEDED]
SLEEPS = 3600
UNLIKE_ANY = f"{SLEEPS}.{os.getpid()}"

STUDY = Study(
    name="killed",
    question="",
    environments=(
        Environment(name="native", backend="native", placements=("1x1",), workloads=("short",)),
        Environment(
            name="vm",
            backend="qemu",
            attachment=Attachment.NONE,
            placements=("1x1",),
            guest=GuestSettings(memory=256 * MIB, boot_timeout=1800),
        ),
    ),
    placements=(Placement(name="1x1", instances=1, tasks=1),),
    workloads=(
        CommandWorkload(name="short", argv=("true",)),
        CommandWorkload(name="long", argv=("sleep", UNLIKE_ANY)),
    ),
    design=Design(baselines=("native",), margin=0.03, confidence=0.95, seed=1, warm_up=0),
)


def test_a_qemu_that_is_killed_fails_its_trial_alone_and_the_next_block_has_new_guests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what is in the working directory is copied into guests
    assert kernel()
    machine, study = with_accelerators(prepare_machine(LocalHost(), NullProgress()), STUDY, NullProgress())
    arms, backends, absent = usable_arms(machine, study, NullProgress())
    assert len(arms) == 2, absent
    label = new_label()
    killed: list[int] = []
    times: list[float] = []

    def kill_soon(standing: Sequence[RunningArm]) -> None:
        guests = [s for s in standing if guests_among(s.instances)]
        if not guests:
            return  # the guest did not boot: its record says why
        (vm,) = guests
        pid = processes.descendant(vm.instances[0].pid, "qemu-system-x86") or vm.instances[0].pid
        killed.append(pid)

        def kill() -> None:
            while not running(UNLIKE_ANY):
                time.sleep(0.1)
            time.sleep(1)  # until it is in the guest
            times.append(time.monotonic())
            os.kill(pid, signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()

    with (
        machine_lock(label, command="pytest", force=True),
        open_node(machine, study, backends, label, NullProgress()) as session,
    ):
        first = {r.arm: r for r in run_one(session, audit=kill_soon)}
        assert killed, first["vm/1x1"].reason
        assert times and time.monotonic() - times[0] < SLEEPS / 2, (
            "it does not wait for what can no longer come"
        )
        assert not Path(f"/proc/{killed[0]}/exe").exists()
        only = replace(study, workloads=study.workloads[:1])
        second = {r.arm: r for r in run_one(replace(session, study=only), 2)}
    assert first["native/1x1"].status is Status.OK, first["native/1x1"].reason
    lost = first["vm/1x1"]
    assert lost.status is Status.FAILED
    assert "long: " in lost.reason and "guest" in lost.reason, lost.reason
    assert {name: r.reason for name, r in second.items()} == {"native/1x1": "", "vm/1x1": ""}
    assert find(label) == ()

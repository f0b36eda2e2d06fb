"""KVM and control groups of version 2 for real, nested: a machine that is emulated with the extensions of a
processor, in which our probe, our check, our own start of a guest and containers under limits run. For
function alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.nested.carried import make_carried
from tests.nested.machine import outer_machine
from tests.nested.parts import Parts

pytestmark = pytest.mark.more

HERE = Path(__file__).parent


def test_a_guest_by_kvm_and_limits_by_control_groups_of_version_2(parts: Parts, tmp_path: Path) -> None:
    files = {
        "tools": parts.tools.directory,
        "initramfs": parts.base.initramfs,
        "root.erofs": parts.base.root or Path(),
        "kvm_inside.py": HERE / "kvm_inside.py",
        "limits_inside.py": HERE / "limits_inside.py",
        "tests/contract/burning.py": HERE.parent / "contract" / "burning.py",
    }
    carried, machine = tmp_path / "carried", tmp_path / "machine"
    carried.mkdir()
    machine.mkdir()
    disk = make_carried(carried, ("qemu", "msgspec"), files)
    with outer_machine(machine, xen=False, carried=disk) as outer:
        argv = ["python3", "/carried/kvm_inside.py", "/carried", f"/boot/{parts.base.kernel.name}"]
        env = {"PYTHONPATH": "/carried/src:/carried/site:/carried"}
        done = outer.ssh.run(argv, timeout=600, env=env)
        argv = ["python3", "/carried/limits_inside.py", "/carried/tools"]
        limited = outer.ssh.run(argv, timeout=600, env=env)
    assert done.ok, done.stderr[-3000:]
    assert limited.ok, limited.stderr[-3000:]
    found = json.loads(done.stdout)
    print(found["probe"])
    assert found["probe"]["works"], found["probe"]
    assert not any("no KVM" in note for note in found["check"]["notes"])
    assert found["hostname"] == "nminner\n"
    assert "Hypervisor detected: KVM" in found["messages"]
    assert " svm" in found["processor"] or "hypervisor" in found["processor"]
    assert found["exits"]["exits"] > 100 and found["exits"]["io_exits"] > 0, found["exits"]
    assert found["phases"]["first_instruction"] > 0
    got = json.loads(limited.stdout)
    read_back = got["read_back"]
    assert got["parents"]["unified"], got["parents"]
    assert read_back["quarter"]["cpu_quota"] == pytest.approx(0.25)
    # The kernel ends a quota at a tick of its clock, and an emulated machine on a busy one loses ticks.
    assert 0.1 < got["quarter"] < 0.6, got
    assert read_back["heavy"]["cpu_shares"] == pytest.approx(1024, rel=0.05)
    assert got["heavy"] > 2 * got["light"] > 0, got
    assert read_back["small"]["memory"] == 128 << 20
    assert got["modest"] == 0 and got["greedy"] in (-9, 137), got
    assert got["left"] == []

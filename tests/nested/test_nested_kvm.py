"""KVM for real, nested: a machine that is emulated with the extensions of a processor, in which our probe,
our check and our own start of a guest run. For function alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.nested.carried import make_carried
from tests.nested.machine import outer_machine
from tests.nested.parts import Parts

pytestmark = pytest.mark.timeout(900)  # everything is emulated

HERE = Path(__file__).parent


def test_a_guest_by_kvm_where_the_processor_runs_it(parts: Parts, tmp_path: Path) -> None:
    files = {
        "tools": parts.tools.directory,
        "initramfs": parts.base.initramfs,
        "root.erofs": parts.base.root or Path(),
        "kvm_inside.py": HERE / "kvm_inside.py",
    }
    carried, machine = tmp_path / "carried", tmp_path / "machine"
    carried.mkdir()
    machine.mkdir()
    disk = make_carried(carried, ("qemu",), files)
    with outer_machine(machine, xen=False, carried=disk) as outer:
        argv = ["python3", "/carried/kvm_inside.py", "/carried", f"/boot/{parts.base.kernel.name}"]
        done = outer.ssh.run(argv, timeout=240, env={"PYTHONPATH": "/carried/src:/carried/site"})
    assert done.ok, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["probe"]["works"], found["probe"]
    assert not any("no KVM" in note for note in found["check"]["notes"])
    assert found["hostname"] == "nminner\n"
    assert "Hypervisor detected: KVM" in found["messages"]
    assert " svm" in found["processor"] or "hypervisor" in found["processor"]
    assert found["exits"]["exits"] > 100 and found["exits"]["io_exits"] > 0, found["exits"]
    assert found["phases"]["first_instruction"] > 0

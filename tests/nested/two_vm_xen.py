"""The study of 2009 with guests of a real Xen, on an emulated dom0: two guests with a task each against one
with both, counted by the guests' own kernels. For function alone; minutes long, so not among the usual
tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.nested.inside import booted, built_image, carried_disk, nearmetal

from nearmetal.environments.xen.xl import Xl

NAME, IMAGE = "two-vm-scenarios-2009", "debian-lammps"
pytestmark = [pytest.mark.more, pytest.mark.timeout(7200)]  # everything is emulated


def test_the_study_of_2009_runs_in_guests_of_xen(tmp_path: Path) -> None:
    image = built_image(IMAGE)
    carry, machine = tmp_path / "carry", tmp_path / "machine"
    carry.mkdir()
    machine.mkdir()
    disk = carried_disk(carry, image, {})
    words = ["run", NAME, "--backend", "xen", "--only", "scenarios", "--seed", "7", "--max-blocks", "1"]
    with booted(machine, disk, image, xen=True) as dom0:
        told = json.loads(nearmetal(dom0, [*words, "--time", "50m", "--json"], timeout=3300))
        assert not [d.name for d in Xl(dom0.ssh).domains() if d.name.startswith("nearmetal-")]
    (part,) = told["parts"]
    assert part["result"]["failed_trials"] == 0, part
    arms = {f["arm"]: f for f in part["instances"]}
    assert list(arms) == ["one-vm/1x2", "two-vms/2x1", "bare/1x2"]
    assert len(arms["two-vms/2x1"]["instances"]) == 2
    for arm in ("one-vm/1x2", "two-vms/2x1"):
        node = arms[arm]["node"]
        assert {"user", "system", "wait", "idle"} <= set(node) and node["user"] > 0.05, arms
    assert any("emulated: " in text for text in part["result"]["warnings"])

"""Virtual machines from the command line: measured, labelled where they are emulated, and gone again."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from tests.contract.guests import NEEDED, kernel
from tests.system.test_quick import left_behind, nearmetal, trial_lines

pytestmark = [pytest.mark.more, *NEEDED]

STUDY = """\
name: guests
environments:
  native: {backend: native, workloads: [pingpong, copies, exec, density], placements: [1x2]}
  vm:
    backend: qemu
    attachment: veth-bridge
    network: {mtu: 1400, rto_min: 4 ms}
    workloads: [pingpong, copies, exec, density]
    placements: [2x1]
    guest: {memory: 384 MiB, boot_timeout: 30 min}
placements:
  1x2: {instances: 1, tasks: 2, cpus_per_task: 1}
  2x1: {instances: 2, tasks: 1, cpus_per_task: 1}
workloads:
  pingpong: {kernel: pingpong}
  copies: {command: [sh, -c, 'echo task'], per_task: true, verify: {regex: '^task$'}}
  exec: {subject: exec, count: 2}
  density: {subject: density, count: 2}
design: {baseline: native, margin: 3 %, slices: 2, seed: 1}
"""


def test_two_guests_are_measured_and_labelled(tmp_path: Path) -> None:
    assert kernel()
    (tmp_path / "s.yaml").write_text(STUDY)
    done = nearmetal("run", "s.yaml", "--max-blocks", "1", "--json", cwd=tmp_path, timeout=1100)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    directory = tmp_path / result["results_dir"]
    lines = {line["arm"]: line for line in trial_lines(tmp_path) if not line["aa"]}
    vm = lines["vm/2x1"]
    assert vm["status"] == "ok", vm
    assert [p["host"] for p in vm["places"]] == ["nm1-0", "nm1-1"] and [p["cpus"] for p in vm["places"]] == [
        [0],
        [0],
    ]
    assert vm["transport"]["seen"] == "TCP connections between ranks"
    assert {"start.firmware", "start.kernel", "start.agent"} <= vm["phases"].keys()
    rows = {(r["workload"], r["metric"]): r for r in vm["rows"]}
    assert {
        ("pingpong", "latency"),
        ("copies", "wall"),
        ("exec", "exec"),
        ("density", "memory"),
    } <= rows.keys()
    assert all(v > 0 for v in rows["exec", "exec"]["values"])
    assert vm["phases"]["start.first_command"] > 0
    seen = vm["facts"]["network.nm1-0"]
    assert {"mtu": 1400, "rto_min": 0.004, "driver": "virtio_net"}.items() <= seen.items()
    assert "Boot times" in (directory / "report.md").read_text()
    assert {"phases", "reboots", "absent"} <= json.loads((directory / "provenance.json").read_text())[
        "boots"
    ].keys()
    assert left_behind(tmp_path) == []
    if "emulation, not virtualisation" not in done.stderr:
        return  # KVM works here
    assert all(c["guest"].startswith("TCG, no KVM: ") for c in result["cells"])
    assert any("is emulated" in w for w in result["warnings"])
    for name in ("report.html", "report.md", "report.tex"):
        text = (directory / name).read_text()
        assert "(TCG, no KVM)" in text and "is emulated" in text, name
    table = list(csv.DictReader(io.StringIO((directory / "report.csv").read_text())))
    assert all(r["guest"].startswith("TCG") for r in table if r["environment"] == "vm")


CONTAINERS = """\
name: containers
environments:
  native: {backend: native, placements: [1x2]}
  vm: {backend: qemu, attachment: none, placements: [1x2], guest: {memory: 384 MiB, boot_timeout: 30 min}}
  boxes:
    backend: namespaces
    inside: vm
    attachment: veth-bridge
    network: {mtu: 1400, rto_min: 4 ms}
    placements: [2x1]
placements:
  1x2: {instances: 1, tasks: 2, cpus_per_task: 1}
  2x1: {instances: 2, tasks: 1, cpus_per_task: 1}
workloads:
  pingpong: {kernel: pingpong}
  copies: {command: [sh, -c, 'echo task'], per_task: true, verify: {regex: '^task$'}}
design: {baseline: native, margin: 3 %, slices: 2, seed: 1}
"""


@pytest.mark.apart
def test_ranks_in_two_containers_of_one_guest_reach_each_other_over_its_bridge(tmp_path: Path) -> None:
    assert kernel()
    (tmp_path / "s.yaml").write_text(CONTAINERS)
    done = nearmetal("run", "s.yaml", "--max-blocks", "1", "--json", cwd=tmp_path, timeout=1800)
    assert done.returncode == 0, done.stderr
    lines = {line["arm"]: line for line in trial_lines(tmp_path) if not line["aa"]}
    boxes = lines["boxes/2x1"]
    assert boxes["status"] == lines["vm/1x2"]["status"] == "ok", boxes
    assert [(p["host"], p["cpus"]) for p in boxes["places"]] == [("nm2-0", [0]), ("nm2-1", [1])]
    assert boxes["transport"]["seen"] == "TCP connections between ranks"
    seen = boxes["facts"]["network.nm2-1"]
    assert {"mtu": 1400, "rto_min": 0.004, "driver": "veth"}.items() <= seen.items()
    assert {r["workload"] for r in boxes["rows"]} == {"pingpong", "copies"}
    network = json.loads((next(tmp_path.glob("results/*")) / "provenance.json").read_text())["network"]
    assert network == {}, "none of it was on the machine"
    assert left_behind(tmp_path) == []


def test_kvm_that_is_required_and_runs_no_guest_ends_with_exit_code_3(tmp_path: Path) -> None:
    checks = json.loads(nearmetal("check", "--json", cwd=tmp_path, timeout=600).stdout)["checks"]
    qemu = next(c for c in checks if c["what"].startswith("qemu"))
    assert qemu["state"] in ("works", "works partly"), qemu
    if "TCG" not in qemu["why"]:
        pytest.skip("KVM runs guests here")
    argv = ["weigh", "native", "qemu", "-w", "npb:ep.S", "--require", "kvm", "--json"]
    done = nearmetal(*argv, cwd=tmp_path, timeout=600)
    assert done.returncode == 3 and "KVM runs no guest here" in done.stderr, done.stderr

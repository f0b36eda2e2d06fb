"""The study of two virtual machine scenarios from the command line, with containers in their place; and a
real guest that counts by its own kernel, with a container inside it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.guests import kernel
from tests.system.test_quick import left_behind, nearmetal, trial_lines

from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.samplers import GUESTS, read_sections

pytestmark = [
    pytest.mark.more,
    pytest.mark.beside,
    pytest.mark.skipif(os.geteuid() != 0, reason="guests and named network namespaces need root"),
]

GUEST = """
name: guest
question: What does a guest count itself?
environments:
  bare: {backend: native, placements: [1x2], storage: {}}
  one:
    backend: qemu
    attachment: none
    placements: [1x2]
    guest: {memory: 384 MiB, writable: 256 MiB, swap: 128 MiB, boot_timeout: 30 min}
    storage: {}
  box:
    backend: namespaces
    inside: one
    attachment: loopback
    workloads: [barrier, start, exec]
    placements: [1x2]
placements:
  1x2: {instances: 1, tasks: 2}
workloads:
  melt: {application: lammps, cells: 8, steps: 20, write_every: 20}
  written: {command: [dd, if=/dev/zero, 'of={storage}/written', bs=64k, count=32, conv=fsync]}
  barrier: {kernel: barrier}
  start: {subject: start, count: 1}
  exec: {subject: exec, count: 1}
design: {baseline: bare, margin: 3 %, instance_counters: true, warm_up: 0, seed: 7}
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert left_behind(tmp_path) == []


def test_containers_stand_in_and_the_papers_figures_beside_them(here: Path) -> None:
    done = nearmetal(
        *("run", "two-vm-scenarios-2009", "--backend", "namespaces", "--only", "scenarios"),
        *("--seed", "7", "--time", "10m", "--max-blocks", "1", "--json"),
        cwd=here,
    )
    assert done.returncode == 0, done.stderr
    form: dict[str, Any] = json.loads(done.stdout)
    (part,) = form["parts"]
    assert part["why"] == "1 round is done, too few for an interval", done.stderr
    assert part["result"]["failed_trials"] == 0, done.stderr
    arms = {f["arm"]: f for f in part["instances"]}
    assert list(arms) == ["one-container/1x2", "two-containers/2x1", "bare/1x2"]
    for arm in arms.values():
        # Both tasks on one CPU: their user and system time fill what others leave of it, and no more than it.
        busy = arm["node"]["user"] + arm["node"]["system"]
        assert 0 < busy < 1.05, arm
        assert set(arm["node"]) == {"user", "system"}, "nobody knows why a container does not run"
    assert len(arms["two-containers/2x1"]["instances"]) == 2
    beside = {b["what"]: b for b in part["published"]}
    assert beside["two virtual machines on each node against one: around"]["ours"]
    assert beside["CPU time of a node user, scenario 1"]["value"] == pytest.approx(
        arms["two-containers/2x1"]["node"]["user"]
    )
    assert beside["CPU time of a node wait, scenario 1"]["value"] is None
    html = (here / form["report"]).read_text().replace("\u00a0", " ")
    assert "A node: here, and in section 4.2" in html and "not reported" in html
    refused = nearmetal("run", "quick", "--backend", "lxc", cwd=here)
    assert refused.returncode == 2 and "--backend is for studies in parts" in refused.stderr
    unknown = nearmetal("run", "two-vm-scenarios-2009", "--backend", "no-such", "--dry-run", cwd=here)
    assert unknown.returncode == 2 and "no backend" in unknown.stderr


def test_a_guest_counts_by_its_own_kernel_and_clock_and_holds_a_container(here: Path) -> None:
    assert kernel()
    (here / "guest.yaml").write_text(GUEST)
    done = nearmetal("run", "guest.yaml", "--max-blocks", "1", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    (directory,) = (here / "results").iterdir()
    trials = {r["arm"]: r for r in trial_lines(here) if not r["aa"]}
    counters: dict[str, dict[str, Any]] = trials["one/1x2"]["counters"]
    (scope,) = [s for s in counters if s.startswith("runs.melt.guest.")]
    guest, machine = counters[scope], counters[scope.replace(".guest.", ".instance.")]
    rows = {(r["workload"], r["metric"]): r["values"] for r in trials["one/1x2"]["rows"]}
    walls = rows["melt", "wall"]
    assert guest["seconds"] >= walls[0]
    # Every kind of time, of two CPUs; a guest without KVM loses ticks, so less than all of it may be counted.
    whole = sum(guest[k] for k in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"))
    assert 0 < whole / (2 * guest["seconds"]) < 1.2
    assert guest["busy"] > 0 and machine["vcpu"] > 0 and machine["vcpu_delay"] >= 0
    # What its vCPUs waited for a CPU is busy to the guest, less the ticks that it lost.
    assert guest["busy"] < 3 * (machine["vcpu"] + machine["vcpu_delay"])
    assert guest["memory_total"] < 384 << 20 and guest["swap_total"] > 120 << 20
    assert guest["memory_active"] and guest["memory_inactive"] and guest["context_switches"] > 0
    (writing,) = [s for s in counters if s.startswith("runs.written.guest.")]
    assert counters[writing]["blocks_out"] > 1 << 20, "2 MiB, to a disk of its own"
    assert 0 < guest["clock_error"] < 10 and abs(guest["clock_drift"]) <= 2 * guest["clock_error"]
    assert not any("guest" in s for s in trials["bare/1x2"]["counters"])
    box = trials["box/1x2"]
    assert [p["host"] for p in box["places"]] == ["nm2-0", "nm2-0"] and box["status"] == "ok"
    assert box["transport"]["seen"] == "TCP connections between ranks", "over a loopback of its own"
    kinds = {(r["workload"], r["metric"]) for r in box["rows"]}
    assert {("barrier", "time"), ("start", "start"), ("exec", "exec")} <= kinds
    assert {"start.copy", "start.spawn", "start.root"} <= box["phases"].keys()
    boot, start = (
        next(r for r in trials[t]["rows"] if r["metric"] == "start") for t in ("one/1x2", "box/1x2")
    )
    assert 0 < start["values"][0] < boot["values"][0], "it started in the guest that stood"
    assert not any(s.startswith("vcpu.") for s in box["counters"]), "what the guest used is not its alone"
    facts = json.loads((directory / "provenance.json").read_text())["parity"]["facts"]
    assert facts["box/1x2"]["kernel"] == facts["one/1x2"]["kernel"] != facts["bare/1x2"]["kernel"]
    kept = directory / "samples" / GUESTS
    (section,) = read_sections(UntrustedDirectory(kept.parent), kept.name)
    assert section.header.trial == trials["one/1x2"]["trial"]
    assert list(section.header.windows) == ["melt", "written"]
    ((begin, end),) = section.header.windows["melt"]
    inside = [s for s in section.samples if begin <= s.monotonic <= end]
    assert (end - begin) / 20 - 1 <= len(inside) <= end - begin + 2, "once a second, if nothing delays it"
    html = (directory / "report.html").read_text()
    assert "What the instances counted" in html and "run delay of vCPUs" in html

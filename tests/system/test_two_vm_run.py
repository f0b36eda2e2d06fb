"""The study of two virtual machine scenarios from the command line, with containers in their place; and a
real guest that counts by its own kernel."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.guests import kernel
from tests.system.test_quick import left_behind, nearmetal, trial_lines

from nearmetal.samplers import GUESTS, read_samples, read_sections

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="guests and named network namespaces need root"),
    pytest.mark.timeout(400),
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
    guest: {memory: 256 MiB, writable: 256 MiB, swap: 128 MiB}
    storage: {}
placements:
  1x2: {instances: 1, tasks: 2}
workloads:
  melt: {application: lammps, cells: 8, steps: 20, write_every: 20}
design: {baseline: bare, margin: 3 %, instance_counters: true, warm_up: 0, max_time: 5 min, seed: 7}
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert left_behind(tmp_path) == []


def test_containers_stand_in_and_the_papers_figures_beside_them(here: Path) -> None:
    done = nearmetal(
        *("run", "two-vm-scenarios-2009", "--backend", "namespaces", "--only", "scenarios"),
        *("--seed", "7", "--time", "5m", "--max-blocks", "1", "--json"),
        cwd=here,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    form: dict[str, Any] = json.loads(done.stdout)
    (part,) = form["parts"]
    assert part["why"] == "1 blocks are done" and part["result"]["failed_trials"] == 0, done.stderr
    arms = {f["arm"]: f for f in part["instances"]}
    assert list(arms) == ["one-container/1x2", "two-containers/2x1", "bare/1x2"]
    for arm in arms.values():
        # Both tasks on one CPU: their user and system time fill it, and no more than it.
        busy = arm["node"]["user"] + arm["node"]["system"]
        assert 0.3 < busy < 1.05, arm
        assert set(arm["node"]) == {"user", "system"}, "nobody knows why a container does not run"
    assert len(arms["two-containers/2x1"]["instances"]) == 2
    beside = {b["what"]: b for b in part["published"]}
    assert beside["two virtual machines on each node against one: around"]["ours"]
    assert beside["CPU time of a node user, scenario 1"]["value"] == pytest.approx(
        arms["two-containers/2x1"]["node"]["user"]
    )
    assert beside["CPU time of a node wait, scenario 1"]["value"] is None
    html = (here / form["report"]).read_text().replace("\u00a0", " ")
    assert "A node: here, and in section 4.2" in html and "not told" in html
    refused = nearmetal("run", "quick", "--backend", "lxc", cwd=here)
    assert refused.returncode == 2 and "--backend belongs to studies in parts" in refused.stderr
    unknown = nearmetal("run", "two-vm-scenarios-2009", "--backend", "no-such", "--dry-run", cwd=here)
    assert unknown.returncode == 3 and "no backend" in unknown.stderr


def test_a_guest_counts_by_its_own_kernel_and_clock(here: Path) -> None:
    assert kernel()
    (here / "guest.yaml").write_text(GUEST)
    done = nearmetal("run", "guest.yaml", "--max-blocks", "1", "--json", cwd=here, timeout=300)
    assert done.returncode == 0, done.stderr
    (directory,) = (here / "results").iterdir()
    trials = {r["arm"]: r for r in trial_lines(here) if not r["aa"]}
    counters: dict[str, dict[str, Any]] = trials["one/1x2"]["counters"]
    (scope,) = [s for s in counters if s.startswith("runs.melt.guest.")]
    guest, machine = counters[scope], counters[scope.replace(".guest.", ".instance.")]
    walls = [r["values"][0] for r in trials["one/1x2"]["rows"] if r["metric"] == "wall"]
    assert guest["seconds"] >= walls[0]
    # Every kind of time, of two CPUs; a guest without KVM loses ticks, so less than all of it may be counted.
    whole = sum(guest[k] for k in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"))
    assert 0.4 < whole / (2 * guest["seconds"]) < 1.2
    assert guest["busy"] > 0 and machine["vcpu"] > 0 and machine["vcpu_delay"] >= 0
    assert 0.3 < guest["busy"] / machine["vcpu"] < 3
    assert guest["memory_total"] < 256 << 20 and guest["swap_total"] > 120 << 20
    assert guest["memory_active"] and guest["memory_inactive"] and guest["context_switches"] > 0
    assert guest["blocks_out"] > 0, "it writes to a disk of its own"
    assert 0 < guest["clock_error"] < 0.05 and abs(guest["clock_drift"]) < 0.05
    assert not any("guest" in s for s in trials["bare/1x2"]["counters"])
    kept = directory / "samples" / GUESTS
    (section,) = read_sections(kept)
    assert section.header.trial == trials["one/1x2"]["trial"] and list(section.header.windows) == ["melt"]
    ((begin, end),) = section.header.windows["melt"]
    inside = [s for s in read_samples(kept).samples if begin <= s.monotonic <= end]
    assert len(inside) >= int(end - begin) - 1, "once a second"
    html = (directory / "report.html").read_text()
    assert "What the instances counted" in html and "run delay of vCPUs" in html

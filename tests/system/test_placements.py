"""Placements, limits, storage, companions and events of instances from the command line."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.page import Page
from tests.system.test_quick import left_behind, nearmetal, trial_lines

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(os.geteuid() != 0, reason="limits and mounted storage need root"),
]

BURN = (
    "import os, sys; place = os.environ['NEARMETAL_STORAGE']; assert place == sys.argv[1]; "
    "open(f'{place}/{os.getpid()}', 'wb').write(bytes(1 << 20)); sum(range(300000)); print('place', place)"
)
WATCHED = """\
  watched: # by a command in its own instance
    backend: namespaces
    placements: [1x2]
    storage: {kind: tmpfs, size: 16 MiB}
    beside: {command: [sh, -c, 'readlink /proc/self/ns/mnt; while :; do sleep 0.1; done']}
"""
PLAIN = """\
name: packed
environments:
  native: {backend: native, storage: {}, placements: [1x2, 1x4]}
  box:
    backend: namespaces
    attachment: veth-bridge
    placements: [1x2, 2x1, 4x1]
    storage: {kind: tmpfs, size: 16 MiB}
    limits: {cpu: 90 %, cpu_shares: 512, memory: 256 MiB}
    beside: {backend: namespaces, command: [sh, -c, 'while :; do :; done'], limits: {cpu: 10 %}}
WATCHEDplacements:
  1x2: {instances: 1, tasks: 2, pinning: instance}
  2x1: {instances: 2, tasks: 1}
  1x4: {instances: 1, tasks: 4, oversubscribe: true}
  4x1: {instances: 4, tasks: 1, oversubscribe: true}
workloads:
  burn:
    command: [python3, -c, "BURN", '{storage}']
    per_task: true
    metrics: {}
    verify: {regex: '^place /'}
  mpi: {command: [true], mpi: true}
design: {baseline: native, mode: plain, warm_up: 0}
""".replace("BURN", BURN).replace("WATCHED", WATCHED)
EVENTS = """\
name: events
environments:
  native: {backend: native, placements: [1x2]}
  box: {backend: namespaces, attachment: veth-bridge, placements: [2x1]}
placements:
  1x2: {instances: 1, tasks: 2}
  2x1: {instances: 2, tasks: 1}
workloads:
  start: {subject: start}
  stop: {subject: stop, count: 3}
  exec: {subject: exec, count: 4}
  idle: {subject: density, matrix: {count: [1, 5]}}
design: {baseline: native, slices: 2}
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert left_behind(tmp_path) == []


def run(here: Path, study: str) -> dict[str, Any]:
    (here / "study.yaml").write_text(study)
    done = nearmetal("run", "study.yaml", "--max-blocks", "1", "--seed", "5", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_packed_limited_and_with_a_companion(here: Path) -> None:
    result = run(here, PLAIN)
    cells = {(c["arm"], c["metric"]): c for c in result["cells"] if c["workload"] == "burn"}
    for arm in ("box/1x2", "box/2x1", "box/4x1"):
        assert {("wall"), ("instance_wall")} <= {metric for own, metric in cells if own == arm}
        wall, own = cells[arm, "wall"]["value"]["centre"], cells[arm, "instance_wall"]["value"]["centre"]
        assert 0 < own <= wall
    records = {r["arm"]: r for r in trial_lines(here)}
    assert all(r["status"] == "ok" for r in records.values())
    four = records["box/4x1"]
    assert sum(key.startswith("burn.instance.") for key in four["phases"]) == 4
    assert four["transport"]["mpi_yield_when_idle"] == "1"
    assert "mpi_yield_when_idle" not in records["box/2x1"]["transport"]
    halves = len(os.sched_getaffinity(0)) // 2
    assert [len(p["cpus"]) for p in records["box/1x2"]["places"]] == [2 * halves] * 2, "those of the instance"
    assert four["counters"]["beside"]["cpu"] > 0
    assert "beside" not in records["native/1x4"]["counters"]
    inside = records["watched/1x2"]
    assert "beside" not in inside["counters"], "its time is that of the instance"
    told = here / result["results_dir"] / "logs" / "1.watched~1x2" / "beside.stdout.txt"
    own = {p["namespaces"]["mnt"] for p in inside["places"]}
    assert told.read_text() == f"mnt:[{own.pop()}]\n" and not own
    provenance = json.loads((here / result["results_dir"] / "provenance.json").read_text())
    held = {"cpu_quota": 0.9, "cpu_shares": 512, "memory": 256 << 20}
    assert provenance["limits"]["box/2x1"]["found"] == held
    storage = provenance["storage"]
    assert [s["filesystem"] for s in storage["box/2x1"]] == ["tmpfs", "tmpfs"]
    assert storage["native/1x2"][0]["path"].startswith("/var/tmp/nearmetal-")
    page = (here / result["results_dir"] / "report.html").read_text()
    assert "4 containers × 1 task, oversubscribed" in page and "pinned by instance" in page


THREADS = """\
name: threads
environments:
  native: {backend: native}
  box: {backend: namespaces, attachment: none}
placements:
  all: {instances: 1, tasks: 1}
  one: {instances: 1, tasks: 1, cpus_per_task: 1}
workloads:
  ep: {kernel: ep, class: S}
  threads:
    command: [nproc]
    metrics: {cpus: {regex: '(\\d+)', unit: '1', better: higher}}
design: {baseline: native, slices: 2}
"""


def test_a_program_has_all_cpus_of_the_caller_in_every_environment(here: Path) -> None:
    result = run(here, THREADS)
    usable = len(os.sched_getaffinity(0))
    found = {(r["arm"], w["metric"]): w["values"] for r in trial_lines(here) for w in r["rows"]}
    for name in ("native", "box"):
        assert found[f"{name}/all", "cpus"] == [usable] and found[f"{name}/one", "cpus"] == [1]
    cpus = {"ep": 1, "threads": usable}
    assert result["cpus"]["native/all"] == result["cpus"]["box/all"] == cpus, "a kernel has one thread"
    assert result["cpus"]["box/one"] == {"ep": 1, "threads": 1}


def test_events_of_instances(here: Path) -> None:
    result = run(here, EVENTS)
    found = {(c["workload"], c["metric"]) for c in result["cells"]}
    assert found >= {
        ("start", "start"),
        *(("stop", metric) for metric in ("stop", "removed")),
        ("exec", "exec"),
        *((f"idle-{n}", metric) for n in (1, 5) for metric in ("start_all", "memory", "density")),
    }
    rows = {(r["arm"], w["workload"], w["metric"]): w for r in trial_lines(here) for w in r["rows"]}
    for arm in ("native/1x2", "box/2x1"):
        assert len(rows[arm, "start", "start"]["values"]) == 2
        assert len(rows[arm, "stop", "stop"]["values"]) == 3
        assert len(rows[arm, "exec", "exec"]["values"]) == 4
        stop, removed = (rows[arm, "stop", metric]["values"] for metric in ("stop", "removed"))
        assert all(0 < s <= r for s, r in zip(stop, removed, strict=True))
    page = Page((here / result["results_dir"] / "report.html").read_text())
    assert "Share of commands that took at most this long" in page.text


STORED = """\
name: stored
environments:
  native: {backend: native, storage: {}, placements: [emulated]}
  box:
    backend: namespaces
    attachment: veth-bridge
    placements: [emulated]
    storage: {kind: loop, size: 8 MiB}
placements:
  emulated: {nodes: 2, instances: 1, tasks: 1}
workloads:
  write:
    command: [dd, if=/dev/zero, 'of={storage}/data', bs=1M, count=2]
    per_task: true
design: {baseline: native, mode: plain, warm_up: 0}
"""


def test_every_emulated_node_has_a_storage_of_its_own(here: Path) -> None:
    result = run(here, STORED)
    assert {c["workload"] for c in result["cells"]} == {"write"}
    provenance = json.loads((here / result["results_dir"] / "provenance.json").read_text())
    storage = provenance["storage"]
    assert [s["filesystem"] for s in storage["box/emulated"]] == ["ext4", "ext4"]
    for arm in ("native/emulated", "box/emulated"):
        assert len({s["path"] for s in storage[arm]}) == 2, storage


def test_a_companion_that_fails_is_a_failed_trial_with_its_words(here: Path) -> None:
    study = PLAIN.replace(WATCHED, "").replace("while :; do :; done", "echo lost its target >&2; exit 3")
    study = study.replace("placements: [1x2, 1x4]", "placements: [1x2]").replace("[1x2, 2x1, 4x1]", "[1x2]")
    (here / "study.yaml").write_text(study.replace("place = os", "import time; time.sleep(2); place = os"))
    done = nearmetal("run", "study.yaml", "--max-blocks", "1", "--seed", "5", cwd=here)
    assert "companion: sh ended with 3: lost its target" in done.stdout + done.stderr
    assert done.returncode == 4

"""Placements over machines that are reached by ssh: ranks on both of them, bare and in containers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import labelled
from tests.patience import until
from tests.system.engine_runs import FORCE, NEARMETAL, directory, records
from tests.system.hosts import Hosts, hosts

from nearmetal.host.outside import SHORT_PARENT

pytestmark = [pytest.mark.apart]
STUDY = """\
name: two-nodes
question: What does a container cost between two machines?
environments:
  native: {{backend: native, attachment: host}}
  namespaces: {{backend: namespaces, attachment: host}}
placements:
  2x1x1: {{nodes: 2, instances: 1, tasks: 1}}
workloads:
  latency: {{kernel: pingpong, bytes: 8 B, measure: latency}}
  program:
    command: [sh, -c, 'test "$SECRET$UCX_OF_HEAD-$WANTED-$OMPI_COMM_WORLD_SIZE" = "-given-2"']
    mpi: true
    env: {{WANTED: given}}
design:
  baseline: native
  mpi: openmpi
  slices: 2
  target_width: 0.01 % # never reached, so that only a number of rounds ends a run
  nodes: {{inventory: {inventory}, interface: eth0}}
"""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("hosts"), ("node1", "node2")) as found:
        yield found


def on_head(machines: Hosts, cwd: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [*machines.enter, *NEARMETAL, *words]
    return subprocess.run(
        argv, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=900, check=False
    )


def test_ranks_on_two_machines(machines: Hosts, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(STUDY.format(inventory=machines.inventory))
    words = ("run", "two.yaml", "--seed", "3", "--json", "--max-blocks", "8", *FORCE)
    written = (tmp_path / "two.yaml").stat().st_mtime_ns
    done = on_head(machines, tmp_path, *words, SECRET="of-the-head", UCX_OF_HEAD="1")
    assert done.returncode == 0, done.stderr
    found = records(tmp_path)
    assert {r["status"] for r in found} == {"ok"}, [r.get("reason") for r in found]
    assert {r["arm"] for r in found} == {"native/2x1x1", "namespaces/2x1x1"}
    assert (tmp_path / "two.yaml").stat().st_mtime_ns == written, "what the machines share is not copied"
    places: Any = {tuple(p["host"] for p in r["places"]) for r in found if r["arm"].startswith("native")}
    assert places == {("node1", "node2")}
    assert {r["transport"]["seen"] for r in found} == {"TCP connections between ranks"}
    bare, boxed = ({n["mnt"] for n in namespaces(found, arm)} for arm in ("native", "namespaces"))
    assert len(bare) == 2 and len(boxed) >= 2 and not bare & boxed, "each container has a root of its own"
    assert "node_kind: machine" in (directory(tmp_path) / "study.yaml").read_text()
    result = json.loads(done.stdout)
    assert result["blocks"] == 8
    report = (directory(tmp_path) / "report.md").read_text()
    assert "2 nodes × 1 task" in report and "emulated" not in report
    known = json.loads((directory(tmp_path) / "provenance.json").read_text())["machines"]
    assert known.keys() == {"node1", "node2"} and known["node1"]["cpu"]["usable"] == [0]
    again = on_head(machines, tmp_path, "resume", "--max-blocks", "10", "--json", *FORCE)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["blocks"] == 10


def namespaces(found: list[Any], environment: str) -> list[dict[str, int]]:
    """Of all ranks of an environment."""
    return [p["namespaces"] for r in found if r["arm"].startswith(f"{environment}/") for p in r["places"]]


def test_a_running_run_is_known_on_its_nodes(machines: Hosts, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(STUDY.format(inventory=machines.inventory))
    argv = [*machines.enter, *NEARMETAL, "run", "two.yaml", "--max-blocks", "3000", *FORCE]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        until(lambda: len(records(tmp_path)) > 3)
        before = len(records(tmp_path))
        label = records(tmp_path)[0]["run"]
        for node in ("node1", "node2"):  # as a user of the node would, who knows nothing of this machine
            words = (*machines.ssh(node), *NEARMETAL, "clean", "--json")
            removed = subprocess.run(words, check=True, capture_output=True, text=True, timeout=100).stdout
            assert label not in removed
        done = on_head(machines, tmp_path, "clean", "--nodes", str(machines.inventory), "--json")
        assert label not in done.stdout
        until(lambda: len(records(tmp_path)) > before + 3)
        run.send_signal(signal.SIGINT)
    assert {r["status"] for r in records(tmp_path)} == {"ok"}
    words = ("clean", "--nodes", str(machines.inventory), "--json", "--dry-run")
    after = json.loads(on_head(machines, tmp_path, *words).stdout)["nodes"]
    assert not any(label in item["name"] for node in after.values() for item in node["found"])


def test_a_program_that_was_compiled_anew_is_measured(machines: Hosts, tmp_path: Path) -> None:
    """The machines share /tmp, but each has a /run of its own."""
    program = Path(f"/run/nearmetal-test-{os.getpid()}/bin/program")
    study = STUDY.format(inventory=machines.inventory).replace("WANTED: given", "WANTED: {wanted}")
    command = '[sh, -c, \'test "$SECRET$UCX_OF_HEAD-$WANTED-$OMPI_COMM_WORLD_SIZE" = "-given-2"\']'
    latency = "  latency: {kernel: pingpong, bytes: 8 B, measure: latency}\n"
    assert command in study and latency in study
    study = study.replace(command, f"[{program}]").replace(latency, "")
    program.parent.mkdir(parents=True)
    try:
        for wanted in ("first", "second"):
            program.write_text(f"#!/bin/sh\ntest $WANTED = {wanted}\n")
            program.chmod(0o755)
            place = tmp_path / wanted
            place.mkdir()
            (place / "two.yaml").write_text(study.replace("{wanted}", wanted))
            done = on_head(machines, place, "run", "two.yaml", "--max-blocks", "8", *FORCE)
            assert done.returncode == 0, done.stderr
            assert {r["status"] for r in records(place)} == {"ok"}
            for node in ("node1", "node2"):
                ls = subprocess.run([*machines.ssh(node), "ls", "/run"], check=True, capture_output=True)
                assert b"nearmetal-test" not in ls.stdout, "the copy is removed"
    finally:
        shutil.rmtree(program.parent.parent)


def test_a_killed_run_ends_its_ranks_and_clean_removes_its_files(machines: Hosts, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(STUDY.format(inventory=machines.inventory))
    argv = [*machines.enter, *NEARMETAL, "run", "two.yaml", "--max-blocks", "3000", *FORCE]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        until(lambda: len(records(tmp_path)) > 3)
        label = records(tmp_path)[0]["run"]
        run.send_signal(signal.SIGKILL)
    until(lambda: not labelled(label), "the end of all processes of the run")
    words = ("clean", "--nodes", str(machines.inventory), "--json")
    seen = json.loads(on_head(machines, tmp_path, *words, "--dry-run").stdout)["nodes"]
    for node in ("node1", "node2"):
        assert ("scratch directory", label) in [(i["kind"], i["name"]) for i in seen[node]["found"]]
    done = on_head(machines, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert on_head(machines, tmp_path, "clean").returncode == 0
    after = json.loads(on_head(machines, tmp_path, *words, "--dry-run").stdout)["nodes"]
    assert not any(label in item["name"] for node in after.values() for item in node["found"])
    assert not list(SHORT_PARENT.glob(f"{label}*")), "the sockets of ssh are gone too"


def test_a_node_that_cannot_be_used_is_named(machines: Hosts, tmp_path: Path) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text(
        machines.inventory.read_text().replace("ssh_config", "  node3: {address: 10.231.77.99}\nssh_config")
    )
    study = STUDY.format(inventory=file).replace("interface: eth0", "names: [node1, node3]")
    (tmp_path / "two.yaml").write_text(study)
    done = on_head(machines, tmp_path, "run", "two.yaml", "--max-blocks", "8", *FORCE)
    assert done.returncode == 3 and "node node3: no connection to" in done.stderr
    (tmp_path / "two.yaml").write_text(STUDY.format(inventory=file).replace("eth0", "eth7"))
    done = on_head(machines, tmp_path, "run", "two.yaml", "--max-blocks", "8", *FORCE)
    assert done.returncode == 3 and "node node1 has no address on an interface eth7" in done.stderr
    assert not (tmp_path / "results").exists()

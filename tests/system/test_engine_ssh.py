"""Workers by ssh, on nodes that are this machine under names of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.patience import until
from tests.system.engine_runs import (
    EXAMPLES,
    FORCE,
    STUDY,
    claims,
    directory,
    here,
    nearmetal,
    on,
    records,
    require_whole,
    started,
    worker_of,
)
from tests.system.sshd import daemons

from nearmetal.records import ResultsDirectory

pytestmark = [pytest.mark.more]
__all__ = ["here"]
PLANTED = "6.1.0-planted"


@dataclass(frozen=True)
class Daemon:
    """config: a configuration of ssh that names n1 and n2; known: its known_hosts."""

    config: Path
    known: Path

    @property
    def options(self) -> list[str]:
        return ["--engine-option", "hosts=n1,n2", "--engine-option", f"config={self.config}"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("sshd")
    with daemons(place, {"n1": "", "n2": ""}) as config:
        yield Daemon(config, place / "known")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A configuration of ssh that names node1 to node3. The third has another kernel, as far as one can see,
    and a fourth does not answer."""
    place = tmp_path_factory.mktemp("three")
    (place / "osrelease").write_text(f"{PLANTED}\n")
    planted = f"mount --bind {place}/osrelease /proc/sys/kernel/osrelease"
    with daemons(place, {"node1": "", "node2": "", "node3": planted}, silent=("node4",)) as config:
        yield config


def inventory(text: str, config: Path, place: Path) -> Path:
    """Write an inventory that uses a configuration of ssh."""
    file = place / "nodes.yaml"
    file.write_text(f"{text}\nssh_config: {config}\n")
    return file


def nodes_of(cwd: Path) -> dict[str, Any]:
    """The descriptions of the workers' machines, by name of the node."""
    found = [json.loads(p.read_text()) for p in (directory(cwd) / "nodes").glob("*.json")]
    return {node["node"]: node for node in found}


def rounds_by_node(cwd: Path) -> Counter[str]:
    names = {node["run"]: name for name, node in nodes_of(cwd).items()}
    return Counter(names[run] for _, _, run in claims(cwd, "done"))


def test_rounds_by_ssh_on_the_nodes_of_an_inventory(here: Path, daemon: Daemon) -> None:
    file = inventory("nodes:\n  n[1-2]: {}", daemon.config, here)
    words = [w for w in on("ssh", 8, "--nodes", str(file)) if w not in ("--workers", "2")]
    done = nearmetal(*words, cwd=here)
    assert done.returncode == 0, done.stderr
    require_whole(here, done.stdout, 8)
    nodes = nodes_of(here)
    assert nodes.keys() == {"n1", "n2"} and all("parity" in node for node in nodes.values())
    counts = rounds_by_node(here)
    assert abs(counts["n1"] - counts["n2"]) <= 1, "every node runs as many rounds as the others"
    assert "no differences between the nodes" in done.stderr
    rehearsed = [p for p in (directory(here) / "nodes").glob("*.jsonl") if p.stat().st_size]
    assert len(rehearsed) == 1, "the second node has rehearsed too; the first one's is that of the run"


def test_a_machine_whose_key_is_not_known_is_not_used(here: Path, daemon: Daemon) -> None:
    kept = daemon.known.read_text()
    stranger = daemon.config.with_name("stranger")
    stranger.write_text(
        daemon.config.read_text().replace(str(daemon.known), "/dev/null") + "  ControlPath none\n"
    )
    options = ["--engine-option", "hosts=n1,n2", "--engine-option", f"config={stranger}"]
    for control in Path("/run/nearmetal").glob("ssh-*"):
        control.unlink(missing_ok=True)  # an open connection needs no key
    done = nearmetal(*on("ssh", 8, *options), cwd=here)
    assert done.returncode == 4 and "Host key verification failed" in done.stderr
    assert "n1" in done.stderr and records(here) == [] and daemon.known.read_text() == kept


def running(cwd: Path) -> bool:
    return "running" in nearmetal("status", cwd=cwd).stdout.replace("running now", "")


@pytest.mark.apart
def test_an_interrupted_run_ends_its_workers(here: Path, daemon: Daemon) -> None:
    run = started(*on("ssh", 3000, *daemon.options), cwd=here)
    until(lambda: len(claims(here, "done")) >= 2)
    run.terminate()
    _, said = run.communicate(timeout=600)
    assert run.returncode == 130 and "nearmetal resume" in said
    until(lambda: claims(here, "held") == [], "the workers give their rounds back")
    until(lambda: not running(here), "the workers end")


@pytest.mark.apart
def test_the_rounds_of_a_killed_node_go_to_the_others(here: Path, daemon: Daemon) -> None:
    run = started(*on("ssh", 24, *daemon.options), cwd=here)
    until(lambda: len(claims(here, "done")) >= 4 and claims(here, "held") != [])
    label = nodes_of(here)["n2"]["run"]
    os.kill(worker_of(here, label), signal.SIGKILL)
    output, said = run.communicate(timeout=900)
    assert run.returncode == 0, said
    require_whole(here, output, 24)
    assert rounds_by_node(here)["n1"] > 12
    nearmetal("clean", cwd=here)


@pytest.mark.apart
def test_upper_bounds_are_measured_on_the_node(here: Path, daemon: Daemon) -> None:
    study = STUDY.replace("ep: {kernel: ep, class: S}", "memory: {kernel: stream, elements: 100000}")
    (here / "short.yaml").write_text(study)
    done = nearmetal(*on("ssh", 8, *daemon.options, workers=1), cwd=here)
    assert done.returncode == 0, done.stderr
    (measured,) = nodes_of(here)["n1"]["roofs"]
    assert measured["name"] == "triad" and measured["value"] > 0
    (shown,) = ResultsDirectory.open(directory(here)).roofs()
    assert shown.value == measured["value"] and shown.ranks == 1


@pytest.mark.apart
def test_the_example_of_three_hosts(here: Path, three: Path) -> None:
    file = inventory((EXAMPLES / "hosts.yaml").read_text(), three, here)
    shutil.copy(EXAMPLES / "three-hosts.yaml", here)
    words = (
        "run",
        "three-hosts.yaml",
        "--engine",
        "ssh",
        "--nodes",
        str(file),
        "--max-blocks",
        "9",
        "--json",
    )
    done = nearmetal(*words, *FORCE, cwd=here)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cells"]
    nodes, counts = nodes_of(here), rounds_by_node(here)
    assert nodes.keys() == {"node1", "node2", "node3"}
    assert nodes["node3"]["kernel"]["release"] == PLANTED
    assert min(counts.values()) >= 3 and len(counts) == 3
    lines = [line.removeprefix("note: ") for line in done.stderr.splitlines()]
    first = lines.index("differences between the nodes")
    assert lines[first + 1].split() == ["kernel", os.uname().release, "node[1-2]"]
    assert lines[first + 2].split() == [PLANTED, "node3"]
    assert not any(line.startswith("round ") for line in lines[:first]), "they are shown before round 1"


@pytest.mark.apart
def test_checks_of_all_nodes_show_their_differences_first(tmp_path: Path, three: Path) -> None:
    file = inventory("nodes:\n  node[2-4]: {}", three, tmp_path)
    done = nearmetal("check", "--nodes", str(file), "--json", cwd=tmp_path)
    assert done.returncode == 3, "a node does not answer"
    found = json.loads(done.stdout)
    assert next(iter(found)) == "differences"
    kernel = next(d for d in found["differences"] if d["what"] == "kernel")
    assert kernel["values"] == {os.uname().release: ["node2"], PLANTED: ["node3"]}
    assert "Connection refused" in found["nodes"]["node4"]["reason"]
    assert {c["state"] for c in found["nodes"]["node3"]["checks"] if c["what"] == "kernels"} == {"works"}
    assert "MPI" in found["alike"] and "memory" in found["alike"]


@pytest.mark.apart
def test_what_a_killed_worker_left_is_removed_on_its_node(here: Path, daemon: Daemon) -> None:
    file = inventory("nodes:\n  n[1-2]: {}", daemon.config, here)
    run = started(*on("ssh", 3000, *daemon.options, workers=1), cwd=here)
    until(lambda: len(claims(here, "done")) >= 2)
    label = nodes_of(here)["n1"]["run"]
    os.kill(worker_of(here, label), signal.SIGKILL)
    run.kill()
    run.communicate(timeout=600)
    seen = json.loads(nearmetal("clean", "--nodes", str(file), "--dry-run", "--json", cwd=here).stdout)[
        "nodes"
    ]
    assert any(label in item["name"] for item in seen["n1"]["found"])
    done = nearmetal("clean", "--nodes", str(file), cwd=here)
    assert done.returncode == 0, done.stderr
    assert (
        f"removed  scratch directory  {label}" in done.stdout or f"removed  process  {label}" in done.stdout
    )
    after = json.loads(nearmetal("clean", "--nodes", str(file), "--dry-run", "--json", cwd=here).stdout)[
        "nodes"
    ]
    assert not any(label in item["name"] for node in after.values() for item in node["found"])

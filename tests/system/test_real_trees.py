"""Placements over machines with root trees of their own, made by `nearmetal image build`: MPI ranks on two of
them, and what a killed run leaves there."""

from __future__ import annotations

import json
import secrets
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import labelled
from tests.patience import until
from tests.system.engine_runs import FORCE, NEARMETAL, directory, nearmetal, records
from tests.system.hosts import Hosts, hosts

from nearmetal.host.processes.labelled import LABEL_VARIABLE
from nearmetal.model.plan import nodes_of_block

pytestmark = [pytest.mark.apart]
IMAGE = """\
# A machine of a cluster: sshd, both MPIs, the library of OpenMP and Python.
name: test-node
suite: bookworm
variant: minbase
packages:
  - openssh-server
  - iproute2
  - procps
  - openmpi-bin
  - mpich
  - libgomp1
  - python3
"""
STUDY = """\
name: trees
question: What does a container cost between two machines?
environments:
  native: {{backend: native, attachment: host}}
  namespaces: {{backend: namespaces, attachment: host}}
  networked: {{backend: namespaces, attachment: macvlan}}
placements:
  2x1x1: {{nodes: 2, instances: 1, tasks: 1}}
workloads:
  latency: {{kernel: pingpong, bytes: 8 B, measure: latency}}
design:
  baseline: native
  mpi: {mpi}
  slices: 2
  nodes: {{inventory: {inventory}, names: [{names}], interface: eth0{more}}}
"""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    place = tmp_path_factory.mktemp("trees")
    (place / "node.yaml").write_text(IMAGE)
    done = nearmetal("image", "build", "test-node", "--file", "node.yaml", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    tree = Path(json.loads(done.stdout)["tree"])
    (place / "hosts").mkdir()
    with hosts(place / "hosts", ("node1", "node2", "node3"), tree=tree) as found:
        yield found


def on_head(machines: Hosts, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [*machines.enter, *NEARMETAL, *words]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=900, check=False)


def study(machines: Hosts, mpi: str = "openmpi", names: str = "node1, node2", more: str = "") -> str:
    return STUDY.format(inventory=machines.inventory, mpi=mpi, names=names, more=more)


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_ranks_on_two_machines(machines: Hosts, tmp_path: Path, mpi: str) -> None:
    (tmp_path / "two.yaml").write_text(study(machines, mpi))
    done = on_head(
        machines, tmp_path, "run", "two.yaml", "--seed", "3", "--json", "--max-blocks", "4", *FORCE
    )
    assert done.returncode == 0, done.stderr
    found = records(tmp_path)
    assert {r["status"] for r in found} == {"ok"}, [r.get("reason") for r in found]
    assert {r["arm"] for r in found} == {f"{name}/2x1x1" for name in ("native", "namespaces", "networked")}
    hostnames = {tuple(p["host"] for p in r["places"]) for r in found if r["arm"].startswith("native")}
    assert hostnames == {("node1", "node2")}
    known = json.loads((directory(tmp_path) / "provenance.json").read_text())["machines"]
    assert known.keys() == {"node1", "node2"}
    label = found[0]["run"]
    for node in ("node1", "node2"):
        assert label not in seen(machines, node), "nothing is left"


def test_each_round_uses_a_set_of_machines_that_is_drawn(machines: Hosts, tmp_path: Path) -> None:
    names = ("node1", "node2", "node3")
    text = study(machines, names=", ".join(names), more=", draw: true")
    (tmp_path / "two.yaml").write_text(text)
    done = on_head(
        machines, tmp_path, "run", "two.yaml", "--seed", "3", "--json", "--max-blocks", "6", *FORCE
    )
    assert done.returncode == 0, done.stderr
    found = records(tmp_path)
    assert {r["status"] for r in found} == {"ok"}, [r.get("reason") for r in found]
    for block in range(1, 7):
        wanted = nodes_of_block(block, names, 3)[:2]
        of_block = [r for r in found if r["block"] == block]
        bare = [tuple(p["host"] for p in r["places"]) for r in of_block if r["arm"].startswith("native")]
        assert bare == [wanted] * 2, "the baseline and its A/A run"
        networks = [p["namespaces"]["net"] for r in of_block for p in r["places"]]
        assert len(of_block) == 4 and len(set(networks)) == 4, (
            "two machines, and a network of its own on each"
        )
    assert on_head(machines, tmp_path, "analyze", "--json").returncode == 0


def seen(machines: Hosts, node: str) -> str:
    """What a machine shows of labels: processes, files and network namespaces."""
    script = (
        "cat /proc/[0-9]*/environ | tr '\\0' '\\n'; ls /run/nearmetal /run/netns /dev/shm; "
        "find /sys/fs/cgroup -name 'nearmetal-*'; cat /proc/self/mounts; ip -oneline link show"
    )
    return at(machines, node, script).stdout


def at(machines: Hosts, node: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script on a machine."""
    return subprocess.run([*machines.ssh(node), script], capture_output=True, text=True, check=False)


def test_a_machine_sees_and_cleans_nothing_of_another(machines: Hosts) -> None:
    """Each has processes, mounts, control groups, /run and /dev/shm of its own."""
    label = f"nearmetal-{secrets.token_hex(3)}"
    made = at(
        machines,
        "node1",
        f"""set -e
mkdir -p /run/nearmetal/{label} /dev/shm/{label}
mount -t tmpfs tmpfs /run/nearmetal/{label}
for top in /sys/fs/cgroup/*/; do mkdir -p $top/{label}; done
{LABEL_VARIABLE}={label} setsid sleep 1000 >/dev/null 2>&1 </dev/null & pid=$!
for group in $(find /sys/fs/cgroup -maxdepth 2 -name {label}); do
  for file in cpuset.cpus cpuset.mems; do [ ! -e $group/$file ] || cat $group/../$file >$group/$file; done
  echo $pid >$group/cgroup.procs
done
""",
    )
    assert made.returncode == 0, made.stderr
    before = seen(machines, "node1").count(label)
    assert before >= 5 and label not in seen(machines, "node2")
    words = shlex.join([*NEARMETAL, "clean", "--json"])
    assert label not in at(machines, "node2", words).stdout
    assert seen(machines, "node1").count(label) == before
    done = at(machines, "node1", words)
    assert done.returncode == 0, done.stderr
    kinds = {item["kind"] for item in json.loads(done.stdout)["found"] if item["name"] == label}
    assert kinds == {"process", "mount", "control group", "scratch directory"}
    assert label not in seen(machines, "node1")


def test_clean_on_a_machine_touches_nothing_of_the_others(machines: Hosts, tmp_path: Path) -> None:
    """A run that lives is spared, also by whoever cleans on the node. After kill -9, clean removes it."""
    (tmp_path / "two.yaml").write_text(study(machines))
    argv = [*machines.enter, *NEARMETAL, "run", "two.yaml", "--max-blocks", "3000", *FORCE]
    said = tmp_path / "said"
    with said.open("wb") as out, subprocess.Popen(argv, cwd=tmp_path, stdout=out, stderr=out) as run:
        until(lambda: len(records(tmp_path)) > 3 or run.poll() is not None)
        assert run.poll() is None, said.read_text()
        before, label = len(records(tmp_path)), records(tmp_path)[0]["run"]
        done = at(machines, "node1", shlex.join([*NEARMETAL, "clean", "--json"]))
        assert done.returncode == 0 and label not in done.stdout
        until(lambda: len(records(tmp_path)) > before + 3)
        run.send_signal(signal.SIGKILL)
    until(lambda: not labelled(label), "the end of all processes of the run")
    assert {r["status"] for r in records(tmp_path)} == {"ok"}
    assert label in seen(machines, "node1") and label in seen(machines, "node2")
    words = ("clean", "--nodes", str(machines.inventory), "--json")
    done = on_head(machines, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert on_head(machines, tmp_path, "clean").returncode == 0
    for node in ("node1", "node2"):
        assert label not in seen(machines, node)

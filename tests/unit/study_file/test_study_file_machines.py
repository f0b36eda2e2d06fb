"""Studies over machines: the key nodes of the design, read, written out again, and every mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.study_file.test_study_file_load import problems

from nearmetal.model.design import Estimand
from nearmetal.model.environments.placement import NodeKind
from nearmetal.model.study import Pinning, Placement, RealNodes
from nearmetal.node.cpus import cpus_over_nodes
from nearmetal.node.placement_node import PlacementNode
from nearmetal.report.tables.cells import shape_text
from nearmetal.study_file import Catalog, dump_study, load_text

STUDY = """\
name: machines
environments:
  native: {{backend: native, attachment: host}}
  box: {{backend: namespaces, {box}}}
placements:
  2x1x2: {{nodes: {machines}, instances: {instances}, tasks: 2{place}}}
workloads:
  ep: {{kernel: ep, class: S}}
design: {{baseline: native, nodes: {nodes}{design}}}
"""
NODES = "{inventory: hosts.yaml, names: [n1, n2], interface: ib0}"


def text(
    *,
    box: str = "attachment: host",
    place: str = "",
    machines: int = 2,
    instances: int = 1,
    nodes: str = NODES,
    design: str = "",
    more: str = "",
) -> str:
    return STUDY.format(
        box=box, place=place, machines=machines, instances=instances, nodes=nodes, design=design
    ).replace("  ep: {kernel: ep, class: S}\n", f"  ep: {{kernel: ep, class: S}}\n{more}")


def test_the_nodes_of_a_placement_are_the_machines_that_the_design_names(catalog: Catalog) -> None:
    study = load_text(text(), "s.yaml", catalog, seed=1)
    at = str(Path.cwd() / "hosts.yaml")
    assert study.design.nodes == RealNodes(inventory=at, names=("n1", "n2"), interface="ib0")
    (place,) = study.placements
    assert place.node.remote and not place.node.emulated and place.ranks == 4
    assert [arm.name for arm in study.arms()] == ["native/2x1x2", "box/2x1x2"]
    assert shape_text(place, "native") == "2 nodes × 2 tasks"
    assert load_text(dump_study(study, catalog), "again.yaml", None, seed=1) == study
    emulated = load_text(text(nodes="null", box="attachment: veth-bridge"), "s.yaml", catalog, seed=1)
    assert emulated.placements[0].node.emulated and not emulated.placements[0].node.remote


@pytest.mark.parametrize("source", ["slurm", "slurm:fast", "ldap://h/b", "ldaps://h/b", "hosts", "h.yaml"])
def test_a_study_finds_the_file_of_its_machines_from_any_directory(
    source: str, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    read = load_text(text(nodes=f'{{inventory: "{source}"}}'), "s.yaml", catalog, seed=1)
    frozen = dump_study(read, catalog)
    monkeypatch.chdir("/")
    nodes = load_text(frozen, "study.yaml", None, seed=1).design.nodes
    assert nodes is not None
    assert nodes.inventory == (str(tmp_path / source) if source.startswith("h") else source)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"box": "attachment: ipvlan"}, "attachment: host, macvlan, vxlan, veth-bridge, veth-routed"),
        ({"box": "attachment: vxlan, network: {rate: 1 Gbit/s}"}, "a network has subnet, mtu, rto_min"),
        ({"box": "attachment: macvlan, network: {mode: vepa}"}, "only, not mode"),
        ({"box": "attachment: host, limits: {memory: 1 GiB}"}, "neither limits nor share"),
        ({"box": "attachment: host, storage: {kind: tmpfs}"}, "neither beside nor storage nor movable"),
        ({"place": ", link: {rate: 1 Gbit/s}"}, "machines have links of their own"),
        ({"design": ", reach: ssh"}, "reached by an agent only"),
        ({"design": ", instance_counters: true"}, "no counters are read on machines"),
        ({"design": ", estimand: nodes-like-these"}, "hold for these machines"),
        ({"more": "  start: {subject: start}\n"}, "only kernels, and programs without a directory"),
        ({"nodes": "{names: [n1]}"}, "inventory"),
        ({"nodes": "{inventory: h.yaml, nodes: 2}"}, "unknown key"),
        ({"place": ", cpus: [0, 0, 0, 1]"}, "a CPU given twice"),
        ({"instances": 2}, "a machine holds one instance"),
        ({"instances": 2, "machines": 1}, "a machine holds one instance"),
    ],
)
def test_what_machines_cannot_have_is_a_mistake(fields: dict[str, Any], what: str, catalog: Catalog) -> None:
    assert what in "\n".join(problems(text(**fields), catalog))


def nodes(*cpus: tuple[int, ...]) -> list[PlacementNode]:
    host: Any = None
    return [PlacementNode(local=host, cpus=own) for own in cpus]


def test_each_node_numbers_its_own_cpus(catalog: Catalog) -> None:
    study = load_text(text(place=", cpus: [0, 1, 0, 1]"), "s.yaml", catalog, seed=1)
    assert cpus_over_nodes(study.placements[0], nodes((0, 1), (0, 1))) == ((0,), (1,), (0,), (1,))
    place = Placement(name="p", nodes=2, instances=1, tasks=2, node_kind=NodeKind.MACHINE)
    assert cpus_over_nodes(place, nodes((0, 2, 1, 3), (4, 5))) == ((0,), (2,), (4,), (5,))
    whole = Placement(
        name="p", nodes=2, instances=1, tasks=2, node_kind=NodeKind.MACHINE, pinning=Pinning.INSTANCE
    )
    assert cpus_over_nodes(whole, nodes((0, 2), (4, 5))) == ((0, 2), (0, 2), (4, 5), (4, 5))


def test_a_frozen_study_keeps_what_only_a_new_one_may_not_have(catalog: Catalog) -> None:
    old = text(design=", estimand: nodes-like-these")
    assert "hold for these machines" in "\n".join(problems(old, catalog))
    assert load_text(old, "study.yaml", None, seed=1).design.estimand is Estimand.ALIKE

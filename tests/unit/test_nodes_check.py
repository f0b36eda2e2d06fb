"""What `nearmetal check --nodes` says of nodes that differ, and of those that do not answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nearmetal.api import nodes as api_nodes
from nearmetal.api.checking import ENVIRONMENT, NOT_HERE, WORKS, Check
from nearmetal.api.nodes import NodeCheck, compared, options_of
from nearmetal.cli.machine import clean
from nearmetal.cli.nodes_text import nodes_lines
from nearmetal.errors import ExitCode
from nearmetal.host import Completed
from nearmetal.host.facts.nodes import UNKNOWN, differences, node_facts
from nearmetal.host.lock import RunInfo
from nearmetal.model.inventory import Inventory, InventoryNode

KERNELS = Check(state=WORKS, what="kernels", why="gcc 12, Open MPI 4.1.4")


def machine(**changed: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "cpu": {"model": "AMD EPYC 7713", "usable": [0, 1], "flags": ["fpu", "avx2"]},
        "kernel": {"release": "6.1.0-13", "version": "#1"},
        "settings": {"clock_source": "tsc", "governor": {"unavailable": "no cpufreq"}},
        "memory": {"bytes": 24 << 30},
        "versions": {"mpi": "Open MPI 4.1.4"},
        "mitigations": {"mds": "Not affected", "retbleed": "Mitigation: untrained; SMT off"},
    }
    return {**facts, **changed}


def node(name: str, lxc: str = WORKS, **changed: Any) -> NodeCheck:
    checks = (KERNELS, Check(state=lxc, what="lxc 5.0.2" if lxc == WORKS else "lxc", group=ENVIRONMENT))
    return NodeCheck(name=name, machine=machine(**changed), checks=checks)


DEAD = NodeCheck(
    name="n4",
    machine={},
    checks=(),
    reason="ssh ended with 255: Connection refused",
    remedy="try: ssh n4 true",
)
OTHER = {"kernel": {"release": "6.1.0-18", "version": "#1"}, "memory": {"bytes": 8 << 30}}


def test_differences_come_first_in_aligned_lines_with_the_nodes_that_have_each_value() -> None:
    found = compared([node("n1"), node("n2"), node("n3", NOT_HERE, **OTHER), DEAD])
    assert not found.usable
    text = nodes_lines(found, 100, everything=False)
    assert text[:11] == [
        "4 nodes: 3 answer, 1 does not",
        " n4  ssh ended with 255: Connection refused",
        "     next: try: ssh n4 true",
        "",
        "differences between the nodes",
        " kernel  6.1.0-13     n[1-2]",
        "         6.1.0-18     n3",
        " memory  24 GiB       n[1-2]",
        "         8 GiB        n3",
        " lxc     works 5.0.2  n[1-2]",
        "         not here     n3",
    ]
    assert text[11].startswith("the same on all: kernel build, kernel options, CPU model, ")
    assert text[13].startswith(" n1  AMD EPYC 7713, 2 cores, 24 GiB, Linux 6.1, Open MPI 4.1.4; 2 of 2 work")
    assert text[15].endswith("; 1 of 2 work") and all(len(line) <= 100 for line in text)
    whole = nodes_lines(found, 100, everything=True)
    assert any("gcc 12, Open MPI 4.1.4" in line for line in whole)


def test_nodes_that_are_alike_have_no_differences() -> None:
    found = compared([node("n1"), node("n2")])
    assert found.usable and found.differences == ()
    assert nodes_lines(found, 100, everything=False)[:3] == [
        "2 nodes, and all answer",
        "",
        "no differences between the nodes",
    ]


def test_a_node_where_nothing_can_be_measured_is_not_usable() -> None:
    bad = NodeCheck(name="n", machine=machine(), checks=(Check(state=NOT_HERE, what="kernels", why="no cc"),))
    assert not compared([bad]).usable


def test_a_fact_that_a_node_lacks_differs() -> None:
    facts = {"n1": node_facts(machine()), "n2": node_facts({})}
    found = {d.what: d.values for d in differences(facts)}
    assert found["kernel"] == {"6.1.0-13": ("n1",), UNKNOWN: ("n2",)}
    assert found["governor"] == {"not known: no cpufreq": ("n1",), UNKNOWN: ("n2",)}
    assert found["mitigations"]["retbleed: untrained"] == ("n1",)


def test_what_is_left_on_each_node_is_shown_and_a_silent_node_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text("nodes: {n1: {}, n2: {}, n3: {}}\n")
    item = {"kind": "process", "name": "nearmetal-00000a", "detail": "4711"}
    answers = {
        "n1": json.dumps({"found": [item], "left": [], "failures": []}),
        "n2": "Welcome\n" + json.dumps({"found": [], "left": [], "failures": []}),
        "n3": "no such command",
    }
    asked: list[str] = []

    def on_node(host: object, name: str, line: str, *rest: object) -> Completed:
        asked.append(line)
        return Completed(argv=(), returncode=0, stdout=answers[name], stderr="", seconds=0.0)

    here = RunInfo(pid=1, born=1, run="nearmetal-0a1b2c", since=0.0, command="nearmetal run")
    runs: list[RunInfo] = []
    monkeypatch.setattr(api_nodes, "on_node", on_node)
    monkeypatch.setattr(api_nodes, "living_runs", lambda: tuple(runs))
    assert clean(dry_run=False, nodes=str(file), json=False) == ExitCode.UNAVAILABLE
    out, err = capsys.readouterr()
    assert "n1  removed  process  nearmetal-00000a\nnothing of nearmetal is left on n2\n" in out
    assert "n3 did not answer: nearmetal does not run there" in err
    assert all(line.endswith("clean --json") for line in asked)
    answers["n3"] = json.dumps({"found": [item], "left": [item], "failures": ["cannot be killed"]})
    assert clean(dry_run=False, nodes=str(file), json=True) == ExitCode.FAILED_TRIALS
    form = json.loads(capsys.readouterr().out)["nodes"]
    assert form["n1"] == {"answered": True, "found": [item], "left": [], "failures": [], "not_searched": []}
    assert form["n3"]["left"] == [item]
    assert clean(dry_run=True, nodes=str(file), json=True) == ExitCode.DONE
    assert asked[-1].endswith("clean --json --dry-run")
    runs.append(here)
    assert clean(dry_run=False, nodes=str(file), json=True) == ExitCode.FAILED_TRIALS
    assert asked[-1].endswith("clean --json --spare nearmetal-0a1b2c")


def test_the_options_of_ssh_are_made_from_the_inventory() -> None:
    nodes = (InventoryNode(name="a"), InventoryNode(name="b", address="10.0.0.2", user="u", port=22))
    assert options_of(Inventory(source="f", nodes=nodes, ssh_config="/c")) == {
        "hosts": "a,b=ssh://u@10.0.0.2:22",
        "config": "/c",
    }

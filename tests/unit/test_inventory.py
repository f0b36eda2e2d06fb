"""Inventories: files of nearmetal, Slurm's list, Ansible's two forms, LDAP; every mistake with its place."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.api.studies import study_from
from nearmetal.errors import InventoryError, RunError, UnavailableError, UsageError
from nearmetal.host import Completed
from nearmetal.inventory import load_inventory
from nearmetal.inventory.ldap import FILTER, parse_url
from nearmetal.model.inventory import InventoryNode, expand_names, fold_names
from nearmetal.model.keys import ValueMistake
from nearmetal.testing.fake_host import FakeHost

EXAMPLE = Path(__file__).parents[2] / "examples" / "hosts.yaml"


def load(tmp_path: Path, text: str, name: str = "hosts.yaml") -> Any:
    file = tmp_path / name
    file.write_text(text)
    return load_inventory(str(file), FakeHost())


def mistakes(tmp_path: Path, text: str, name: str = "hosts.yaml") -> list[str]:
    with pytest.raises(InventoryError) as caught:
        load(tmp_path, text, name)
    return [str(p).removeprefix(f"{tmp_path}/") for p in caught.value.problems]


# -------------------------------------------------------------------------------------------- sets of names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", "n1"),
        ("n[1-3,07],login", "n1 n2 n3 n07 login"),
        ("r[1-2]n[08-10]", "r1n08 r1n09 r1n10 r2n08 r2n09 r2n10"),
        ("a.b-c_d", "a.b-c_d"),
    ],
)
def test_sets_of_names_are_written_as_slurm_writes_them(text: str, names: str) -> None:
    assert expand_names(text) == tuple(names.split())


@pytest.mark.parametrize(
    "text",
    ["n[1-", "n]1[", "n[]", "n[3-1]", "n[a-c]", "-n", ".", "", "n1,,n2", "n[1-99999]", "n[[1]]", "n 1"],
)
def test_a_text_that_is_no_set_of_names_is_refused(text: str) -> None:
    with pytest.raises(ValueMistake):
        expand_names(text)


NAMES = st.lists(st.from_regex(r"\A[a-z]{1,3}[0-9]{0,3}(-ib)?\Z"), min_size=1, max_size=40, unique=True)


@given(NAMES)
def test_folded_names_expand_to_the_same_names(names: list[str]) -> None:
    assert sorted(expand_names(fold_names(names))) == sorted(names)


def test_names_are_folded_to_ranges() -> None:
    assert fold_names(["n9", "n10", "n8", "login", "n12"]) == "login,n[8-10,12]"
    assert fold_names(["node08", "node09", "node10"]) == "node[08-10]"
    assert fold_names(["n1"]) == "n1"


# ------------------------------------------------------------------------------------------------ own files


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    found = load(
        tmp_path,
        "ssh_config: config\nnodes:\n  n1:\n  n[2-3]: {user: bench, port: 2222, groups: [fast]}\n"
        "  n4: {address: 'fd00::4', port: 22}\n  n5: {address: 10.0.0.5}\n",
    )
    assert [n.destination for n in found.nodes] == [
        *("n1", "ssh://bench@n2:2222", "ssh://bench@n3:2222", "ssh://[fd00::4]:22", "10.0.0.5"),
    ]
    assert found.ssh_config == str(tmp_path / "config") and found.nodes[1].groups == ("fast",)


def test_every_mistake_is_shown_with_its_place(tmp_path: Path) -> None:
    text = (
        "nodes:\n  n1: {adress: 10.0.0.1}\n  n2: {port: 99999}\n  n[3-: {}\n  n1: {}\n"
        "  n[4-5]: {address: 10.0.0.4}\n  n6: {address: -oProxyCommand=x}\nssh_config: nowhere\nnode: {}\n"
    )
    assert mistakes(tmp_path, text) == [
        'hosts.yaml:2:8  nodes.n1.adress: unknown key; did you mean "address"?',
        "hosts.yaml:3:14  nodes.n2.port: 99999 is not between 1 and 65535",
        'hosts.yaml:4:3  nodes.n[3-: "n[3-": brackets do not match',
        'hosts.yaml:5:3  key "n1" given twice; first on line 2',
        "hosts.yaml:6:21  nodes.n[4-5].address: 2 nodes cannot share one address",
        'hosts.yaml:7:17  nodes.n6.address: "-oProxyCommand=x" is not the name or address of a machine',
        f"hosts.yaml:8:13  ssh_config: there is no file {tmp_path}/nowhere",
        'hosts.yaml:9:1  node: unknown key; did you mean "nodes"?',
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "1:1  the file is empty"),
        ("- n1", "1:1  an inventory is a list of keys with values"),
        ("nodes: [n1]", "1:8  nodes: expected keys with values"),
        ("nodes:\n\tn1: {}", "not readable as YAML"),
        ("a: b", "1:1  a: unknown key"),
        ("nodes: {n1: {}}\nssh_config: ~nobody-1/ssh", "2:13  ssh_config: there is no file "),
        ("nodes: {n1: &a {}, n2: *a}", "anchors (&name) and aliases (*name) are not used"),
    ],
)
def test_a_file_that_is_no_inventory(tmp_path: Path, text: str, what: str) -> None:
    assert any(what in line for line in mistakes(tmp_path, text))


def test_a_source_that_does_not_exist_or_has_no_node(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the nodes") as caught:
        load_inventory(str(tmp_path / "no.yaml"), FakeHost())
    assert "slurm:PARTITION" in str(caught.value.remedy)
    with pytest.raises(UsageError, match="no node can be used"):
        load(tmp_path, "nodes: {}\n")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InventoryError, match="not UTF-8"):
        load_inventory(str(tmp_path / "binary.yaml"), FakeHost())


def test_the_example_names_three_nodes() -> None:
    assert [n.name for n in load_inventory(str(EXAMPLE), FakeHost()).nodes] == ["node1", "node2", "node3"]


def test_the_example_study_can_be_read() -> None:
    study = study_from(str(EXAMPLE.with_name("three-hosts.yaml")), 1)
    assert [arm.name for arm in study.arms()] == ["native/1x2", "container/1x2"]


# ---------------------------------------------------------------------------------------------------- Ansible

ANSIBLE_YAML = """\
all:
  vars: {ansible_user: admin, other: [a, b]}
  hosts:
    login: {ansible_connection: local}
  children:
    compute:
      vars: {ansible_port: 2200}
      children:
        fast:
          hosts:
            n[01:03]: {}
            n9: {ansible_host: 10.0.0.9, ansible_user: root, ansible_port: 22}
    storage:
      hosts: {s1: }
"""
ANSIBLE_INI = """\
# a comment
login ansible_connection=local

[fast]
n[01:03]
n9 ansible_host=10.0.0.9 ansible_user='root' ansible_port=22  # another

[compute:children]
fast

[compute:vars]
ansible_port = 2200

[storage]
s1

[all:vars]
ansible_user=admin
"""
NODES = [
    *(InventoryNode(name=f"n0{i}", user="admin", port=2200, groups=("fast", "compute")) for i in (1, 2, 3)),
    InventoryNode(name="n9", address="10.0.0.9", user="root", port=22, groups=("fast", "compute")),
    InventoryNode(name="s1", user="admin", groups=("storage",)),
]


@pytest.mark.parametrize(("text", "name"), [(ANSIBLE_YAML, "hosts.yml"), (ANSIBLE_INI, "hosts")])
def test_both_forms_of_ansible_give_the_same_nodes(tmp_path: Path, text: str, name: str) -> None:
    found = load(tmp_path, text, name)
    assert sorted(found.nodes, key=lambda n: n.name) == NODES
    assert list(found.left_out) == ["login"] and "local" in found.left_out["login"]


@pytest.mark.parametrize("order", [("cluster", "gpu"), ("gpu", "cluster")])
def test_variables_of_a_group_win_over_those_of_the_group_around_it(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    """Also if a host stands in both."""
    groups = "".join(f"[{name}]\nn1\n" for name in order)
    text = (
        f"{groups}[cluster:children]\ngpu\n[cluster:vars]\nansible_port=22\n[gpu:vars]\nansible_port=2222\n"
    )
    (node,) = load(tmp_path, text, "hosts").nodes
    assert (node.port, node.groups) == (2222, ("gpu", "cluster"))


def test_a_pattern_of_too_many_hosts_is_refused_before_all_are_named(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="more than 10000 nodes"):
        load(tmp_path, "n[0:9999]x[0:9999]y[0:9999]\n", "hosts")


def test_patterns_and_ports_of_ansible(tmp_path: Path) -> None:
    found = load(tmp_path, "db-[a:c]\nn[0:4:2]:2200\n", "hosts.ini")
    assert [n.destination for n in found.nodes] == [
        *("db-a", "db-b", "db-c", "ssh://n0:2200", "ssh://n2:2200", "ssh://n4:2200")
    ]


def test_mistakes_in_ansible_s_ini_have_their_places(tmp_path: Path) -> None:
    text = "[fast\nn1\n[good]\nn1 ansible_port=no\nn2 word\n  n[3:1]\nn4 a='\n[good:vars]\nx\n"
    text += "[b:children]\nc d=1\n[d]\ndb-[c:a]\n"
    assert mistakes(tmp_path, text, "hosts") == [
        'hosts:1:1  "[fast" is not a heading such as [name], [name:children] or [name:vars]',
        'hosts:5:4  "word" is not of the form NAME=VALUE',
        'hosts:6:3  "n[3:1]": [3:1] is not a range of at most 10000 hosts',
        "hosts:7:1  quotes do not match: No closing quotation",
        'hosts:9:1  "x" is not of the form NAME=VALUE',
        'hosts:11:1  "d=1": a line below [b:children] names one group',
        'hosts:13:1  "db-[c:a]": [c:a] is not a range of letters in alphabetical order',
    ]
    assert mistakes(tmp_path, "n1 ansible_port=no\n", "hosts") == [
        'hosts:1:17  n1.port: "no" is not a whole number'
    ]


def test_mistakes_in_ansible_s_yaml_have_their_places(tmp_path: Path) -> None:
    text = "all:\n  hosts:\n    n1: {ansible_host: '{{ ip }}'}\n    'n 2': {}\n  children: [a]\n"
    assert mistakes(tmp_path, text) == [
        "hosts.yaml:3:24  n1.ansible_host: a template is not evaluated here; write it out",
        'hosts.yaml:4:5  all.hosts: "n 2" is not the name of a host, or a set such as n[01:16]',
        "hosts.yaml:5:13  all.children: expected keys with values",
    ]


def test_groups_that_contain_each_other_end(tmp_path: Path) -> None:
    found = load(tmp_path, "[a]\nn1\n[a:children]\nb\n[b:children]\na\n", "hosts")
    assert found.nodes == (InventoryNode(name="n1", groups=("a", "b")),)


# ------------------------------------------------------------------------------------------------------ Slurm

SCONTROL = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=8 NodeAddr=10.0.0.1 NodeHostName=n1 State=IDLE Partitions=short,long
NodeName=n2 CPUTot=8 NodeAddr=n2 NodeHostName=n2 State=MIXED+PLANNED Partitions=long
NodeName=n3 CPUTot=8 NodeAddr=n3 State=IDLE+DRAIN Partitions=long Reason=bad fan [root@2026-11-01T10:00:00]
NodeName=n4 CPUTot=8 NodeAddr=n4 State=DOWN*+NOT_RESPONDING Partitions=short
"""
SINFO = "n1 idle short\nn1 idle long\nn2 mixed long\nn3 drained long\nn4 down* short\n"


class Cluster(FakeHost):
    """A machine on which some commands of Slurm answer."""

    def __init__(self, answers: Mapping[str, str | int]) -> None:
        programs = {name: f"/usr/bin/{name}" for name in answers}
        super().__init__(programs=programs, missing=sorted({"scontrol", "sinfo"} - answers.keys()))
        self.answers = answers

    def answer(self, argv: tuple[str, ...], stdin: str | None) -> Completed:
        answer = self.answers[argv[0]]
        text, code = (answer, 0) if isinstance(answer, str) else ("", answer)
        return Completed(argv=argv, returncode=code, stdout=text, stderr="no controller", seconds=0.0)


@pytest.mark.parametrize(
    "answers", [{"scontrol": SCONTROL}, {"scontrol": 1, "sinfo": SINFO}, {"sinfo": SINFO}]
)
def test_the_nodes_of_slurm(answers: Mapping[str, str | int]) -> None:
    found = load_inventory("slurm", Cluster(answers))
    assert [n.name for n in found.nodes] == ["n1", "n2"]
    assert found.nodes[0].groups == ("short", "long")
    assert found.nodes[0].address == ("10.0.0.1" if "sinfo" not in answers else "")
    assert found.left_out["n3"].startswith("Slurm says DRAIN") and "DOWN" in found.left_out["n4"]
    assert "bad fan" in found.left_out["n3"] or "sinfo" in answers
    short = load_inventory("slurm:short", Cluster(answers))
    assert [n.name for n in short.nodes] == ["n1"] and list(short.left_out) == ["n4"]
    with pytest.raises(UsageError, match="no partition shrt") as caught:
        load_inventory("slurm:shrt", Cluster(answers))
    assert caught.value.remedy == "one of: long, short"


def test_without_slurm_or_without_its_answer_there_is_a_reason() -> None:
    with pytest.raises(UnavailableError, match="neither scontrol nor sinfo"):
        load_inventory("slurm", Cluster({}))
    with pytest.raises(RunError, match="no controller"):
        load_inventory("slurm", Cluster({"scontrol": 1, "sinfo": 1}))
    with pytest.raises(RunError, match="not a node with its state"):
        load_inventory("slurm", Cluster({"sinfo": "PARTITION AVAIL\n"}))
    with pytest.raises(UsageError, match="DOWN"):
        load_inventory("slurm", Cluster({"sinfo": "n4 down short\n"}))


# ------------------------------------------------------------------------------------------------------- LDAP


def test_urls_of_ldap_servers() -> None:
    assert parse_url("ldap://d.example/ou=hosts,dc=x") == (
        *("ldap://d.example", "ou=hosts,dc=x", "sub", FILTER),
    )
    found = parse_url("ldaps://[::1]:636/ou=a%20b??one?(cn=n*)")
    assert found == ("ldaps://[::1]:636", "ou=a b", "one", "(cn=n*)")
    for url in ("ldap:///dc=x", "ldap://d", "ldap://d/x??all", "ldap://d:no/x", "ldap://[::1/dc=x"):
        with pytest.raises(UsageError):
            parse_url(url)


def test_nodes_of_an_ldap_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is played by one with the few names that are used of it."""
    entries: list[dict[str, Any]] = [
        {"cn": ["n2", "second"], "ipHostNumber": ["10.0.0.2"]},
        {"cn": "n1", "ipHostNumber": []},
    ]
    asked = _play_ldap3(monkeypatch, entries)
    found = load_inventory("ldap://d.example:389/ou=hosts,dc=x", FakeHost())
    assert found.nodes == (InventoryNode(name="n1"), InventoryNode(name="n2", address="10.0.0.2"))
    assert asked["search_base"] == "ou=hosts,dc=x" and asked["search_filter"] == FILTER
    for name in ("bad name", "n1,n2"):
        _play_ldap3(monkeypatch, [{"cn": [name]}])
        with pytest.raises(UsageError, match="no usable name"):
            load_inventory("ldap://d.example/dc=x", FakeHost())
    monkeypatch.setitem(sys.modules, "ldap3", None)
    with pytest.raises(UnavailableError, match="need the package ldap3"):
        load_inventory("ldap://d.example/dc=x", FakeHost())


def _play_ldap3(monkeypatch: pytest.MonkeyPatch, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    asked: dict[str, Any] = {}

    class Connection:
        def __init__(self, server: object, **_: object) -> None:
            self.extend = SimpleNamespace(standard=SimpleNamespace(paged_search=self.search))

        def __enter__(self) -> Connection:
            return self

        def __exit__(self, *_: object) -> None: ...

        def search(self, **words: object) -> Any:
            asked.update(words)
            yield {"type": "searchResRef"}
            yield from ({"type": "searchResEntry", "attributes": e} for e in entries)

    module, exceptions = ModuleType("ldap3"), ModuleType("ldap3.core.exceptions")
    vars(module).update(
        Connection=Connection, Server=lambda *_, **__: None, BASE="BASE", LEVEL="LEVEL", SUBTREE="SUBTREE"
    )
    vars(exceptions).update(LDAPException=type("LDAPException", (Exception,), {}))
    monkeypatch.setitem(sys.modules, "ldap3", module)
    monkeypatch.setitem(sys.modules, "ldap3.core", ModuleType("ldap3.core"))
    monkeypatch.setitem(sys.modules, "ldap3.core.exceptions", exceptions)
    return asked

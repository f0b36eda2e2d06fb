"""Inventories of Ansible, as YAML and as INI. Only what says how to reach a machine is used: the names, the
groups, ansible_host, ansible_user and ansible_port. Templates are not evaluated, and no plug-in is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from ..errors import InventoryError, Mark
from ..model.inventory import MOST, Inventory, InventoryNode
from ..model.keys import ValueMistake, did_you_mean
from ..study_file.problems import Path, Problems
from ..study_file.tree import Located, MapNode, Node, Scalar
from ..study_file.validate import read

GROUP_KEYS = frozenset({"hosts", "children", "vars"})
_VARIABLES = {
    **{"ansible_host": "address", "ansible_ssh_host": "address"},
    **{"ansible_user": "user", "ansible_ssh_user": "user"},
    **{"ansible_port": "port", "ansible_ssh_port": "port"},
}
"""Keys of an InventoryNode, by the variables of Ansible that fill them."""
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_PATTERN = re.compile(r"\[([0-9]{1,9}|[a-z]):([0-9]{1,9}|[a-z])(?::([0-9]{1,4}))?\]")
_WITH_PORT = re.compile(r"((?:[^:\[\]]|\[[^\]]*\])+):([0-9]{1,5})")
ALL = "all"


@dataclass
class _Group:
    """A group of an inventory, merged from all its sections in the file.

    hosts: variables of each host by name, with their positions in the file.
    own: variables of the group.
    children: position of each child group's name.
    """

    hosts: dict[str, dict[str, Scalar]] = field(default_factory=dict)
    own: dict[str, Scalar] = field(default_factory=dict)
    children: dict[str, Mark] = field(default_factory=dict)


def from_groups(root: MapNode, file: str, problems: Problems) -> Inventory:
    """Return the nodes of a YAML inventory of Ansible. Mistakes are added to problems."""
    groups: dict[str, _Group] = {}
    _walk(root, (), groups, problems)
    return _joined(groups, file, problems)


def _walk(entries: MapNode, at: Path, groups: dict[str, _Group], problems: Problems) -> None:
    """Read groups, and the groups below them."""
    for name, (mark, node) in entries.entries.items():
        group = groups.setdefault(name, _Group())
        if isinstance(node, Scalar) and node.null:
            continue
        if not isinstance(node, MapNode):
            problems.add(mark, (*at, name), "a group has keys: hosts, children and vars")
            continue
        for key, (key_mark, value) in node.entries.items():
            if key not in GROUP_KEYS:
                problems.add(key_mark, (*at, name, key), f"unknown key{did_you_mean(key, GROUP_KEYS)}")
            elif isinstance(value, MapNode):
                _take(group, key, value, (*at, name, key), groups, problems)
            elif not (isinstance(value, Scalar) and value.null):
                problems.add(value.mark, (*at, name, key), "expected keys with values")


def _take(
    group: _Group, key: str, value: MapNode, at: Path, groups: dict[str, _Group], problems: Problems
) -> None:
    if key == "children":
        group.children |= {name: mark for name, (mark, _) in value.entries.items()}
        _walk(value, at, groups, problems)
    elif key == "vars":
        group.own |= _scalars(value)
    else:
        for text, (mark, variables) in value.entries.items():
            given = _scalars(variables) if isinstance(variables, MapNode) else {}
            _add_hosts(group, text, mark, given, at, problems)


def _scalars(node: MapNode) -> dict[str, Scalar]:
    return {name: value for name, (_, value) in node.entries.items() if isinstance(value, Scalar)}


def _add_hosts(
    group: _Group, text: str, mark: Mark, given: Mapping[str, Scalar], at: Path, problems: Problems
) -> None:
    """Add the hosts of one entry, such as 'n[01:16]' or 'n1:2222'."""
    with_port = _WITH_PORT.fullmatch(text)
    if with_port is not None:
        text = with_port[1]
        given = {"ansible_port": Scalar(mark=mark, text=with_port[2], plain=True), **given}
    try:
        names = list(islice(expand_pattern(text), MOST + 1))
    except ValueMistake as e:
        problems.add(mark, at, str(e))
        return
    for name in names:
        group.hosts.setdefault(name, {}).update(given)
        if len(group.hosts) > MOST:
            problems.stop(mark, f"more than {MOST} nodes")


def expand_pattern(text: str) -> Iterator[str]:
    """Yield the names of a pattern of Ansible, such as 'n[01:16]', 'db-[a:f]' or 'n[0:8:2]'.

    Raises ValueMistake for a text that names no host.
    """
    found = _PATTERN.search(text)
    if found is None:
        if not _HOST.fullmatch(text):
            raise ValueMistake(f'"{text[:60]}" is not the name of a host, or a set such as n[01:16]')
        yield text
        return
    low, high, step = found[1], found[2], int(found[3] or 1)
    if low.isdigit() != high.isdigit() or step < 1:
        raise ValueMistake(f'"{text[:60]}": {found[0]} is not a range')
    if low.isdigit():
        if int(high) < int(low) or (int(high) - int(low)) // step >= MOST:
            raise ValueMistake(f'"{text[:60]}": {found[0]} is not a range of at most {MOST} hosts')
        width = len(low) if low.startswith("0") else 0
        values = [f"{n:0{width}d}" for n in range(int(low), int(high) + 1, step)]
    else:
        if high < low:
            raise ValueMistake(f'"{text[:60]}": {found[0]} is not a range of letters in alphabetical order')
        values = [chr(c) for c in range(ord(low), ord(high) + 1, step)]
    for value in values:
        yield from expand_pattern(f"{text[: found.start()]}{value}{text[found.end() :]}")


def _joined(groups: Mapping[str, _Group], file: str, problems: Problems) -> Inventory:
    """Return the nodes of all groups. Variables of a host override those of its groups, and variables of a
    group override those of its parents."""
    parents: dict[str, list[str]] = {}
    for name, group in groups.items():
        for child in group.children:
            parents.setdefault(child, []).append(name)
    variables: dict[str, dict[str, Scalar]] = {}
    members: dict[str, list[str]] = {}
    for name, group in groups.items():
        for host, own in group.hosts.items():
            variables.setdefault(host, {}).update(own)
            members.setdefault(host, []).append(name)
    nodes = []
    left_out = {}
    for host, own in variables.items():
        around = _around(members[host], parents)
        merged = dict(groups[ALL].own) if ALL in groups else {}
        for name in reversed([name for name in around if name != ALL]):
            merged |= groups[name].own
        merged |= own
        connection = merged.get("ansible_connection")
        if connection is not None and connection.text == "local":
            left_out[host] = "ansible_connection is local, so it is not reached by ssh"
            continue
        node = _node(host, merged, tuple(n for n in around if n not in (ALL, "ungrouped")), problems)
        if node is not None:
            nodes.append(node)
    return Inventory(source=file, nodes=tuple(nodes), left_out=left_out)


def _around(names: Iterable[str], parents: Mapping[str, list[str]]) -> list[str]:
    """Return these groups and all their ancestors, each group before its parents. A cycle of groups is
    followed once.

    parents: names of the parent groups of each group.

    Of two groups that do not contain each other, the one that is last in alphabetical order comes first,
    because its variables override those of the other one in Ansible.
    """
    found: list[str] = []
    begun: set[str] = set()

    def visit(group: str) -> None:
        if group not in begun:
            begun.add(group)
            for parent in parents.get(group, ()):
                visit(parent)
            found.insert(0, group)

    for name in sorted(names):
        visit(name)
    return found


def _node(
    host: str, merged: Mapping[str, Scalar], groups: tuple[str, ...], problems: Problems
) -> InventoryNode | None:
    given: dict[str, tuple[Mark, Node]] = {}
    for variable, key in _VARIABLES.items():
        value = merged.get(variable)
        if value is None or key in given:
            continue
        if "{{" in value.text:
            problems.add(value.mark, (host, variable), "a template is not evaluated here; write it out")
            continue
        given[key] = value.mark, value
    mark = next((m for m, _ in given.values()), Mark(1, 1))
    found = Located(node=MapNode(mark=mark, entries=given), path=(host,), problems=problems)
    node = read(InventoryNode, found, name=host)
    return None if node is None else replace(node, groups=groups)


def from_ini(text: str, file: str) -> Inventory:
    """Return the nodes of an inventory in Ansible's INI form.

    Raises InventoryError with every mistake and its position.
    """
    problems = Problems(file, InventoryError)
    groups: dict[str, _Group] = {ALL: _Group()}
    section, kind = ALL, "hosts"
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        words = line.strip()
        mark = Mark(number, len(line) - len(line.lstrip()) + 1)
        if not words or words[0] in "#;":
            continue
        if words.startswith("["):
            heading = re.fullmatch(r"\[([^\[\]:]+)(?::(hosts|children|vars))?\]\s*(?:[#;].*)?", words)
            if heading is None:
                what = f'"{words[:60]}" is not a heading such as [name], [name:children] or [name:vars]'
                problems.add(mark, (), what)
                kind = ""
                continue
            section, kind = heading[1].strip(), heading[2] or "hosts"
            groups.setdefault(section, _Group())
        elif kind:
            _ini_line(groups, section, kind, line, mark, problems)
    problems.check()
    found = _joined(groups, file, problems)
    problems.check()
    return found


def _ini_line(
    groups: dict[str, _Group], section: str, kind: str, line: str, mark: Mark, problems: Problems
) -> None:
    group = groups[section]
    if kind == "vars":
        name, sign, value = line.strip().partition("=")
        if not sign:
            problems.add(mark, (), f'"{name[:60]}" is not of the form NAME=VALUE')
        else:
            group.own[name.strip()] = _at(line, value.strip(), mark)
        return
    try:
        first, *rest = shlex.split(line, comments=True)
    except ValueError as e:
        problems.add(mark, (), f"quotes do not match: {e}")
        return
    if kind == "children":
        group.children[first] = mark
        groups.setdefault(first, _Group())
        if rest:
            problems.add(mark, (), f'"{rest[0][:60]}": a line below [{section}:children] names one group')
        return
    given = {}
    for word in rest:
        name, sign, value = word.partition("=")
        if not sign:
            what = f'"{word[:60]}" is not of the form NAME=VALUE'
            problems.add(Mark(mark.line, line.find(word) + 1), (), what)
        given[name] = _at(line, value, mark, name)
    _add_hosts(group, first, mark, given, (), problems)


def _at(line: str, value: str, mark: Mark, name: str = "") -> Scalar:
    at = line.find(value, line.find(f"{name}=") + len(name) + 1)
    return Scalar(mark=Mark(mark.line, at + 1 if at >= 0 else mark.column), text=_unquoted(value), plain=True)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text

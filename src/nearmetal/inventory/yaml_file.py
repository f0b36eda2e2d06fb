"""Inventories as YAML: nearmetal's own form, and Ansible's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as FilePath

from ..errors import InventoryError, Mark
from ..model.inventory import MOST, Inventory, InventoryNode, expand_names
from ..model.keys import ValueMistake, did_you_mean
from ..study_file.problems import Path, Problems
from ..study_file.tree import Located, MapNode, Node, Scalar, mark_of, read_tree
from ..study_file.validate import read
from .ansible import GROUP_KEYS, from_groups

NODES, SSH_CONFIG = "nodes", "ssh_config"
_NOTHING = MapNode(mark=Mark(1, 1), entries={})


def from_yaml(text: str, file: str) -> Inventory:
    """Return the nodes of a YAML file. Without the key 'nodes' it is read as an inventory of Ansible.

    Raises InventoryError with every mistake and its position.
    """
    problems = Problems(file, InventoryError)
    root = read_tree(text, problems)
    if NODES not in root.entries and _is_of_ansible(root):
        found = from_groups(root, file, problems)
    else:
        found = _own(root, file, problems)
    problems.check()
    return found


def _is_of_ansible(root: MapNode) -> bool:
    """Return whether every entry looks like a group: an empty one, or keys of groups only."""
    groups = [node for _, node in root.entries.values()]
    return bool(groups) and all(
        (isinstance(group, MapNode) and group.entries.keys() <= GROUP_KEYS)
        or (isinstance(group, Scalar) and group.null)
        for group in groups
    )


def _own(root: MapNode, file: str, problems: Problems) -> Inventory:
    for name, (mark, _) in root.entries.items():
        if name not in (NODES, SSH_CONFIG):
            problems.add(mark, (name,), f"unknown key{did_you_mean(name, (NODES, SSH_CONFIG))}")
    nodes = root.get(NODES)
    found: dict[str, InventoryNode] = {}
    if nodes is None:
        problems.add(root.mark, (), "missing; write nodes: and below it a line for each node, such as n1: {}")
    elif not isinstance(nodes, MapNode):
        what = "expected keys with values, such as n1: {}"
        problems.add(mark_of(root, (NODES,)), (NODES,), what)
    else:
        for text, (mark, entry) in nodes.entries.items():
            _add(found, text, mark, entry, problems)
    config = root.get(SSH_CONFIG)
    return Inventory(
        source=file,
        nodes=tuple(found.values()),
        ssh_config=None if config is None else _config(config, file, problems),
    )


def _add(found: dict[str, InventoryNode], text: str, mark: Mark, entry: Node, problems: Problems) -> None:
    """Add the nodes of one entry; its key may be a set such as 'n[1-16]'."""
    at: Path = (NODES, text)
    try:
        names = expand_names(text)
    except ValueMistake as e:
        problems.add(mark, at, str(e))
        return
    own = _NOTHING if isinstance(entry, Scalar) and entry.null else entry
    located = Located(node=own, path=at, problems=problems)
    node = read(InventoryNode, located, name=names[0])
    if node is None:
        return
    if len(names) > 1 and node.address:
        located.mistake(("address",), f"{len(names)} nodes cannot share one address")
    for name in names:
        if name in found:
            problems.add(mark, at, f"node {name} is named twice")
        found[name] = replace(node, name=name)
    if len(found) > MOST:
        problems.stop(mark, f"more than {MOST} nodes")


def _config(node: Node, file: str, problems: Problems) -> str | None:
    """Return the path of a file for ssh -F; None with a mistake in `problems` if there is no such file.

    A relative path is relative to the directory of the inventory.
    """
    if not isinstance(node, Scalar) or node.null:
        problems.add(node.mark, (SSH_CONFIG,), "expected the path of a file for ssh -F")
        return None
    directory = FilePath(file).resolve().parent
    try:
        path = directory / FilePath(node.text).expanduser()
    except RuntimeError:  # '~name' of an unknown user, so it can only be the name of a directory
        path = directory / node.text
    if not path.is_file():
        problems.add(node.mark, (SSH_CONFIG,), f"there is no file {path}")
        return None
    return str(path)

"""The nodes of a Slurm cluster, by scontrol, or by sinfo where scontrol is missing or refused."""

from __future__ import annotations

import re

from ..errors import RunError, UnavailableError, UsageError
from ..host import Host
from ..model.inventory import Inventory, InventoryNode, expand_names

SECONDS = 60.0
_FIELD = re.compile(r"(?:^|\s)([A-Za-z]+)=(\S*)")
_UNUSABLE = ("DOWN", "DRAIN", "FAIL", "INVAL", "MAINT", "NOT_RESPONDING", "POWERED_DOWN", "POWER_DOWN")
"""States, or parts of them, in which a node cannot be used now."""
_FLAGS = {"*": "NOT_RESPONDING", "~": "POWERED_DOWN", "$": "MAINT", **dict.fromkeys("@#!%-", "")}
"""States by the character that sinfo appends for them; '' for a state in which a node can be used."""


def from_slurm(host: Host, partition: str) -> Inventory:
    """Return the nodes of Slurm, without those that are down or drained.

    partition: the nodes of this partition only; '' for all.

    Raises UnavailableError without a Slurm here, RunError if it does not answer, and UsageError for an
    unknown partition.
    """
    source = f"slurm:{partition}" if partition else "slurm"
    ways = (
        ("scontrol", ("scontrol", "show", "node", "--oneliner"), parse_scontrol),
        ("sinfo", ("sinfo", "--noheader", "--Node", "--format=%N %T %R"), parse_sinfo),
    )
    failure = ""
    for program, argv, parse in ways:
        if host.which(program) is None:
            continue
        done = host.run(argv, timeout=SECONDS)
        if done.ok:
            return _of_partition(parse(done.stdout, source), partition)
        failure = done.failure()
    if failure:
        raise RunError(f"Slurm lists no nodes: {failure}", where=source)
    raise UnavailableError("neither scontrol nor sinfo here", remedy="run this where Slurm's commands are")


def parse_scontrol(text: str, source: str) -> Inventory:
    """Parse the output of `scontrol show node --oneliner`."""
    nodes, left_out = [], {}
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        name = fields.get("NodeName", "")
        if not name:
            continue
        reason = re.search(r"\sReason=(.*?)(?=\s\w+=|\s*$)", line)
        address = fields.get("NodeAddr", "")
        if why := _unusable(fields.get("State", "")):
            left_out[name] = f"{why}{f' ({reason[1].strip()})' if reason else ''}"
        groups = tuple(p for p in fields.get("Partitions", "").split(",") if p and p != "(null)")
        known = "" if address in ("", "(null)", name) else address
        nodes.append(InventoryNode(name=name, address=known, groups=groups))
    return Inventory(source=source, nodes=tuple(nodes), left_out=left_out)


def parse_sinfo(text: str, source: str) -> Inventory:
    """Parse the output of `sinfo --noheader --Node --format='%N %T %R'`: a line for each node and partition.

    Raises RunError for a line of another form.
    """
    groups: dict[str, list[str]] = {}
    left_out: dict[str, str] = {}
    for line in text.splitlines():
        try:
            names, state, partition = line.split()
            known = expand_names(names)
        except ValueError as e:
            raise RunError(
                f"sinfo printed {line[:80]!r}, which is not a node with its state", where=source
            ) from e
        flags = "+".join(_FLAGS[c] for c in state if c in _FLAGS)
        for name in known:
            groups.setdefault(name, []).append(partition)
            if why := _unusable(f"{state.rstrip(''.join(_FLAGS)).upper()}+{flags}"):
                left_out[name] = why
    nodes = tuple(InventoryNode(name=name, groups=tuple(own)) for name, own in groups.items())
    return Inventory(source=source, nodes=nodes, left_out=left_out)


def _unusable(state: str) -> str:
    """Return why a node in this state cannot be used, with the parts of the state that exclude it; '' if it
    can be used."""
    parts = state.replace("*", "").upper().split("+") + (["NOT_RESPONDING"] if "*" in state else [])
    bad = [part for part in parts if part.startswith(_UNUSABLE)]
    return f"Slurm says {'+'.join(bad)}" if bad else ""


def _of_partition(found: Inventory, partition: str) -> Inventory:
    """Return the usable nodes of a partition; '' for all partitions. Raises UsageError for an unknown one."""
    known = {group for node in found.nodes for group in node.groups}
    if partition and partition not in known:
        raise UsageError(
            f"Slurm has no partition {partition} with nodes",
            remedy=f"one of: {', '.join(sorted(known))}" if known else "see: sinfo",
        )
    wanted = [node for node in found.nodes if not partition or partition in node.groups]
    names = {node.name for node in wanted}
    return Inventory(
        source=found.source,
        nodes=tuple(node for node in wanted if node.name not in found.left_out),
        left_out={name: why for name, why in found.left_out.items() if name in names},
    )

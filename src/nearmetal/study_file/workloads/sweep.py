"""Expands `matrix` and `zip` of a workload: one entry of the file becomes several workloads, which are named
after their values.

The two keys are at the same level as `kernel` or `subject`, or inside `npb`. The expansion works on nodes
with positions, so that a mistake in a swept value is reported at the position of the value."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, replace

from ...errors import Mark
from ..problems import Path, Problems
from ..tree import ListNode, MapNode, Node, Scalar

MAX_COMBINATIONS = 1000
_FIXED = ("kernel", "subject", "metrics", "matrix", "zip")  # keys that a sweep must not vary


@dataclass(frozen=True, kw_only=True)
class ExpandedWorkload:
    """One workload after the expansion.

    mark: position of its key in the file.
    """

    name: str
    mark: Mark
    node: Node

    @property
    def path(self) -> Path:
        return ("workloads", self.name)


Row = tuple[tuple[str, Mark, Scalar], ...]


def expand(name: str, mark: Mark, node: Node, problems: Problems) -> tuple[ExpandedWorkload, ...]:
    """Return the workloads of one entry; the entry itself if it has no sweep. Mistakes are added to
    problems."""
    whole = ExpandedWorkload(name=name, mark=mark, node=node)
    if not isinstance(node, MapNode):
        return (whole,)
    if "kernel" in node.entries or "subject" in node.entries:
        return _expand(whole, node, ("workloads", name), problems)
    inner = node.get("npb")
    if not isinstance(inner, MapNode):
        return (whole,)
    key_mark = node.entries["npb"][0]
    return tuple(
        replace(p, node=MapNode(mark=node.mark, entries=node.entries | {"npb": (key_mark, p.node)}))
        for p in _expand(replace(whole, node=inner), inner, ("workloads", name, "npb"), problems)
    )


def _expand(
    whole: ExpandedWorkload, node: MapNode, path: Path, problems: Problems
) -> tuple[ExpandedWorkload, ...]:
    """Expand the sweep in a node.

    node: node of the whole piece, which contains the sweep.
    path: path of the node.
    """
    name, mark = whole.name, whole.mark
    swept = [key for key in ("matrix", "zip") if key in node.entries]
    if not swept:
        return (whole,)
    before = problems.added
    rest = {k: v for k, v in node.entries.items() if k not in swept}
    axes: list[list[Row]] = []
    taken = set(rest)
    for key in swept:
        columns = _columns(node.entries[key][1], (*path, key), taken, problems)
        taken |= {c[0][0] for c in columns if c}
        if key == "matrix":
            axes += [[(cell,) for cell in column] for column in columns]
        else:
            axes.append(_rows(columns, node.entries[key], (*path, key), problems))
    count = math.prod(len(axis) for axis in axes)
    if count > MAX_COMBINATIONS:
        sweep_mark = node.entries[swept[0]][0]
        problems.add(sweep_mark, ("workloads", name), f"{count} combinations; {MAX_COMBINATIONS} at most")
    if problems.added > before:
        return ()
    return tuple(_piece(name, mark, node.mark, rest, rows) for rows in itertools.product(*axes))


def _piece(
    name: str, mark: Mark, node_mark: Mark, rest: dict[str, tuple[Mark, Node]], rows: tuple[Row, ...]
) -> ExpandedWorkload:
    cells = [cell for row in rows for cell in row]
    entries = rest | {key: (key_mark, value) for key, key_mark, value in cells}
    full = "-".join([name, *(_part(value.text) for _, _, value in cells)])
    return ExpandedWorkload(name=full, mark=mark, node=MapNode(mark=node_mark, entries=entries))


def _part(text: str) -> str:
    """Return a value as part of a name: '2M' for '2 M', '0_5' for '0.5'."""
    return re.sub(r"[^\w-]", "_", re.sub(r"\s", "", text)) or "_"


def _columns(
    node: Node, path: Path, taken: set[str], problems: Problems
) -> list[list[tuple[str, Mark, Scalar]]]:
    """Return the values of every swept key."""
    if not isinstance(node, MapNode) or not node.entries:
        problems.add(node.mark, path, "keys with lists are wanted here, such as {class: [S, W]}")
        return []
    out = []
    for key, (key_mark, values) in node.entries.items():
        if key in _FIXED:
            problems.add(key_mark, (*path, key), "cannot be swept; a parameter of the kernel or pages can")
        elif key in taken:
            problems.add(key_mark, (*path, key), "given outside of the sweep too")
        elif not isinstance(values, ListNode) or not values.items:
            problems.add(values.mark, (*path, key), "a list is wanted here, such as [S, W]")
        else:
            column = []
            for number, item in enumerate(values.items):
                if isinstance(item, Scalar):
                    column.append((key, key_mark, item))
                else:
                    problems.add(
                        item.mark, (*path, key, number), "one value is wanted here, not a list or keys"
                    )
            out.append(column)
    return out


def _rows(
    columns: list[list[tuple[str, Mark, Scalar]]], entry: tuple[Mark, Node], path: Path, problems: Problems
) -> list[Row]:
    lengths = {len(c) for c in columns}
    if len(lengths) > 1:
        named = ", ".join(f"{c[0][0]} {len(c)}" for c in columns if c)
        problems.add(entry[0], path, f"the lists differ in length: {named}")
        return []
    return list(zip(*columns, strict=True))

"""Expands `matrix` and `zip` of a workload: one entry of the file becomes several workloads, which are named
after their values.

The two keys are at the same level as `kernel`, `application` or `subject`, or inside `npb`. The expansion
works on nodes with positions, so that a mistake in a swept value is reported at the position of the value."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, replace

from ...errors import Mark
from ..problems import Path, Problems
from ..tree import ListNode, Located, MapNode, Node, Scalar

MAX_COMBINATIONS = 1000
MATRIX = "matrix"
SWEEPS = {MATRIX: "combination of values", "zip": "row of values, lists of equal length"}
"""The keys of sweeps, and what there is a workload for."""
_BESIDE = ("kernel", "application", "subject")  # keys at whose level sweeps are
_FIXED = (*_BESIDE, "metrics", *SWEEPS)  # keys that a sweep must not vary


@dataclass(frozen=True, kw_only=True)
class ExpandedWorkload(Located):
    """One workload after the expansion.

    mark: position of its key in the file.
    """

    name: str
    mark: Mark


Row = tuple[tuple[str, Mark, Scalar], ...]


def expand(name: str, mark: Mark, entry: Located) -> tuple[ExpandedWorkload, ...]:
    """Return the workloads of one entry; the entry itself if it has no sweep.

    mark: position of its key in the file.
    """
    node = entry.node
    whole = ExpandedWorkload(name=name, mark=mark, node=node, path=entry.path, problems=entry.problems)
    if not isinstance(node, MapNode):
        return (whole,)
    if not node.entries.keys().isdisjoint(_BESIDE):
        return _expand(whole, node, entry)
    inner = entry.get("npb")
    if inner is None or not isinstance(inner.node, MapNode):
        return (whole,)
    key_mark = node.entries["npb"][0]
    return tuple(
        replace(p, node=MapNode(mark=node.mark, entries=node.entries | {"npb": (key_mark, p.node)}))
        for p in _expand(replace(whole, node=inner.node), inner.node, inner)
    )


def _expand(whole: ExpandedWorkload, node: MapNode, swept: Located) -> tuple[ExpandedWorkload, ...]:
    """Return the workloads of the sweep in a node; `whole` if it contains no sweep.

    whole: the workload before the expansion.
    node: the mapping that contains the keys `matrix` and `zip`.
    swept: the same node with its path.
    """
    problems = whole.problems
    keys = [key for key in SWEEPS if key in node.entries]
    if not keys:
        return (whole,)
    before = problems.added
    rest = {k: v for k, v in node.entries.items() if k not in keys}
    axes: list[list[Row]] = []
    taken = set(rest)
    for key in keys:
        columns = _columns(node.entries[key][1], (*swept.path, key), taken, problems)
        taken |= {c[0][0] for c in columns if c}
        if key == MATRIX:
            axes += [[(cell,) for cell in column] for column in columns]
        else:
            axes.append(_rows(columns, key, swept))
    count = math.prod(len(axis) for axis in axes)
    if count > MAX_COMBINATIONS:
        sweep_mark = node.entries[keys[0]][0]
        problems.add(sweep_mark, whole.path, f"{count} combinations; at most {MAX_COMBINATIONS} are allowed")
    if problems.added > before:
        return ()
    return tuple(_piece(whole, node.mark, rest, rows) for rows in itertools.product(*axes))


def _piece(
    whole: ExpandedWorkload, node_mark: Mark, rest: dict[str, tuple[Mark, Node]], rows: tuple[Row, ...]
) -> ExpandedWorkload:
    cells = [cell for row in rows for cell in row]
    entries = rest | {key: (key_mark, value) for key, key_mark, value in cells}
    full = "-".join([whole.name, *(_part(value.text) for _, _, value in cells)])
    node = MapNode(mark=node_mark, entries=entries)
    return replace(whole, name=full, path=(*whole.path[:-1], full), node=node)


def _part(text: str) -> str:
    """Return a value as part of a name: '2M' for '2 M', '0_5' for '0.5'."""
    return re.sub(r"[^\w-]", "_", re.sub(r"\s", "", text)) or "_"


def _columns(
    node: Node, path: Path, taken: set[str], problems: Problems
) -> list[list[tuple[str, Mark, Scalar]]]:
    """Return the values of every swept key: a list for each key, with (key, position of the key, value) for
    each value."""
    if not isinstance(node, MapNode) or not node.entries:
        problems.add(node.mark, path, "expected keys with lists, such as {class: [S, W]}")
        return []
    out = []
    for key, (key_mark, values) in node.entries.items():
        if key in _FIXED:
            problems.add(key_mark, (*path, key), "cannot be swept; a parameter of the kernel or pages can")
        elif key in taken:
            problems.add(key_mark, (*path, key), "given outside of the sweep too")
        elif not isinstance(values, ListNode) or not values.items:
            problems.add(values.mark, (*path, key), "expected a list, such as [S, W]")
        else:
            column = []
            for number, item in enumerate(values.items):
                if isinstance(item, Scalar):
                    column.append((key, key_mark, item))
                else:
                    what = "expected one value, found a list or keys"
                    problems.add(item.mark, (*path, key, number), what)
            out.append(column)
    return out


def _rows(columns: list[list[tuple[str, Mark, Scalar]]], key: str, swept: Located) -> list[Row]:
    lengths = {len(c) for c in columns}
    if len(lengths) > 1:
        named = ", ".join(f"{c[0][0]} {len(c)}" for c in columns if c)
        swept.mistake((key,), f"the lists differ in length: {named}", key=True)
        return []
    return list(zip(*columns, strict=True))

"""The text of `nearmetal check --nodes`: differences between nodes first, then the nodes."""

from __future__ import annotations

from collections.abc import Sequence

from ..api.checking import NOT_HERE, cpu_summary
from ..api.nodes import NodeCheck, NodesCheck
from ..report.forms.columns import cut
from ..report.node_differences import difference_lines
from ..report.text import one_line, plural
from .check_text import WIDTH, all_lines


def nodes_lines(found: NodesCheck, width: int, *, everything: bool) -> list[str]:
    """Return the lines of the report.

    width: columns of the terminal; longer lines are cut.
    everything: whether to show every check of every node.
    """
    silent = [node for node in found.nodes if not node.answered]
    answered = [node for node in found.nodes if node.answered]
    lines = [_head(len(answered), len(silent))]
    for node in silent:
        lines.append(f" {node.name}  {one_line(node.reason)}")
        if node.remedy:
            lines.append(f"{'':{len(node.name) + 3}}next: {node.remedy}")
    if answered:
        lines += ["", *difference_lines(found.differences)]
        same = ", ".join(found.alike)
        if len(answered) > 1 and same:
            lines.append(f"the same on all: {same}")
        lines += ["", *_node_lines(answered, everything=everything)]
    return lines if everything else [cut(line, min(width, WIDTH)) for line in lines]


def _head(answered: int, silent: int) -> str:
    if not silent:
        return f"{plural(answered, 'node')}, and {'it answers' if answered == 1 else 'all answer'}"
    few, others = "s" if answered == 1 else "", "does" if silent == 1 else "do"
    return f"{plural(answered + silent, 'node')}: {answered} answer{few}, {silent} {others} not"


def _node_lines(nodes: Sequence[NodeCheck], *, everything: bool) -> list[str]:
    names = max(len(node.name) for node in nodes)
    lines = []
    for node in nodes:
        works = sum(c.state != NOT_HERE for c in node.checks)
        lines.append(
            f" {node.name:<{names}}  {cpu_summary(node.machine)}; {works} of {len(node.checks)} work"
        )
        if everything:
            lines += [f"  {line}" for line in all_lines(node.checks)]
    return lines if everything else [*lines, "Every detail of every node: nearmetal check --all --nodes …"]

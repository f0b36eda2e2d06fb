"""Differences between the nodes of a cluster as aligned lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from ..host.facts.nodes import NodeDifference
from ..model.inventory import fold_names
from .forms.columns import cut
from .text import one_line

_VALUE = 44
"""Maximum number of columns of a value."""


def difference_lines(differences: Sequence[NodeDifference]) -> list[str]:
    """Return aligned lines, one for each value of a fact that differs: the fact, the value, and the nodes
    that have it, in Slurm's notation, such as n[1-3]."""
    if not differences:
        return ["no differences between the nodes"]
    rows = [
        ("" if at else d.what, cut(one_line(value), _VALUE), fold_names(nodes))
        for d in differences
        for at, (value, nodes) in enumerate(d.values.items())
    ]
    names = max(len(what) for what, _, _ in rows)
    values = max(len(value) for _, value, _ in rows)
    return [
        "differences between the nodes",
        *(f" {what:<{names}}  {value:<{values}}  {nodes}" for what, value, nodes in rows),
    ]

"""The node and its state of each worker of a run, from the descriptions that the workers wrote."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.plan import NodeState
from ..model.record import JsonValue
from .directory import ResultsDirectory
from .json_files import json_object, safe_name
from .node_files import NODES


def node_states(directory: ResultsDirectory) -> dict[str, NodeState]:
    """Return the node of each worker by label of the worker; empty for a run without workers.

    Raises RecordsError.
    """
    return {run: _state(data) for run, data in directory.nodes().items()}


def node_state(directory: ResultsDirectory, run: str) -> NodeState | None:
    """Return the node of one worker; None if it described none, as a run without workers.

    Raises RecordsError.
    """
    file = directory.path / NODES / f"{safe_name(run)}.json"
    return _state(json_object(file)) if file.exists() else None


def _state(description: Mapping[str, JsonValue]) -> NodeState:
    def text(section: str, name: str) -> str:
        found = description.get(section)
        value = found.get(name) if isinstance(found, dict) else None
        return value if isinstance(value, str) else ""

    name = description.get("node")
    return NodeState(
        name=name if isinstance(name, str) else "",
        kernel=text("kernel", "release"),
        cpu=text("cpu", "model"),
    )

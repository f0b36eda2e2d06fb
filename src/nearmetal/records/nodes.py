"""The node of each worker of a run and its state, from the descriptions that the workers wrote."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.plan import NodeState
from ..model.record import JsonValue, section
from ..model.study import Study
from .directory import ResultsDirectory
from .json_files import json_object, safe_name
from .node_files import NODES


def node_states(directory: ResultsDirectory) -> dict[str, NodeState]:
    """Return the node of each worker, by label of the worker; empty for a run without workers. The label ''
    stands for everything that ran without a worker, such as a local `run`.

    Raises RecordsError.
    """
    described = directory.nodes()
    if not described:
        return {}
    found = {run: _state(data) for run, data in described.items()}
    # The same machine must not become a second node because a worker, and not the run itself, described it.
    first = directory.provenance
    alike = [run for run, data in described.items() if data.get("boot") and data["boot"] == first.get("boot")]
    return {"": found[alike[0]] if alike else _state(first), **found}


def node_state(directory: ResultsDirectory, run: str) -> NodeState | None:
    """Return the node of one worker; None if there is no description, as in a run without workers.

    run: label of the worker.

    Raises RecordsError.
    """
    name = f"{safe_name(run)}.json"
    place = directory.files.below(NODES)
    return _state(json_object(place, name)) if place.exists(name) else None


def drawn_machines(directory: ResultsDirectory, study: Study) -> tuple[str, ...]:
    """Return the names of the machines from which those of each block are drawn; () if none are drawn.

    Raises RecordsError.
    """
    if study.design.nodes is None or not study.design.nodes.draw:
        return ()
    machines = directory.provenance.get("machines")
    return tuple(machines) if isinstance(machines, dict) else ()


def _state(description: Mapping[str, JsonValue]) -> NodeState:
    def text(value: JsonValue) -> str:
        return value if isinstance(value, str) else ""

    return NodeState(
        name=text(description.get("node")),
        kernel=text(section(description, "kernel").get("release")),
        cpu=text(section(description, "cpu").get("model")),
    )

"""The nodes of an inventory: which of them answer, what can run on them, how they differ, and what killed
runs left on them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..engines.reach import at_once, on_node
from ..errors import NearmetalError, RunError
from ..host import LocalHost
from ..host.facts.nodes import NodeDifference, alike, differences, node_facts
from ..host.lock import living_runs
from ..host.replies import read_reply
from ..host.runtime import make_runtime_directory
from ..inventory import load_inventory
from .checking import ENVIRONMENT, Check, can_measure
from .cleaning import Cleaned

if TYPE_CHECKING:
    from ..model.inventory import Inventory
    from ..node.progress import Progress

SECONDS = 540.0
"""Time limit of one command on a node, in seconds. Checks take long, since they start one instance of each
kind."""


@dataclass(frozen=True, kw_only=True)
class NodeCheck:
    """The checks of one node.

    machine: facts about the node; empty if it did not answer.
    checks: what can run on the node; empty if it did not answer.
    reason: why it did not answer, or why the inventory leaves it out; '' if it answered.
    remedy: what to do about that; '' if nothing is known.
    """

    name: str
    machine: Mapping[str, Any]
    checks: tuple[Check, ...]
    reason: str = ""
    remedy: str = ""

    @property
    def answered(self) -> bool:
        return not self.reason


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a node prints when it is checked: facts about it, and what can run there."""

    machine: Mapping[str, Any]
    checks: tuple[Check, ...]


@dataclass(frozen=True, kw_only=True)
class NodeCleaned:
    """The leftovers of killed runs on one node.

    cleaned: None if the node did not answer.
    reason, remedy: why it did not answer, and what to do about that; '' if it answered.
    """

    name: str
    cleaned: Cleaned | None
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class NodesCheck:
    """The checks of all nodes of an inventory.

    differences: facts that differ between the nodes that answered.
    alike: facts that are the same on all nodes that answered.
    """

    nodes: tuple[NodeCheck, ...]
    differences: tuple[NodeDifference, ...]
    alike: Mapping[str, str]

    @property
    def usable(self) -> bool:
        """Whether all nodes answered, and nearmetal can measure on each."""
        return all(node.answered and can_measure(node.checks) for node in self.nodes)


def options_of(inventory: Inventory) -> dict[str, str]:
    """Return the options by which the engine ssh reaches the nodes of an inventory."""
    hosts = (n.name if n.destination == n.name else f"{n.name}={n.destination}" for n in inventory.nodes)
    config = {} if inventory.ssh_config is None else {"config": inventory.ssh_config}
    return {"hosts": ",".join(hosts), **config}


def node_options(source: str, note: Callable[[str], None]) -> dict[str, str]:
    """Return the options by which the engine ssh reaches the nodes of an inventory.

    source: see inventory.load_inventory(), also for the errors.
    note: called with a text for each node that the source itself leaves out, for example because it is down.
    """
    found = load_inventory(source, LocalHost())
    for name, reason in found.left_out.items():
        note(f"node {name} is left out: {reason}")
    return options_of(found)


def nearmetal_here() -> tuple[str, ...]:
    """Return the command that runs this nearmetal, also on a node where it is installed at the same path."""
    path = os.environ.get("PYTHONPATH")
    env = ("/usr/bin/env", f"PYTHONPATH={path}") if path else ()
    return (*env, sys.executable, "-P", "-m", "nearmetal")


def check_nodes(source: str, progress: Progress) -> NodesCheck:
    """Run the checks of `nearmetal check` on every node of an inventory, many nodes at a time.

    source: see inventory.load_inventory().
    progress: receives a message when a node has answered.

    Raises the errors of load_inventory().
    """

    def answered(name: str, answer: Checked) -> NodeCheck:
        progress.note(f"{name} answered")
        return NodeCheck(name=name, machine=answer.machine, checks=answer.checks)

    def silent(name: str, error: NearmetalError) -> NodeCheck:
        progress.note(f"{name} did not answer")
        return _unchecked(name, error.what, error.remedy)

    inventory = load_inventory(source, LocalHost())
    progress.phase(f"checking {len(inventory.nodes)} nodes")
    found = _on_each(inventory, ("check", "--json"), Checked, answered, silent)
    return compared([*found, *(_unchecked(name, reason) for name, reason in inventory.left_out.items())])


def _unchecked(name: str, reason: str, remedy: str = "") -> NodeCheck:
    return NodeCheck(name=name, machine={}, checks=(), reason=reason, remedy=remedy)


def clean_nodes(source: str, progress: Progress, *, dry_run: bool) -> tuple[NodeCleaned, ...]:
    """Run `nearmetal clean` on every node of an inventory, many nodes at a time. Nothing is removed there
    that belongs to a run on this machine.

    source: see inventory.load_inventory().
    dry_run: only find the leftovers, and remove nothing.

    Raises the errors of load_inventory().
    """

    def answered(name: str, answer: Cleaned) -> NodeCleaned:
        return NodeCleaned(name=name, cleaned=answer)

    def silent(name: str, error: NearmetalError) -> NodeCleaned:
        return NodeCleaned(name=name, cleaned=None, reason=error.what, remedy=error.remedy)

    inventory = load_inventory(source, LocalHost())
    progress.phase(f"cleaning {len(inventory.nodes)} nodes")
    words = ["clean", "--json", *(("--dry-run",) if dry_run else ())]
    for run in living_runs():  # it may have instances on these nodes
        words += ["--spare", run.run]
    return (
        *_on_each(inventory, words, Cleaned, answered, silent),
        *(NodeCleaned(name=n, cleaned=None, reason=reason) for n, reason in inventory.left_out.items()),
    )


A = TypeVar("A")
T = TypeVar("T")


def _on_each(
    inventory: Inventory,
    words: Sequence[str],
    kind: type[A],
    answered: Callable[[str, A], T],
    silent: Callable[[str, NearmetalError], T],
) -> list[T]:
    """Run a command of nearmetal on every node of an inventory, many nodes at a time. Returns one result for
    each node.

    words: the command and its arguments.
    kind: type of the JSON that the command prints.
    answered: returns the result for a node, given its name and what the command printed there.
    silent: returns the result for a node that did not answer, given its name and the error.
    """
    host, options = LocalHost(), options_of(inventory)
    make_runtime_directory()
    command = shlex.join([*nearmetal_here(), *words])
    line = f"cd {shlex.quote(str(Path.cwd()))} 2>/dev/null; exec {command}"

    def one(name: str, go_on: Callable[[], None]) -> T:
        try:
            done = on_node(host, name, line, options, SECONDS, go_on)
            try:
                return answered(name, read_answer(done.stdout, kind, name))
            except RunError:
                raise RunError(
                    f"nearmetal does not run there: {done.failure()}",
                    remedy=f"install it at the same path as here: {sys.prefix}",
                ) from None
        except NearmetalError as e:
            return silent(name, e)

    return at_once([node.name for node in inventory.nodes], one)


def read_answer(text: str, kind: type[A], where: str) -> A:
    """Return what a command of nearmetal printed on a node. A login script may have printed text before it.

    Raises RunError if it has another form.
    """
    return read_reply(text[max(0, text.find("{")) :], kind, where)


def compared(nodes: Sequence[NodeCheck]) -> NodesCheck:
    """Return the checks of nodes with their differences. No I/O."""
    facts = {
        node.name: {**node_facts(node.machine), **_works(node.checks)} for node in nodes if node.answered
    }
    found = differences(facts)
    common = {node.name: node_facts(node.machine) for node in nodes if node.answered}
    return NodesCheck(nodes=tuple(nodes), differences=found, alike=alike(common, found))


def _works(checks: Sequence[Check]) -> dict[str, str]:
    """Return state and version of everything that was checked on a node, by name: {'podman': 'works
    4.9.3'}."""
    found = {}
    for check in checks:
        name, _, version = check.what.partition(" ") if check.group == ENVIRONMENT else (check.what, "", "")
        found[name] = f"{check.state} {version}".rstrip()
    return found

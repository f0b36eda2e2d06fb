"""The workers of a run as its coordinator sees them: which have begun, on which nodes, which have rehearsed
and still run, and how their nodes differ."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..host.facts.nodes import NodeDifference, differences, node_facts
from ..model.record import JsonValue, section
from ..node.progress import Progress
from ..records import LEFT_OUT, PRESENT, Claims, ResultsDirectory, StoredClaim, joined
from ..report.node_differences import difference_lines

POLL = 0.2
"""Seconds between two looks at workers that have not rehearsed yet."""


@dataclass(frozen=True, kw_only=True)
class WorkerSeen:
    """One worker.

    run: its label.
    node: name of its node.
    held: whether it runs, by its last sign of life.
    rehearsed: whether it has rehearsed the study, so that it may run blocks.
    left_out: why it cannot take part; '' if it can.
    """

    run: str
    node: str
    held: bool
    rehearsed: bool
    left_out: str


class Present:
    """Finds the workers of a run by its results directory alone. Workers that had begun before this object
    was made are left out, because an earlier coordinator started them."""

    def __init__(self, directory: ResultsDirectory, claims: Claims) -> None:
        """claims: any claims in the directory; they give the time of the file server."""
        self._directory, self._claims = directory, claims
        self._earlier = {claim.claim.run for claim in self._joined()}
        self._described: dict[str, Mapping[str, JsonValue]] = {}

    def workers(self) -> list[WorkerSeen]:
        """Return the workers that have begun, in the order in which they began, including those that have
        ended.

        Raises RecordsError.
        """
        found = [claim for claim in self._joined() if claim.claim.run not in self._earlier]
        if any(claim.claim.run not in self._described for claim in found):
            self._described = dict(self._directory.node_files.read())
        return [
            WorkerSeen(
                run=claim.claim.run,
                node=claim.host,
                held=claim.held,
                rehearsed="parity" in self._described.get(claim.claim.run, {}),
                left_out=str(self._described.get(claim.claim.run, {}).get(LEFT_OUT, "")),
            )
            for claim in found
        ]

    def _joined(self) -> list[StoredClaim]:
        return joined(self._directory.path / PRESENT, self._claims.now())

    def usable(self) -> frozenset[str]:
        """Return the names of the nodes with a worker that can run blocks now."""
        return frozenset(w.node for w in self.workers() if w.held and w.rehearsed)

    def differences(self) -> tuple[NodeDifference, ...]:
        """Compare the nodes that have rehearsed, and return what differs: facts about the machines, or the
        programs and libraries that an arm loads."""
        nodes, arms = self._directory.nodes().values(), self._directory.plan().arms
        return differences({str(n["node"]): {**node_facts(n), **_audited(n, arms)} for n in nodes})


def _audited(node: Mapping[str, JsonValue], arms: Sequence[str]) -> dict[str, str]:
    """Return a digest of the programs and libraries that each arm loads on a node."""
    found = {}
    for arm in arms:
        known = section(node, "parity", "facts", arm)
        files = {name: value for name, value in known.items() if name.startswith(("binary ", "library "))}
        digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:8]
        found[f"files of {arm}"] = f"{len(files)} files, digest {digest}"
    return found


def await_nodes(
    present: Present, expected: Sequence[str], watch: Callable[[], None], progress: Progress, *, until: float
) -> None:
    """Wait until every worker that has begun has rehearsed the study, was left out or was lost. Then report
    the nodes that cannot take part, and the differences between the others.

    expected: names of the nodes on which workers were started; () if an engine chooses them.
    watch: called while nothing changes; raises if no worker is left.
    until: monotonic seconds up to which a node that has not begun is waited for.
    """
    shown: frozenset[str] = frozenset()
    while True:
        workers = present.workers()
        waiting = frozenset(w.node for w in workers if w.held and not w.rehearsed and not w.left_out)
        absent = frozenset(expected) - {w.node for w in workers}
        if not waiting and (not absent or time.monotonic() > until) and any(w.rehearsed for w in workers):
            break
        if waiting and waiting != shown:
            progress.phase(f"rehearsal on {', '.join(sorted(waiting))}")
            shown = waiting
        watch()
        time.sleep(POLL)
    for worker in workers:
        if worker.left_out:
            progress.note(f"node {worker.node} does not take part: {worker.left_out}")
    for name in sorted(absent):
        progress.note(f"node {name} has not begun; see the output of its worker in workers/")
    nodes = {w.node for w in workers if w.rehearsed}
    if len(nodes) > 1:
        for line in difference_lines(present.differences()):
            progress.note(line)

"""Opens this machine again for a run with a fixed plan, to resume it or to run some of its blocks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..environments import Backend
from ..errors import RunError, UsageError
from ..host import Host
from ..host.caller import NO_INPUT, StandardInput
from ..host.facts.provenance import boot_state, provenance
from ..model.record import section
from ..model.study import Study
from ..node.machine import Machine
from ..node.node import Node, open_node
from ..node.progress import Progress
from ..node.survey.available import usable_arms
from ..node.survey.preflight import require_commands
from ..records import ResultsDirectory
from ..subjects.registry import without_unable
from .block import Recording
from .given import require_same_input


@contextmanager
def reopened_node(
    machine: Machine,
    study: Study,
    directory: ResultsDirectory,
    label: str,
    progress: Progress,
    *,
    name: str = "",
    force: bool = False,
    given: StandardInput = NO_INPUT,
) -> Iterator[tuple[Node, Recording]]:
    """Open the node of a run that continues, with the run's environments and images. Yields the node, and
    what is recorded about the trials.

    name: name of the node, if the run has several. A node that is new in the run may differ from the others.
    force: use the machines of a placement even if another run measures there.
    given: standard input of the user's programs.

    Raises UsageError if the machine, an image or the standard input has changed since, or if an older
    nearmetal made the run.
    Raises RunError if an arm of the run cannot run here now.
    """
    study, backends = check_reopened(machine, study, directory, progress, name=name)
    require_same_input(given, study, directory)
    with open_node(machine, study, backends, label, progress, force=force, given=given) as node:
        _same_images(node, directory)
        _same_machines(node, directory)
        node.working_directory.reopen(section(directory.provenance, "view"), directory.path.parent)
        directory.reopen()
        yield node, Recording(logs=directory.path / "logs", events=_events_then(directory))


def check_reopened(
    machine: Machine, study: Study, directory: ResultsDirectory, progress: Progress, *, name: str = ""
) -> tuple[Study, Mapping[str, Backend]]:
    """Return the study of a run that continues, and its backends. Nothing is opened.

    name: as in reopened_node().

    Raises the same errors as reopened_node(), except for a changed image. Raises UsageError if a program of
    the study no longer exists.
    """
    plan = directory.plan()
    require_commands(study.arms(), study, machine.host, Path.cwd())
    arms, backends, absent = usable_arms(machine, study, progress)
    for arm in plan.arms:
        if arm not in arms:
            raise RunError(f"{arm} of this run cannot run here now: {absent[arm]}", where=str(directory.path))
    study, _ = without_unable(study.with_arms(plan.arms), backends)
    if any(w.sliced for w in study.workloads) and not plan.work:
        raise UsageError(
            "an older nearmetal made this run, and its time shares held other amounts of work",
            where=str(directory.path),
            remedy=_afresh(directory),
        )
    require_boot_state(machine.host, directory, name)
    return study, backends


def _afresh(directory: ResultsDirectory) -> str:
    """Return the remedy for a run that cannot continue."""
    run = f"nearmetal run {shlex.quote(str(directory.path / 'study.yaml'))}"
    compare = f"nearmetal compare --before {shlex.quote(str(directory.path))} --after DIR"
    return f"run the study again: {run}; then compare both: {compare}"


def _events_then(directory: ResultsDirectory) -> tuple[str, ...]:
    """Return the perf events that this run counts. They are the same in all its blocks."""
    events = section(directory.provenance, "inside").get("perf_events")
    return tuple(str(e) for e in events) if isinstance(events, list) else ()


def require_boot_state(host: Host, directory: ResultsDirectory, name: str) -> None:
    """Check that kernel, microcode and frequency governor are unchanged. Otherwise new blocks would not be
    replicates of the stored blocks of this node.

    name: name of the node. It is compared with its own first description. A node that is new in a run of
        several nodes is a stratum of its own.

    Raises UsageError if one has changed.
    """
    nodes = list(directory.nodes().values())
    known = [node for node in nodes if node["node"] == name] if name and nodes else [directory.provenance]
    if not known:
        return
    then, now = boot_state(known[0]), boot_state(provenance(host))
    _require_same("the machine", {key: then.get(key) for key in now}, now, directory)


def _require_same(
    machine: str, then: Mapping[str, object], now: Mapping[str, object], directory: ResultsDirectory
) -> None:
    changed = [key for key in {**then, **now} if json.dumps(now.get(key)) != json.dumps(then.get(key))]
    if changed:
        raise UsageError(
            f"{machine} is not in the state of this run any more: {', '.join(changed)} changed",
            where=str(directory.path),
            remedy=_afresh(directory),
        )


def _same_machines(node: Node, directory: ResultsDirectory) -> None:
    """Check that the machines of a placement are the same as when the run began, and in the same state.

    Raises UsageError if a machine is another one, or its state has changed.
    """
    then = section(directory.provenance, "machines")
    now = node.real.record()
    for name in {**then, **now}:
        before, after = (boot_state(section(found, name)) if name in found else {} for found in (then, now))
        _require_same(f"node {name}", before, after, directory)


def _same_images(node: Node, directory: ResultsDirectory) -> None:
    """Check that the images are unchanged. Blocks in another root tree would not be replicates of the stored
    ones.

    Raises UsageError if an image has changed.
    """
    then = directory.provenance
    for name, software in node.software.items():
        digest = section(then, "images", name).get("digest")
        if software.image is not None and digest not in (None, software.image.digest):
            raise UsageError(
                f"image {name} is not the one of this run any more: it was built or imported again",
                where=str(directory.path),
                remedy=_afresh(directory),
            )

"""The parity audit: checks the same facts inside every arm, and reports differences between the arms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ..environments import Instance, Tools
from ..errors import UnavailableError
from ..host import Completed, cgroups
from ..host.facts.audit import compare, facts
from ..model.record import JsonValue, TrialRecord
from ..model.study import SingleCopy
from ..node.arms.running_arm import RunningArm
from ..node.node import Node
from ..node.storage import look, mounted_at
from ..workloads.applications.registry import application, choices

AUDIT_LIMIT = 60.0
"""Time limit of one command of the audit inside an instance, in seconds."""
#: Suffix of a fact of an application: whether its reads and writes were served by a cache or a device.
MEETS = ": meets"
CMA, ALLOWED = "process_vm_readv (CMA)", "allowed"


def audit_arms(node: Node, arms: Sequence[RunningArm]) -> dict[str, dict[str, str]]:
    """Return {arm: {fact: value}}, checked inside the first instance of every running arm."""
    host = node.machine.host
    ranks = dict.fromkeys(a.placement.ranks for a in arms)
    names = dict.fromkeys(w.argv_on(n)[0] for w in node.study.commands for n in ranks)
    for w in node.study.applications:
        names |= dict.fromkeys(application(w.application).needs(choices(w)).programs)
    further = [host.which(name) or name for name in names]
    found: dict[str, dict[str, str]] = {}
    for a in arms:
        software = a.software
        programs = [software.tools / "nm-micro", software.mpi.mpirun, *further]
        inside = _inside(node, a.instances[0])
        known = facts(inside, programs) | {CMA: _cma(software.tools, inside)}
        if node.study.design.single_copy is SingleCopy.CMA and known[CMA] != ALLOWED:
            raise UnavailableError(
                f"environment {a.environment.name}: process_vm_readv is {known[CMA]}",
                remedy="single_copy: none, alike for all environments, or allow ptrace in the environment",
            )
        # nearmetal's tools are in another directory for each image; without it, the facts have the same
        # names.
        prefix = f"{software.tools.directory}/"
        found[a.trial.arm.name] = {name.replace(prefix, ""): value for name, value in known.items()}
    return found


def _cma(tools: Tools, inside: Callable[[Sequence[str]], Completed]) -> str:
    """Return whether ranks in the instance may read each other's memory by process_vm_readv(2): 'allowed' or
    'refused: <reason>'; 'unavailable: <reason>' if that cannot be checked."""
    done = inside([tools / "nm-box", "cma"])
    return done.stdout.strip() if done.ok else f"unavailable: {done.failure()}"


def application_facts(records: Sequence[TrialRecord]) -> dict[str, dict[str, str]]:
    """Return the facts that applications reported as text about their runs, by arm and 'workload: fact':
    {arm: {'fio: meets': 'the page cache', ...}}.

    Numbers are omitted, since they differ between trials anyway.
    """
    found: dict[str, dict[str, str]] = {}
    for r in records:
        for workload, given in r.facts.items():
            texts = {f"{workload}: {key}": value for key, value in given.items() if isinstance(value, str)}
            found.setdefault(r.arm, {}).update(texts)
    return found


def served_differently(reported: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Return a sentence for each application whose reads and writes were served differently in two arms, for
    example by a cache in only one of them.

    Its figures then compare a cache with a device, not the environments.
    """
    return tuple(
        f"{d.name.removesuffix(MEETS)} differs between the environments: "
        + "; ".join(f"{arm}: {value}" for arm, value in d.values.items())
        for d in compare(reported)
        if d.name.endswith(MEETS)
    )


def parity(found: Mapping[str, Mapping[str, str]]) -> dict[str, JsonValue]:
    """Return {'facts': ..., 'differences': [...]} over all arms, including arms that did not run at the same
    time."""
    return {
        "facts": {arm: dict(values) for arm, values in found.items()},
        "differences": [asdict(d) for d in compare({arm: dict(values) for arm, values in found.items()})],
    }


def storage_found(arm: RunningArm) -> list[JsonValue]:
    """Check the storage of every instance from inside the instance, and return its description.

    Raises TrialFailedError if the storage differs from the one that the study requests, or cannot be used.
    Figures measured on it would be meaningless.
    """
    storage = arm.environment.storage
    assert storage is not None
    pairs = zip(arm.instances, arm.volumes, strict=True)
    return [look(arm.node.machine.host, i, v, storage) for i, v in pairs]


def working_directory_found(arm: RunningArm) -> JsonValue:
    """Return the mount that contains the working directory of the user's own programs, as the first instance
    sees it: mounted_at(), or 'unavailable: <reason>'."""
    done = _inside(arm.node, arm.instances[0])(["cat", "/proc/self/mountinfo"])
    if not done.ok:
        return f"unavailable: {done.failure()}"
    own = any(w.own_directory for w in arm.node.study.commands)
    directory = arm.trial.work if own and arm.trial.work is not None else Path.cwd()
    return mounted_at(done.stdout, directory)


def limits_found(arm: RunningArm) -> JsonValue:
    """Return the limits that were requested, and those that the kernel enforces on the first instance."""
    return {
        "asked": {**asdict(arm.environment.limits)},
        "found": {**cgroups.read_back(arm.instances[0].cgroups)},
    }


def _inside(node: Node, instance: Instance) -> Callable[[Sequence[str]], Completed]:
    return lambda argv: node.machine.host.run(instance.command(argv), timeout=AUDIT_LIMIT)

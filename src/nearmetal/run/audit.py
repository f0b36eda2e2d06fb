"""The parity audit: the same questions asked inside every arm, and what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from ..environments import Instance, Tools
from ..errors import UnavailableError
from ..host import Completed, cgroups
from ..host.facts.audit import compare, facts
from ..model.record import JsonValue, TrialRecord
from ..model.study import ApplicationWorkload, CommandWorkload, SingleCopy
from ..node.node import Node
from ..node.running_arm import RunningArm
from ..node.storage import look
from ..workloads.applications.registry import application, choices

AUDIT_LIMIT = 60.0
#: Fact of an application: what its reads and writes met, a cache or a device.
MEETS = ": meets"
CMA, ALLOWED = "process_vm_readv (CMA)", "allowed"


def audit_arms(node: Node, arms: Sequence[RunningArm]) -> dict[str, dict[str, str]]:
    """{arm: {fact: value}} from inside the first instance of every running arm."""
    host = node.machine.host
    ranks = dict.fromkeys(a.placement.ranks for a in arms)
    own = [w for w in node.study.workloads if isinstance(w, CommandWorkload)]
    names = dict.fromkeys(w.argv_on(n)[0] for w in own for n in ranks)
    known = [w for w in node.study.workloads if isinstance(w, ApplicationWorkload)]
    names |= dict.fromkeys(n for w in known for n in application(w.application).needs(choices(w)).programs)
    further = [host.which(name) or name for name in names]
    found: dict[str, dict[str, str]] = {}
    for a in arms:
        software = a.software
        programs = [software.tools / "nm-micro", software.mpi.mpirun, *further]
        inside = _inside(node, a.instances[0])
        asked = facts(inside, programs) | {CMA: _cma(software.tools, inside)}
        if node.study.design.single_copy is SingleCopy.CMA and asked[CMA] != ALLOWED:
            raise UnavailableError(
                f"environment {a.environment.name}: process_vm_readv is {asked[CMA]}",
                remedy="single_copy: none, alike for all arms, or allow ptrace in the environment",
            )
        # Ours lie elsewhere for each image: the question is the same by the name alone.
        prefix = f"{software.tools.directory}/"
        found[a.trial.arm.name] = {name.replace(prefix, ""): value for name, value in asked.items()}
    return found


def _cma(tools: Tools, inside: Callable[[Sequence[str]], Completed]) -> str:
    """Whether ranks in the instance may read each other's memory: 'allowed', 'refused: <reason>'."""
    done = inside([tools / "nm-box", "cma"])
    return done.stdout.strip() if done.ok else f"unavailable: {done.failure()}"


def applications_said(records: Sequence[TrialRecord]) -> dict[str, dict[str, str]]:
    """{arm: {'fio: meets': 'the page cache', ...}}: what applications told of how they ran, in words; their
    figures differ from trial to trial anyway."""
    found: dict[str, dict[str, str]] = {}
    for r in records:
        for workload, given in r.facts.items():
            told = {f"{workload}: {key}": value for key, value in given.items() if isinstance(value, str)}
            found.setdefault(r.arm, {}).update(told)
    return found


def met_differently(said: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """A sentence for each application whose reads and writes met something else in one arm than in another:
    their figures compare the two, not the environments."""
    return tuple(
        f"{d.name.removesuffix(MEETS)} met other things in one arm than in another: "
        + "; ".join(f"{arm}: {value}" for arm, value in d.values.items())
        for d in compare(said)
        if d.name.endswith(MEETS)
    )


def parity(found: Mapping[str, Mapping[str, str]]) -> dict[str, JsonValue]:
    """{'facts': ..., 'differences': [...]} of all arms together, whenever each of them stood."""
    return {
        "facts": {arm: dict(values) for arm, values in found.items()},
        "differences": [asdict(d) for d in compare({arm: dict(values) for arm, values in found.items()})],
    }


def storage_found(arm: RunningArm) -> list[JsonValue]:
    """What the storage of every instance is, as seen from inside; raises TrialFailedError where it is not
    what the study asks for, or cannot be used: no number of it would mean anything."""
    storage = arm.environment.storage
    assert storage is not None
    pairs = zip(arm.instances, arm.volumes, strict=True)
    return [look(arm.node.machine.host, i, v, storage).as_json() for i, v in pairs]


def limits_found(arm: RunningArm) -> JsonValue:
    """What was asked for, and what the kernel holds the first instance to."""
    return {
        "asked": {**asdict(arm.environment.limits)},
        "found": {**cgroups.read_back(arm.instances[0].cgroups)},
    }


def _inside(node: Node, instance: Instance) -> Callable[[Sequence[str]], Completed]:
    return lambda argv: node.machine.host.run(instance.command(argv), timeout=AUDIT_LIMIT)

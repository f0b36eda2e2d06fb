"""Control groups that exist for a whole run. They are made for instances that use them only to count
resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ...environments import Accounted, Backend, InstanceRequest
from ...host import Host
from ...host.counters.files import CounterFiles, cgroup_paths
from ...model.environments.image import HOST
from ...model.environments.placement import NodeKind
from ...model.study import Arm, Limits, Study
from .seats import hostname, slot, with_aa

HELD_INSTANCES = 16
"""The counter files stay open for up to this many instances. A process may open 1024 files, and an instance
needs 9."""


@dataclass(frozen=True, kw_only=True)
class AccountingGroups:
    """The control groups that all instances of one label use, one instance after the other.

    groups: directory by controller.
    files: the counters of these groups.
    """

    groups: Mapping[str, Path]
    files: CounterFiles


def accounting_groups(
    host: Host,
    study: Study,
    arms: Mapping[str, Arm],
    backends: Mapping[str, Backend],
    label: str,
    scratch: Path,
    stack: ExitStack,
) -> dict[str, AccountingGroups]:
    """Create the control groups that exist for the whole run, and return them by the label of the instances
    that use them.

    None are created if the study measures starts and stops. Arms with limits are left out: a quota, for
    example, would begin in the middle of its period.

    stack: removes the groups when it is closed.

    Raises RunError.
    """
    if any(w.event for w in study.workloads):
        return {}
    made: dict[str, Mapping[str, Path]] = {}
    for arm, aa in with_aa(arms.values(), study.design.baselines[0]):
        backend = backends[arm.environment.backend]
        if isinstance(backend, Accounted) and _only_accounted(arm):
            for request in _requests(arm, f"{label}-{slot(arms, arm.name, aa)}", scratch):
                made[request.label] = stack.enter_context(backend.accounts(request))
    held = len(made) <= HELD_INSTANCES
    found = {
        own: AccountingGroups(groups=groups, files=CounterFiles(host, cgroup_paths(groups), held=held))
        for own, groups in made.items()
    }
    for kept in found.values():
        stack.callback(kept.files.close)
    return found


def _only_accounted(arm: Arm) -> bool:
    environment, place = arm.environment, arm.placement
    return environment.limits == Limits() and environment.image == HOST and place.node is NodeKind.LOCAL


def _requests(arm: Arm, label: str, scratch: Path) -> Iterator[InstanceRequest]:
    for number in range(arm.placement.all_instances):
        yield InstanceRequest(
            label=f"{label}-{number}",
            hostname=hostname(str(number)),
            environment=arm.environment,
            scratch=scratch,
        )

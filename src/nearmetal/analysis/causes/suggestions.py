"""Table of the changes that may help against each cause. The table must not depend on measured values."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ...model.result import Change, Suggestion
from ...model.study import (
    Arm,
    Attachment,
    KernelWorkload,
    Limits,
    Pages,
    Pinning,
    StorageKind,
    Transport,
    Workload,
)

SHORT_RTO = 0.002
"""RTO in seconds for networks within a machine or a rack, whose round trips take microseconds."""

_DEARER = frozenset((Attachment.VETH_BRIDGE, Attachment.VETH_ROUTED, Attachment.VXLAN, Attachment.OVS))
CHEAPER = Attachment.MACVLAN
_SLOWER_STORAGE = frozenset((StorageKind.OVERLAY, StorageKind.LOOP))


@dataclass(frozen=True)
class Remedy:
    """A change that may help against a cause.

    cause: name of a Cause ('DELAY'), or a clause of the explaining sentence ('communication').
    fits: returns whether the change can be made, given the arm, its baseline and the workload.
    change: None if no study can make the change.
    words: the change in words.
    """

    cause: str
    fits: Callable[[Arm, Arm, Workload], bool]
    change: Change | None
    words: str


def _own_limit(name: str) -> Callable[[Arm, Arm, Workload], bool]:
    def fits(arm: Arm, baseline: Arm, _: Workload) -> bool:
        return _limit(arm.environment.limits, name) not in (None, _limit(baseline.environment.limits, name))

    return fits


def _limit(limits: Limits, name: str) -> float | None:
    return {"cpu": limits.cpu_quota, "cpu_shares": limits.cpu_shares, "memory": limits.memory}[name]


def _long_rto(arm: Arm, _: Arm, __: Workload) -> bool:
    least = arm.environment.network.rto_min
    return arm.environment.attachment.seated and (least is None or least > SHORT_RTO)


def _loose(arm: Arm, _: Arm, __: Workload) -> bool:
    return arm.placement.pinning is not Pinning.RANK and not arm.placement.oversubscribe


def _small_pages(_: Arm, __: Arm, workload: Workload) -> bool:
    return isinstance(workload, KernelWorkload) and workload.pages is Pages.SMALL


def _slow_storage(arm: Arm, _: Arm, __: Workload) -> bool:
    storage = arm.environment.storage
    return storage is not None and storage.kind in _SLOWER_STORAGE


def _divided(arm: Arm, baseline: Arm, _: Workload) -> bool:
    """Return whether the arm's tasks could share memory as the baseline's tasks do."""
    divided = arm.placement.instances > 1 and not arm.placement.node.emulated
    return divided and (arm.transport, baseline.transport) == (Transport.TCP, Transport.SHM)


def _dear_attachment(arm: Arm, baseline: Arm, _: Workload) -> bool:
    attached = arm.environment.attachment
    return attached in _DEARER and baseline.transport is Transport.TCP


#: The first one that fits is suggested.
REMEDIES: tuple[Remedy, ...] = (
    Remedy("THROTTLED", _own_limit("cpu"), Change.CPU, "take the CPU quota out (limits: cpu)"),
    Remedy("TIMEOUTS", _long_rto, Change.RTO_MIN, f"rto_min {SHORT_RTO * 1e3:.0f} ms (network: rto_min)"),
    Remedy(
        "DELAY", _own_limit("cpu_shares"), Change.CPU_SHARES, "give it the usual weight (limits: cpu_shares)"
    ),
    Remedy(
        "DELAY",
        lambda arm, *_: arm.environment.beside is not None,
        None,
        "other CPUs for its companion (beside: cpus)",
    ),
    Remedy("DELAY", _loose, Change.PINNING, "a CPU of its own for each rank (pinning: rank)"),
    Remedy(
        "DELAY",
        lambda arm, *_: arm.placement.oversubscribe,
        None,
        "no more ranks than CPUs (oversubscribe: false)",
    ),
    Remedy("MEMORY", _own_limit("memory"), Change.MEMORY, "take the memory limit out (limits: memory)"),
    Remedy("DISK", _slow_storage, Change.STORAGE, "a directory of the machine for its files (storage: bind)"),
    Remedy("TLB", _small_pages, None, "huge pages (pages: huge)"),
    Remedy("FAULTS", _small_pages, None, "huge pages (pages: huge)"),
    Remedy(
        "MPI without shared memory",
        _divided,
        Change.ONE_INSTANCE,
        "all tasks in one instance, where they share memory",
    ),
    Remedy(
        "communication", _divided, Change.ONE_INSTANCE, "all tasks in one instance, where they share memory"
    ),
    Remedy(
        "communication",
        _dear_attachment,
        Change.ATTACHMENT,
        f"a shorter way through the kernel (attachment: {CHEAPER.value})",
    ),
    Remedy("DELAY", lambda *_: True, None, "find out who else uses its CPUs"),
)


def suggest(
    proven: Collection[str], sentence: str, arm: Arm, baseline: Arm, workload: Workload
) -> Suggestion | None:
    """Return a change that may help against the first cause that has such a change; None if none has.

    proven: names of the proven causes (Cause), largest first.
    sentence: the explaining sentence. Its clauses, separated by semicolons, count as further causes.
    """
    clauses = [clause.strip() for clause in sentence.split(";")]
    for found in (*proven, *clauses):
        for remedy in REMEDIES:
            if remedy.cause == found and remedy.fits(arm, baseline, workload):
                return Suggestion(change=remedy.change, words=remedy.words)
    return None

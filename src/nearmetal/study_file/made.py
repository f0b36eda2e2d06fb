"""Sections that fit -> what they stand for in a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..model.network import NetworkSettings
from ..model.study import Companion, Design, Environment, Limits, NodeLink, Placement, Storage, Study
from .checks import reach_memory, usable
from .design import baselines_of
from .guest import guest_of
from .problems import Path, Problems
from .tree import MapNode, mark_of

if TYPE_CHECKING:
    from .sections import (
        BesideSection,
        DesignSection,
        EnvironmentSection,
        LimitsSection,
        NetworkSection,
        PlacementSection,
        StorageSection,
    )


def frame_of(
    root: MapNode,
    name: str,
    placements: Mapping[str, PlacementSection | None],
    environments: Mapping[str, EnvironmentSection | None],
    design: DesignSection | None,
    seed: int | None,
    problems: Problems,
) -> Study | None:
    """The study without its workloads; None as long as a name in it leads nowhere."""
    known = {k: v for k, v in placements.items() if v is not None}
    sound = {k: v for k, v in environments.items() if v is not None}
    if (
        design is None
        or len(known) < len(placements)
        or len(sound) < len(environments)
        or not known
        or not sound
    ):
        return None
    names = tuple(n for _, n in baselines_of(design))
    if not names or any(n not in sound for n in names):
        return None
    built = []
    for key, section in sound.items():
        usual = tuple(n for n, p in known.items() if usable(section, p) and reach_memory(section, p))
        used = tuple(section.placements) if section.placements is not None else usual
        if not used:
            at: Path = ("environments", key)
            what = f"attachment {section.attachment} can serve no placement; write attachment: veth-bridge"
            problems.add(mark_of(root, at, key=True), at, what)
        if not used or any(n not in known for n in used):
            return None
        around = section if section.inside is None else sound.get(section.inside, section)
        built.append(environment_of(key, section, around, used))
    final = design.seed if design.seed is not None else seed
    return Study(
        name=name,
        question="",
        environments=tuple(built),
        placements=tuple(
            Placement(
                name=key,
                nodes=p.nodes,
                instances=p.instances,
                tasks=p.tasks,
                cpus=tuple(p.cpus),
                link=NodeLink(rate=p.link.rate, delay=p.link.delay, queue=p.link.queue),
                pinning=p.pinning,
                oversubscribe=p.oversubscribe,
            )
            for key, p in known.items()
        ),
        workloads=(),
        design=_design(design, names, final if final is not None else 0),
    )


def environment_of(
    name: str, section: EnvironmentSection, around: EnvironmentSection, placements: tuple[str, ...]
) -> Environment:
    """around: the one that it stands inside, or itself."""
    return Environment(
        name=name,
        backend=section.backend,
        image=around.image,
        attachment=section.attachment,
        network=_network(section.network),
        limits=_limits(section.limits),
        guest=guest_of(around.guest),
        inside=section.inside,
        own=next(iter(section.own_settings().values()), None),
        storage=_storage(section.storage),
        beside=_beside(section.beside),
        placements=placements,
        workloads=tuple(section.workloads),
        transport=section.transport,
        share=tuple(section.share),
        extra_work=section.extra_work,
        emulated=section.emulated,
    )


def _limits(section: LimitsSection) -> Limits:
    return Limits(cpu_quota=section.cpu, cpu_shares=section.cpu_shares, memory=section.memory)


def _beside(section: BesideSection | None) -> Companion | None:
    if section is None:
        return None
    return Companion(
        backend=section.backend,
        argv=tuple(section.command),
        limits=_limits(section.limits),
        cpus=tuple(section.cpus),
    )


def _storage(section: StorageSection | None) -> Storage | None:
    if section is None:
        return None
    return Storage(kind=section.kind, path=section.path, size=section.size, overwrite=section.overwrite)


def _network(section: NetworkSection) -> NetworkSettings:
    offloads = section.offloads
    return NetworkSettings(
        mode=section.mode,
        devices=tuple(section.devices),
        subnet=section.subnet,
        mtu=section.mtu,
        rto_min=section.rto_min,
        congestion_control=section.congestion_control,
        rate=section.rate,
        queue_length=section.queue_length,
        tso=offloads.tso,
        gso=offloads.gso,
        gro=offloads.gro,
    )


def _design(section: DesignSection, baselines: tuple[str, ...], seed: int) -> Design:
    return Design(
        baselines=baselines,
        margin=section.margin,
        confidence=section.confidence,
        seed=seed,
        mode=section.mode,
        min_blocks=section.min_blocks,
        expected_blocks=section.expected_blocks,
        max_blocks=section.max_blocks,
        max_time=section.max_time,
        target_width=section.target_width,
        slices=section.slices,
        runs=section.runs,
        warm_up=section.warm_up,
        profile=section.profile,
        perf_events=section.perf_events,
        sample_every=section.sample_every,
        instance_counters=section.instance_counters,
        starts=section.starts,
        mpi=section.mpi,
        reach=section.reach,
        single_copy=section.single_copy,
        primary=tuple(section.primary),
    )

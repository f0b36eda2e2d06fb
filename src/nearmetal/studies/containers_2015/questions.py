"""The paper's three questions: packing, containers of one node, one container on each node."""

from __future__ import annotations

from ...model.series import Part, Scale
from .made import (
    CONTAINER,
    NATIVE,
    ONE_CPU,
    Setting,
    container,
    kernels,
    lacking,
    native,
    placement,
    study_of,
)


def q1(setting: Setting, scale: Scale, seed: int) -> Part:
    """Packing: the same ranks on fewer and fewer nodes, one in each instance."""
    title, share, ranks = "Q1: packing", 0.24, setting.ranks
    if ranks < 2:
        return lacking("q1", title, share, ONE_CPU)
    each = [1 << i for i in range(ranks.bit_length()) if 1 << i <= min(8, ranks)]
    packed = [placement(nodes=ranks // k, instances=k, tasks=1) for k in each]
    study = study_of(
        "q1",
        f"What do 1 to {each[-1]} containers on each node cost {ranks} ranks, against bare nodes?",
        [native(packed[:1]), container(setting, packed)],
        packed,
        kernels(scale),
        baselines=[NATIVE],
        scale=scale,
        seed=seed,
    )
    return Part(
        key="q1",
        title=title,
        share=share,
        study=study,
        places={
            "spread": f"{NATIVE}/{packed[0].name}",
            "packed": f"{CONTAINER}/{packed[-1].name}",
            **{f"{k} per node": f"{CONTAINER}/{p.name}" for k, p in zip(each, packed, strict=True)},
        },
        notes=(
            f"As many ranks ({ranks}) in every arm, one in each container; never more containers than the "
            "node has cores.",
        ),
    )


def q2(setting: Setting, scale: Scale, seed: int) -> Part:
    """Containers of one node, against shared memory and against separate nodes."""
    title, share, ranks = "Q2: between the containers of one node", 0.2, setting.ranks
    if ranks < 2:
        return lacking("q2", title, share, ONE_CPU)
    tasks = 2 if ranks >= 4 else 1
    shared = placement(instances=1, tasks=ranks)
    own = placement(instances=ranks // tasks, tasks=tasks)
    nodes = placement(nodes=ranks // tasks, instances=1, tasks=tasks)
    study = study_of(
        "q2",
        "What do messages between containers of one node cost, against shared memory and against nodes?",
        [native([shared]), container(setting, [own]), native([nodes], name="multinode")],
        [shared, own, nodes],
        kernels(scale, larger=True),
        baselines=[NATIVE],
        scale=scale,
        seed=seed,
        profile=True,
    )
    return Part(
        key="q2",
        title=title,
        share=share,
        study=study,
        places={
            "shared memory": f"{NATIVE}/{shared.name}",
            "container": f"{CONTAINER}/{own.name}",
            "multinode": f"multinode/{nodes.name}",
        },
        notes=("Every rank is profiled in every arm alike.",),
    )


def q3(setting: Setting, scale: Scale, seed: int) -> Part:
    """One container on each node, with all its CPUs."""
    ranks = setting.ranks
    places = [placement(instances=1, tasks=ranks)]
    if ranks >= 2:
        places.append(placement(nodes=2, instances=1, tasks=ranks // 2))
    study = study_of(
        "q3",
        "What does one container on each node, with all its CPUs, cost against the bare node?",
        [native(places), container(setting, places)],
        places,
        kernels(scale),
        baselines=[NATIVE],
        scale=scale,
        seed=seed,
    )
    return Part(
        key="q3",
        title="Q3: one container on each node",
        share=0.2,
        study=study,
        places={"native": f"{NATIVE}/{places[-1].name}", "container": f"{CONTAINER}/{places[-1].name}"},
        notes=(
            "On one node messages pass through shared memory; over several every message goes by TCP, those "
            "within a node too. Both sides alike.",
        ),
    )

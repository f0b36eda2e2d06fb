"""The paper's three questions: packing, containers on one node, one container on each node."""

from __future__ import annotations

from ...model.series import Part
from .made import CONTAINER, NATIVE, ONE_CPU, Heading, PartRequest, container, kernels, native, placement


def q1(request: PartRequest) -> Part:
    """Return the part on packing: the same number of ranks, one per instance, on fewer and fewer nodes."""
    heading, ranks = Heading(key="q1", title="Q1: packing", share=0.22), request.setting.ranks
    if ranks < 2:
        return heading.lacking(ONE_CPU)
    each = [1 << i for i in range(ranks.bit_length()) if 1 << i <= min(8, ranks)]
    packed = [placement(nodes=ranks // k, instances=k, tasks=1) for k in each]
    return heading.part(
        request,
        f"What do 1 to {each[-1]} containers on each node cost {ranks} ranks, against bare nodes?",
        [native(packed[:1]), container(request.setting, packed)],
        packed,
        kernels(request.scale),
        places={
            "spread": (NATIVE, packed[0]),
            "packed": (CONTAINER, packed[-1]),
            **{f"{k} per node": (CONTAINER, p) for k, p in zip(each, packed, strict=True)},
        },
        notes=(
            f"As many ranks ({ranks}) in every environment, one in each container; never more containers "
            "than the node has cores.",
        ),
    )


def q2(request: PartRequest) -> Part:
    """Return the part on containers of one node, compared with shared memory and with separate nodes."""
    heading = Heading(key="q2", title="Q2: between the containers of one node", share=0.14)
    ranks = request.setting.ranks
    if ranks < 2:
        return heading.lacking(ONE_CPU)
    tasks = 2 if ranks >= 4 else 1
    shared = placement(instances=1, tasks=ranks)
    own = placement(instances=ranks // tasks, tasks=tasks)
    nodes = placement(nodes=ranks // tasks, instances=1, tasks=tasks)
    return heading.part(
        request,
        "What do messages between containers of one node cost, against shared memory and against nodes?",
        [native([shared]), container(request.setting, [own]), native([nodes], name="multinode")],
        [shared, own, nodes],
        kernels(request.scale, larger=True),
        places={
            "shared memory": (NATIVE, shared),
            "container": (CONTAINER, own),
            "multinode": ("multinode", nodes),
        },
        notes=("Every rank is profiled, in every environment alike.",),
        profile=True,
    )


def q3(request: PartRequest) -> Part:
    """Return the part with one container on each node, which uses all its CPUs."""
    ranks = request.setting.ranks
    places = [placement(instances=1, tasks=ranks)]
    if ranks >= 2:
        places.append(placement(nodes=2, instances=1, tasks=ranks // 2))
    return Heading(key="q3", title="Q3: one container on each node", share=0.2).part(
        request,
        "What does one container on each node, with all its CPUs, cost against the bare node?",
        [native(places), container(request.setting, places)],
        places,
        kernels(request.scale),
        places={"native": (NATIVE, places[-1]), "container": (CONTAINER, places[-1])},
        notes=(
            "On one node messages pass through shared memory; over several every message goes by TCP, those "
            "within a node too. Both sides alike.",
        ),
    )

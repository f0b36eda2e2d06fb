"""The parts of the study on the network: the retransmission timeout, and alternatives that avoid the
timeouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...model.environments.network import NetworkSettings
from ...model.series import Part
from ...model.study import Attachment, KernelWorkload, NodeLink
from .made import (
    CLASSES,
    CONTAINER,
    NATIVE,
    ONE_CPU,
    SLICES,
    Heading,
    PartRequest,
    container,
    native,
    placement,
)

#: With this setting, the end of about every second long message is lost, and no short message.
LOSSY = NodeLink(rate=400e6 / 8, queue=16_000)
#: The attachments that the paper proposes in place of veth and a bridge.
CURES = (Attachment.MACVLAN, Attachment.OVS, Attachment.SRIOV)


def rto(request: PartRequest) -> Part:
    """Return the part that compares TCP's default smallest RTO with the one that the paper set, with packet
    loss.
    """
    heading = Heading(key="rto", title="The retransmission time-out", share=0.12)
    setting, ranks = request.setting, request.setting.ranks
    if ranks < 2:
        return heading.lacking(ONE_CPU)
    lossy = replace(placement(nodes=2, instances=1, tasks=ranks // 2), link=LOSSY)
    small = {"cg": ("iterations", 2), "is": ("rounds", 2)}
    return heading.part(
        request,
        "Where a small queue loses packets, what does TCP's least time-out of 0.2 s cost, and what 2 ms?",
        [
            native([lossy]),
            container(setting, [lossy]),
            container(setting, [lossy], name="container-2ms", network=NetworkSettings(rto_min=0.002)),
        ],
        [lossy],
        [
            *(
                KernelWorkload(name=k, kernel=k, params={"class": CLASSES[request.scale][k], key: count})
                for k, (key, count) in small.items()
            ),
            KernelWorkload(
                name="large",
                kernel="pingpong",
                params={"bytes": 256 << 10, "measure": "bandwidth", "trips": 2},
            ),
        ],
        places={
            "native": (NATIVE, lossy),
            "container, 0.2 s": (CONTAINER, lossy),
            "container, 2 ms": ("container-2ms", lossy),
        },
        notes=(
            f"Packets are lost for one cause alone, the same in every environment: at each end of a link of "
            f"{LOSSY.rate * 8 / 1e6:.0f} Mbit/s no more than {LOSSY.queue / 1000:.0f} kB wait. Messages "
            "shorter than that, such as those of CG on two ranks, lose none.",
        ),
        baselines=(NATIVE, CONTAINER),
        slices=2,
    )


def cures(request: PartRequest) -> Part:
    """Return the part with the attachments that the paper proposes in place of veth and a bridge, each as an
    arm."""
    heading = Heading(key="cures", title="The cures: other attachments", share=0.08)
    return _attachments(request, heading, "macvlan or SR-IOV", [a for a in CURES if a is not Attachment.OVS])


def ovs(request: PartRequest) -> Part:
    """Return the part on Open vSwitch alone.

    If Open vSwitch forwards packets in user space, its blocks take up to ten times as long as those of the
    other attachments. In the same study, they would leave the others without a verdict.
    """
    heading = Heading(key="ovs", title="The cures: Open vSwitch", share=0.14)
    if Attachment.OVS not in request.setting.attachments:
        return heading.lacking(request.setting.lacking.get(Attachment.OVS, "Open vSwitch was not looked for"))
    return _attachments(request, heading, "Open vSwitch", [Attachment.OVS], slices=1)


def _attachments(
    request: PartRequest, heading: Heading, words: str, named: Sequence[Attachment], slices: int = SLICES
) -> Part:
    setting, ranks = request.setting, request.setting.ranks
    if ranks < 2:
        return heading.lacking(ONE_CPU)
    shared = placement(instances=1, tasks=ranks)
    own = placement(instances=ranks, tasks=1)
    settings = {Attachment.SRIOV: NetworkSettings(devices=setting.functions)}
    here = [a for a in named if a in setting.attachments]
    missing = [f"{a.value}: {setting.lacking[a]}" for a in named if a in setting.lacking]
    return heading.part(
        request,
        f"What do messages between containers cost by {words}, against veth + bridge?",
        [
            native([shared], attachment=Attachment.LOOPBACK),
            container(setting, [own]),
            *(
                container(setting, [own], name=f"container-{a.value}", attachment=a, network=settings.get(a))
                for a in here
            ),
        ],
        [shared, own],
        [
            *(
                KernelWorkload(name=k, kernel=k, params={"class": CLASSES[request.scale][k]})
                for k in ("cg", "is")
            ),
            KernelWorkload(name="latency", kernel="pingpong", params={"bytes": 8, "measure": "latency"}),
            KernelWorkload(
                name="bandwidth", kernel="pingpong", params={"bytes": 4 << 20, "measure": "bandwidth"}
            ),
        ],
        places={
            "native": (NATIVE, shared),
            "container": (CONTAINER, own),
            **{a.value: (f"container-{a.value}", own) for a in here},
        },
        notes=(
            f"One node, one rank in each of {ranks} containers; bare metal over TCP as well (loopback).",
            *(f"Not on this machine: {text}." for text in missing),
        ),
        baselines=(NATIVE, CONTAINER) if here else (NATIVE,),
        slices=slices,
    )

"""What the paper says of the network: the retransmission time-out, and the cures."""

from __future__ import annotations

from dataclasses import replace

from ...model.network import NetworkSettings
from ...model.series import Part, Scale
from ...model.study import Attachment, KernelWorkload, NodeLink
from .made import (
    CLASSES,
    CONTAINER,
    NATIVE,
    ONE_CPU,
    Setting,
    container,
    lacking,
    native,
    placement,
    study_of,
)

#: Loses the end of about every second long message that is sent at once, and nothing of short ones.
LOSSY = NodeLink(rate=400e6 / 8, queue=16_000)
#: What the paper names in place of veth and a bridge.
CURES = (Attachment.MACVLAN, Attachment.OVS, Attachment.SRIOV)


def rto(setting: Setting, scale: Scale, seed: int) -> Part:
    """Packets are lost: the least time-out of TCP as it is, and as the paper set it."""
    title, share, ranks = "The retransmission time-out", 0.14, setting.ranks
    if ranks < 2:
        return lacking("rto", title, share, ONE_CPU)
    lossy = replace(placement(nodes=2, instances=1, tasks=ranks // 2), link=LOSSY)
    small = {"cg": ("iterations", 2), "is": ("rounds", 2)}
    study = study_of(
        "rto",
        "Where a small queue loses packets, what does TCP's least time-out of 0.2 s cost, and what 2 ms?",
        [
            native([lossy]),
            container(setting, [lossy]),
            container(setting, [lossy], name="container-2ms", network=NetworkSettings(rto_min=0.002)),
        ],
        [lossy],
        [
            *(
                KernelWorkload(name=k, kernel=k, params={"class": CLASSES[scale][k], key: count})
                for k, (key, count) in small.items()
            ),
            KernelWorkload(
                name="large",
                kernel="pingpong",
                params={"bytes": 256 << 10, "measure": "bandwidth", "trips": 2},
            ),
        ],
        baselines=[NATIVE, CONTAINER],
        scale=scale,
        seed=seed,
        slices=2,
    )
    return Part(
        key="rto",
        title=title,
        share=share,
        study=study,
        places={
            "native": f"{NATIVE}/{lossy.name}",
            "container, 0.2 s": f"{CONTAINER}/{lossy.name}",
            "container, 2 ms": f"container-2ms/{lossy.name}",
        },
        notes=(
            f"Packets are lost for one cause alone, the same in every arm: at each end of a link of "
            f"{LOSSY.rate * 8 / 1e6:.0f} Mbit/s no more than {LOSSY.queue / 1000:.0f} kB wait. Messages "
            "shorter than that, such as those of CG on two ranks, lose none.",
        ),
    )


def cures(setting: Setting, scale: Scale, seed: int) -> Part:
    """The attachments that the paper names in place of veth and a bridge, each as an arm."""
    title, share, ranks = "The cures: other attachments", 0.12, setting.ranks
    if ranks < 2:
        return lacking("cures", title, share, ONE_CPU)
    shared = placement(instances=1, tasks=ranks)
    own = placement(instances=ranks, tasks=1)
    settings = {Attachment.SRIOV: NetworkSettings(devices=setting.functions)}
    study = study_of(
        "cures",
        "What do messages between containers cost by macvlan, Open vSwitch or SR-IOV, against veth + bridge?",
        [
            native([shared], attachment=Attachment.LOOPBACK),
            container(setting, [own]),
            *(
                container(setting, [own], name=f"container-{a.value}", attachment=a, network=settings.get(a))
                for a in setting.attachments
            ),
        ],
        [shared, own],
        [
            KernelWorkload(name="cg", kernel="cg", params={"class": CLASSES[scale]["cg"]}),
            KernelWorkload(name="is", kernel="is", params={"class": CLASSES[scale]["is"]}),
            KernelWorkload(name="latency", kernel="pingpong", params={"bytes": 8, "measure": "latency"}),
            KernelWorkload(
                name="bandwidth", kernel="pingpong", params={"bytes": 4 << 20, "measure": "bandwidth"}
            ),
        ],
        baselines=[NATIVE, CONTAINER] if setting.attachments else [NATIVE],
        scale=scale,
        seed=seed,
    )
    missing = [f"{a.value}: {why}" for a, why in setting.lacking.items()]
    return Part(
        key="cures",
        title=title,
        share=share,
        study=study,
        places={
            "native": f"{NATIVE}/{shared.name}",
            "container": f"{CONTAINER}/{own.name}",
            **{a.value: f"container-{a.value}/{own.name}" for a in setting.attachments},
        },
        notes=(
            f"One node, one rank in each of {ranks} containers; bare metal over TCP as well (loopback).",
            *(f"Not on this machine: {text}." for text in missing),
        ),
    )

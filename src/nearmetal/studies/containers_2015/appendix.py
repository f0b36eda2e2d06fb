"""The part on topics that the paper left for future work: limits of memory, and files."""

from __future__ import annotations

from ...model.series import Part
from ...model.study import (
    STORAGE,
    CommandWorkload,
    EventSubject,
    KernelWorkload,
    Limits,
    Storage,
    StorageKind,
)
from ...subjects.start_stop import START
from .made import CLASSES, CONTAINER, NATIVE, Heading, PartRequest, container, native, placement

WRITTEN = 32 << 20


def appendix(request: PartRequest) -> Part:
    """Return the part on topics that the paper left for future work: limits of memory, and files."""
    one = placement(instances=1, tasks=1)
    limit = 1 << 30
    computing = ("stream", "mg", "start")
    overlay = Storage(kind=StorageKind.OVERLAY)
    files = {
        "tmpfs": Storage(kind=StorageKind.TMPFS, size=4 * WRITTEN),
        "loop": Storage(kind=StorageKind.LOOP, size=4 * WRITTEN),
    }
    setting = request.setting
    heading = Heading(key="appendix", title="Appendix: what the paper left for later", share=0.1)
    return heading.part(
        request,
        "What do a memory limit that is not reached, files and the start of a container cost?",
        [
            native([one], storage=overlay),
            container(setting, [one], storage=overlay),
            container(
                setting,
                [one],
                name="container-memory",
                limits=Limits(memory=limit),
                workloads=computing,
            ),
            *(
                container(setting, [one], name=f"container-{name}", storage=storage, workloads=("write",))
                for name, storage in files.items()
            ),
        ],
        [one],
        [
            KernelWorkload(name="stream", kernel="stream", params={"elements": 2_000_000}),
            KernelWorkload(name="mg", kernel="mg", params={"class": CLASSES[request.scale]["mg"]}),
            EventSubject(name="start", facts=START),
            CommandWorkload(
                name="write",
                argv=(
                    *("dd", "if=/dev/zero", f"of={STORAGE}/data", "bs=4k"),
                    *(f"count={WRITTEN >> 12}", "conv=fsync"),
                ),
                time_limit=120.0,
            ),
        ],
        places={"native": (NATIVE, one), "container": (CONTAINER, one)},
        notes=(
            f"The memory limit is {limit >> 20} MiB, far above what the work takes. Files: "
            f"{WRITTEN >> 20} MiB written by dd and forced to the device (fsync), on the overlay of the "
            "image, in memory (tmpfs) and on an ext4 in a file (loop).",
        ),
        baselines=(NATIVE, CONTAINER),
    )

"""Records: writes files as an ocean model does. It writes short records into files of about 1 MB, and
checkpoints followed by fsync, in the storage of the environment."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.study import Better
from ..parameter import AUTO, Choices, Kind, Parameter
from .contract import Kernel, KernelMetric, KernelSetting, SliceWork, WorkKind


def _keys(choices: Choices, _: KernelSetting) -> Mapping[str, str | int]:
    return {name: int(choices.values[name]) for name in ("record", "file", "files", "checkpoint")}


def _work(choices: Choices, setting: KernelSetting) -> SliceWork:
    """Return the work of a slice. Only the part `records` grows with it; the checkpoint at the end of a slice
    takes the same time after any number of records."""
    records = choices.whole("records")
    units = None if records is None else max(1, round(records / setting.ranks))
    return SliceWork(units=units, parts=("records",))


_KERNEL = Kernel(
    name="records",
    kind=WorkKind.FILES,
    doc="output of an ocean model: records of 200 B into files of 1 MiB, and checkpoints; needs storage",
    parameters=(
        Parameter("record", Kind.BYTES, 200, "of one write to a file", least=16, most=1 << 20),
        Parameter("file", Kind.BYTES, 1 << 20, "of a file, then comes the next", least=16),
        Parameter(
            "files", Kind.WHOLE, 32, "files of each rank, then the first is written again", most=1 << 20
        ),
        Parameter(
            "checkpoint",
            Kind.BYTES,
            4 << 20,
            "of a checkpoint of each rank, forced to the medium at the end of a time share",
        ),
        Parameter(
            "records",
            Kind.WHOLE,
            AUTO,
            "written per time share, over all ranks; auto: as many as fill about 1 ms",
        ),
    ),
    keys=_keys,
    work=_work,
    metrics=lambda _: (
        KernelMetric(name="records", unit="op/s", better=Better.HIGHER, part="records"),
        KernelMetric(name="checkpoint", unit="s", better=Better.LOWER, part="checkpoint"),
    ),
    storage=True,
)

KERNELS = (_KERNEL,)

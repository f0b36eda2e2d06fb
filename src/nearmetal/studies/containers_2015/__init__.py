"""Repeats the study 'Performance evaluation of containers for HPC' (2015) on one machine, as one study per
part.

No I/O: the caller passes in the properties of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...model.series import Scale, Series
from .appendix import appendix
from .made import NAME, AvailableMachine, PartRequest
from .network import CURES, LOSSY, cures, ovs, rto
from .questions import q1, q2, q3

__all__ = [
    "CONTAINERS",
    "CURES",
    "LOSSY",
    "NAME",
    "USUAL_TIME",
    "AvailableMachine",
    "containers_2015",
    "part_keys",
]

TITLE = "Does it make sense to use containers for HPC? The study of 2015, asked of this machine"
#: Backends that can represent the containers of the paper, the paper's own first.
CONTAINERS = ("lxc", "namespaces")
#: Default time in seconds.
USUAL_TIME = {Scale.SMALL: 900.0, Scale.PAPER: 8 * 3600.0}


def part_keys() -> tuple[str, ...]:
    return tuple(_PARTS)


def containers_2015(
    setting: AvailableMachine, *, scale: Scale, seed: int, max_time: float, only: Sequence[str] = ()
) -> Series:
    """Return the parts of the study as a series.

    only: keys of the requested parts; empty for all.
    """
    request = PartRequest(setting=setting, scale=scale, seed=seed)
    parts = tuple(make(request) for key, make in _PARTS.items() if not only or key in only)
    return Series(
        name=NAME,
        title=TITLE,
        scale=scale,
        paper=NAME,
        seed=seed,
        max_time=max_time,
        parts=parts,
        notes=(*_notes(setting), *setting.notes),
    )


def _notes(setting: AvailableMachine) -> Iterator[str]:
    yield (
        f"Containers by {setting.container}, {setting.ranks} ranks; nodes that this machine lacks are "
        "emulated: network namespaces with CPUs of their own behind links of limited rate, labelled so "
        "wherever they are named."
    )
    yield (
        "Kernel versions are boot states, never members of one run: run this under each kernel, then "
        "nearmetal compare the parts' results directories."
    )


_PARTS = {
    "q1": q1,
    "q2": q2,
    "q3": q3,
    "rto": rto,
    "cures": cures,
    "ovs": ovs,
    "appendix": appendix,
}

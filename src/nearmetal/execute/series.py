"""A series on this machine: what it offers, and how the time is shared out over the parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from ..environments import Unavailable
from ..environments.holder import user_namespace_holder
from ..environments.registry import backend_names, get_backend
from ..errors import NearmetalError, UnavailableError
from ..host.runtime import scratch_directory
from ..model.network import NetworkSettings
from ..model.series import Part
from ..model.study import Attachment
from ..network import Want, attempted_networks
from ..studies.containers_2015 import CURES, Setting
from .machine import Machine
from .progress import Progress
from .session import new_label

SYS_NET, FUNCTIONS = Path("/sys/class/net"), "*/device/sriov_totalvfs"

#: Backends that may stand for the containers of the paper, the paper's own first.
CONTAINERS = ("lxc", "namespaces")


def setting_here(machine: Machine, progress: Progress) -> Setting:
    """What this machine offers, by really starting an instance of each backend in turn until one works, and
    by building the networks that some part asks for."""
    notes: list[str] = []
    known = [name for name in CONTAINERS if name in backend_names()]
    container = known[-1]  # the run itself says why the last one cannot run, as for every other study
    for name in known:
        progress.phase(f"does {name} work here")
        answer = get_backend(name).check(machine.host, machine.tools)
        if not isinstance(answer, Unavailable):
            container = name
            break
        notes.append(f"Not by {name}, as the paper has it: {answer.reason}.")
    progress.phase("which attachments can be built here")
    functions = tuple(p.parents[1].name for p in sorted(SYS_NET.glob(FUNCTIONS)))
    built = {Attachment.SRIOV: "no network card with virtual functions"} if not functions else {}
    lacking = {**_not_built(machine, [a for a in CURES if not a.on_device]), **built}
    return Setting(
        cpus=len(machine.cpus),
        container=container,
        attachments=tuple(a for a in CURES if a not in lacking),
        lacking=lacking,
        functions=functions,
        notes=tuple(notes),
    )


def _not_built(machine: Machine, wanted: Sequence[Attachment]) -> dict[Attachment, str]:
    """Why some cannot be built here, found by building all and taking them away again."""
    wants = tuple(Want(attachment=a, settings=NetworkSettings(), instances=2) for a in wanted)
    label = new_label()
    try:
        with ExitStack() as stack:
            scratch = stack.enter_context(scratch_directory(label))
            holder = None
            if not machine.host.is_root():
                holder = stack.enter_context(user_namespace_holder(machine.host, machine.tools, label))
            tried = stack.enter_context(
                attempted_networks(label, wants, scratch, user_namespace_holder=holder, host=machine.host)
            )
            found = dict(zip(wanted, tried, strict=True))
    except NearmetalError as e:
        return dict.fromkeys(wanted, e.what)
    return {a: e.what for a, e in found.items() if isinstance(e, UnavailableError)}


def setting_planned(cpus: int) -> Setting:
    """What a plan stands on, which starts nothing: the containers of the paper where they are known here."""
    first, *others = [name for name in CONTAINERS if name in backend_names()]
    notes = (f"{first} where it works here, else {' or '.join(others)}: the run finds out",) if others else ()
    likely = tuple(a for a in CURES if not a.on_device)
    return Setting(cpus=cpus, container=first, attachments=likely, notes=notes)


def budget(part: Part, waiting: Iterable[Part], left: float) -> float:
    """Seconds for a part: its share of what is left, beside the parts that still wait (it among them), so
    that what one leaves the others have."""
    shares = sum(p.share for p in waiting)
    return max(left, 1.0) * part.share / shares

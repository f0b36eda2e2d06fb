"""What passes between the files, FIFOs and processes of virtual machines and ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..environments import Guest, Instance
from ..errors import TrialFailedError
from ..host import Process
from ..host.ranks import RankHolds
from ..network.differences import differences
from ..subjects.job import Job

if TYPE_CHECKING:
    from .trial import Standing


INTERFACE = "eth0"
"""Of a guest, whatever it is joined to."""


def guests_among(instances: Sequence[Instance]) -> tuple[Guest, ...]:
    """Those that are virtual machines."""
    # A protocol of many members takes long to compare with: most instances have not even the first.
    return tuple(i for i in instances if hasattr(i, "copy_in") and isinstance(i, Guest))


def into_guests(standing: Standing, further: Sequence[Path] = ()) -> None:
    """Everything that stands in the directory of an arm, into each of its guests; not what belongs to an
    instance or a user of the machine alone. Raises RunError."""
    own = standing.guests
    if own:
        paths = [p for p in sorted(standing.directory.iterdir()) if not p.name.startswith("instance-")]
        for guest in own:
            guest.copy_in([*paths, *further])


def out_of_guests(standing: Standing, further: Sequence[Path] = ()) -> None:
    """What ranks have written: their reports and profiles, and these. Raises RunError."""
    tasks = standing.arm.placement.tasks
    for number, guest in enumerate(standing.guests):
        ranks = range(number * tasks, (number + 1) * tasks)
        paths = [standing.directory / f"rank.{r}.json" for r in ranks]
        paths += [standing.profiles] if standing.profiles is not None else []
        guest.copy_out([*paths, *further])


def carried(standing: Standing) -> list[Process]:
    """The FIFOs of a job, to and from the guests of its ranks; the caller ends them."""
    tasks = standing.arm.placement.tasks
    out: list[Process] = []
    try:
        for number, guest in enumerate(standing.guests):
            for name in (f"token.{r}" for r in range(number * tasks, (number + 1) * tasks)):
                out += [guest.carry(standing.directory / name, inward=True)]
            out.append(guest.carry(standing.directory / "out", inward=False))
    except BaseException:
        for process in out:
            process.kill()
        raise
    return out


def carried_gate(standing: Standing, gate: Path) -> list[Process]:
    """The FIFOs of a gate (copies.py), to and from all guests; the caller ends them."""
    own = standing.guests
    return [
        *(g.carry(gate / "arrived", inward=False) for g in own),
        *(g.carry(gate / "gate", inward=True) for g in own),
    ]


def carry_job(job: Job, standing: Standing) -> None:
    """Copy a job's FIFOs into the guests and carry them until it is closed. Raises RunError."""
    if standing.guests:
        into_guests(standing)
        job.keep(carried(standing))


def settled_networks(standing: Standing) -> None:
    """What each guest's own kernel says of its interface, kept in standing.facts and held against what was
    asked for: the seat on the machine shows what its other end has. Raises RunError, TrialFailedError."""
    environment = standing.arm.environment
    if not environment.attachment.interfaced:
        return
    wanted = replace(environment.network, rate=None)  # the seat holds it to that
    for guest, instance in zip(standing.guests, standing.instances, strict=False):
        found = guest.network(INTERFACE)
        standing.facts[f"network.{instance.hostname}"] = found
        if wrong := differences(wanted, None, {instance.hostname: {"kind": None, **found}}):
            raise TrialFailedError("; ".join(wrong), where=str(standing.log))


def trouble(standing: Standing) -> str:
    """Why a guest of the arm does not run any more; empty where all do."""
    return next((said for g in standing.guests if (said := g.trouble())), "")


def keep_consoles(standing: Standing) -> None:
    """Write what the guests of a failed arm have said to its log."""
    for guest, instance in zip(standing.guests, standing.instances, strict=False):
        standing.log.mkdir(parents=True, exist_ok=True)
        (standing.log / f"console.{instance.hostname}.txt").write_text(guest.console())


def holdings(standing: Standing, mark: str) -> dict[int, RankHolds]:
    """See host.ranks.rank_holdings; memory of different guests is never the same."""
    found: dict[int, RankHolds] = {}
    for number, guest in enumerate(standing.guests):
        for rank, holds in guest.rank_holdings(mark).items():
            memory = frozenset((f"guest {number}: {device}", inode) for device, inode in holds.memory)
            found[rank] = replace(holds, memory=memory)
    return found

"""What passes between the files, FIFOs and processes of virtual machines and ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..environments import Guest
from ..host import Process
from ..host.ranks import RankHolds
from .job import Job

if TYPE_CHECKING:
    from .standing import Standing


def guests(standing: Standing) -> list[Guest]:
    """Those of a standing arm's instances that are virtual machines."""
    return [i for i in standing.instances if isinstance(i, Guest)]


def into_guests(standing: Standing, further: Sequence[Path] = ()) -> None:
    """Everything that stands in the directory of an arm, into each of its guests; not what belongs to an
    instance or a user of the machine alone. Raises RunError."""
    own = guests(standing)
    if own:
        paths = [p for p in sorted(standing.directory.iterdir()) if not p.name.startswith("instance-")]
        for guest in own:
            guest.copy_in([*paths, *further])


def out_of_guests(standing: Standing, further: Sequence[Path] = ()) -> None:
    """What ranks have written: their reports and profiles, and these. Raises RunError."""
    tasks = standing.arm.placement.tasks
    for number, guest in enumerate(guests(standing)):
        ranks = range(number * tasks, (number + 1) * tasks)
        paths = [standing.directory / f"rank.{r}.json" for r in ranks]
        paths += [standing.profiles] if standing.profiles is not None else []
        guest.copy_out([*paths, *further])


def carried(standing: Standing) -> list[Process]:
    """The FIFOs of a job, to and from the guests of its ranks; the caller ends them."""
    tasks = standing.arm.placement.tasks
    out: list[Process] = []
    try:
        for number, guest in enumerate(guests(standing)):
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
    own = guests(standing)
    return [
        *(g.carry(gate / "arrived", inward=False) for g in own),
        *(g.carry(gate / "gate", inward=True) for g in own),
    ]


def carry_job(job: Job, standing: Standing) -> None:
    """Copy a job's FIFOs into the guests and carry them until it is closed. Raises RunError."""
    if guests(standing):
        into_guests(standing)
        job.keep(carried(standing))


def trouble(standing: Standing) -> str:
    """Why a guest of the arm does not run any more; empty where all do."""
    return next((said for g in guests(standing) if (said := g.trouble())), "")


def keep_consoles(standing: Standing) -> None:
    """Write what the guests of a failed arm have said to its log."""
    for guest, instance in zip(guests(standing), standing.instances, strict=False):
        standing.log.mkdir(parents=True, exist_ok=True)
        (standing.log / f"console.{instance.hostname}.txt").write_text(guest.console())


def holdings(standing: Standing, mark: str) -> dict[int, RankHolds]:
    """See host.ranks.rank_holdings; memory of different guests is never the same."""
    found: dict[int, RankHolds] = {}
    for number, guest in enumerate(guests(standing)):
        for rank, holds in guest.rank_holdings(mark).items():
            memory = frozenset((f"guest {number}: {device}", inode) for device, inode in holds.memory)
            found[rank] = replace(holds, memory=memory)
    return found

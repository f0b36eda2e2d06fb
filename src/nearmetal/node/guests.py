"""What passes between the files, FIFOs and processes of virtual machines and those of the machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..environments import Guest, Instance
from ..errors import TrialFailedError
from ..host import Process
from ..host.processes.ranks import RankHolds
from ..model.environments.environment import Environment
from ..model.record import JsonValue
from ..network.differences import differences

INTERFACE = "eth0"
"""Of a guest, whatever it is joined to."""


def guests_among(instances: Sequence[Instance]) -> tuple[Guest, ...]:
    """Those that are virtual machines."""
    # A protocol of many members takes long to compare with: most instances have not even the first.
    return tuple(i for i in instances if hasattr(i, "copy_in") and isinstance(i, Guest))


def into_guests(guests: Sequence[Guest], directory: Path, further: Sequence[Path] = ()) -> None:
    """Copy everything in the directory of a trial into each guest, except what belongs to one instance or to
    a user of the machine alone; then the further paths. Raises RunError."""
    if guests:
        paths = [p for p in sorted(directory.iterdir()) if not p.name.startswith("instance-")]
        for guest in guests:
            guest.copy_in([*paths, *further])


def out_of_guests(guests: Sequence[Guest], directory: Path, tasks: int, further: Sequence[Path] = ()) -> None:
    """Copy the reports of the ranks and the further paths out of the guests. Raises RunError.

    tasks: ranks of each guest.
    """
    for number, guest in enumerate(guests):
        ranks = range(number * tasks, (number + 1) * tasks)
        guest.copy_out([*(directory / f"rank.{r}.json" for r in ranks), *further])


def carry_fifos(fifos: Iterable[tuple[Guest, Path, bool]]) -> list[Process]:
    """Carry FIFOs between the machine and guests; the caller ends the processes that do it.

    fifos: each with its guest, its path, and whether it carries into the guest.
    """
    carriers: list[Process] = []
    try:
        for guest, path, inward in fifos:
            carriers.append(guest.carry(path, inward=inward))
    except BaseException:
        for process in carriers:
            process.kill()
        raise
    return carriers


def check_networks(
    environment: Environment, guests: Sequence[Guest], instances: Sequence[Instance], log: Path
) -> dict[str, Mapping[str, JsonValue]]:
    """What each guest's own kernel says of its interface, by 'network.<host name>'. The other end of the
    interface is checked where it was built.

    Raises TrialFailedError if the kernel has set the interface otherwise than the study asks, and RunError.
    """
    if not environment.attachment.interfaced:
        return {}
    wanted = replace(environment.network, rate=None)  # the seat limits the rate
    found = {
        instance.hostname: guest.network(INTERFACE)
        for guest, instance in zip(guests, instances, strict=False)
    }
    for hostname, network in found.items():
        if wrong := differences(wanted, None, {hostname: {"kind": None, **network}}):
            raise TrialFailedError("; ".join(wrong), where=str(log))
    return {f"network.{hostname}": network for hostname, network in found.items()}


def trouble(guests: Sequence[Guest]) -> str:
    """Why a guest does not run any more; empty while all run."""
    return next((said for g in guests if (said := g.trouble())), "")


def keep_consoles(guests: Sequence[Guest], instances: Sequence[Instance], log: Path) -> None:
    """Write what the guests of a failed arm have said to its log."""
    for guest, instance in zip(guests, instances, strict=False):
        log.mkdir(parents=True, exist_ok=True)
        (log / f"console.{instance.hostname}.txt").write_text(guest.console())


def holdings(guests: Sequence[Guest], mark: str) -> dict[int, RankHolds]:
    """See host.ranks.rank_holdings; memory of different guests is never the same."""
    found: dict[int, RankHolds] = {}
    for number, guest in enumerate(guests):
        for rank, holds in guest.rank_holdings(mark).items():
            memory = frozenset((f"guest {number}: {device}", inode) for device, inode in holds.memory)
            found[rank] = replace(holds, memory=memory)
    return found

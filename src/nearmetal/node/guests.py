"""Exchanges files and data between the machine and its virtual machines, and checks what runs in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..environments import Instance, RemoteInstance
from ..errors import TrialFailedError
from ..host import Process
from ..host.processes.ranks import RankHolds
from ..model.environments.environment import Environment
from ..model.record import JsonValue
from ..network.differences import differences

INTERFACE = "eth0"
"""Name of the network interface inside a guest, for every attachment."""


def guests_among(instances: Sequence[Instance]) -> tuple[RemoteInstance, ...]:
    """Return the instances that are virtual machines."""
    # isinstance() with a protocol of many members is slow; most instances lack already the first member.
    return tuple(i for i in instances if hasattr(i, "copy_in") and isinstance(i, RemoteInstance))


def into_guests(guests: Sequence[RemoteInstance], directory: Path, further: Sequence[Path] = ()) -> None:
    """Copy a trial's directory into each guest, and then the further paths.

    Raises RunError.
    """
    if guests:
        for guest in guests:
            guest.copy_in([*sorted(directory.iterdir()), *further])


def out_of_guests(
    guests: Sequence[RemoteInstance], directory: Path, tasks: int, further: Sequence[Path] = ()
) -> None:
    """Copy the reports of the ranks and the further paths out of the guests.

    directory: directory of the trial.
    tasks: number of ranks in each guest.

    Raises RunError.
    """
    for number, guest in enumerate(guests):
        ranks = range(number * tasks, (number + 1) * tasks)
        guest.copy_out([*(directory / f"rank.{r}.json" for r in ranks), *further])


def carry_fifos(fifos: Iterable[tuple[RemoteInstance, Path, bool]]) -> list[Process]:
    """Relay FIFOs between the machine and guests. The caller must end the processes that are returned.

    fifos: (guest, path of the FIFO, whether data flow into the guest) for each FIFO.
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
    environment: Environment, guests: Sequence[RemoteInstance], instances: Sequence[Instance], log: Path
) -> dict[str, Mapping[str, JsonValue]]:
    """Read the settings of each guest's interface from the guest's kernel, by 'network.<host name>'.

    The other end of the interface is checked where it is built.

    Raises TrialFailedError if the kernel's settings differ from those of the study, and RunError.
    """
    if not environment.attachment.interfaced:
        return {}
    wanted = replace(environment.network, rate=None)  # the rate is limited at the host's end
    found = {
        instance.hostname: guest.network(INTERFACE)
        for guest, instance in zip(guests, instances, strict=False)
    }
    for hostname, network in found.items():
        if wrong := differences(wanted, None, {hostname: {"kind": None, **network}}):
            raise TrialFailedError("; ".join(wrong), where=str(log))
    return {f"network.{hostname}": network for hostname, network in found.items()}


def trouble(guests: Sequence[RemoteInstance]) -> str:
    """Return why a guest no longer runs; empty while all run."""
    return next((reason for g in guests if (reason := g.trouble())), "")


def keep_consoles(guests: Sequence[RemoteInstance], instances: Sequence[Instance], log: Path) -> None:
    """Write the console output of the guests of a failed arm to its log."""
    for guest, instance in zip(guests, instances, strict=False):
        log.mkdir(parents=True, exist_ok=True)
        (log / f"console.{instance.hostname}.txt").write_text(guest.console())


def holdings(guests: Sequence[RemoteInstance], mark: str) -> dict[int, RankHolds]:
    """Return the connections and shared memory of the ranks, as host.processes.ranks.rank_holdings() does.
    Memory in different guests is never counted as shared."""
    found: dict[int, RankHolds] = {}
    for number, guest in enumerate(guests):
        for rank, holds in guest.rank_holdings(mark).items():
            memory = frozenset((f"guest {number}: {device}", inode) for device, inode in holds.memory)
            found[rank] = replace(holds, memory=memory)
    return found

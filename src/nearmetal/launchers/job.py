"""What an MPI launch is made of, whatever the MPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..model.record import JsonValue
from ..model.study import Transport


@dataclass(frozen=True, kw_only=True)
class HostSlots:
    """A host and how many ranks it takes."""

    host: str
    slots: int


@dataclass(frozen=True, kw_only=True)
class MpiJob:
    """argv: the program of every rank; hosts: empty = all ranks where mpirun itself runs; agent: tokens of
    the remote-start agent, for hosts; interface: network interface of the ranks that TCP may use;
    hub_interface: interface by which mpirun reaches its daemons; scratch: directory for session files, short,
    since sockets with names of at most 108 bytes stand in it; yields: a rank
    that waits gives its CPU away, for another rank has to run there."""

    argv: tuple[str, ...]
    ranks: int
    transport: Transport
    interface: str
    scratch: str
    hosts: tuple[HostSlots, ...] = ()
    agent: tuple[str, ...] = ()
    hub_interface: str = ""
    yields: bool = False


@dataclass(frozen=True, kw_only=True)
class Launch:
    """argv and env start it; transport: what was fixed, for the record."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    transport: Mapping[str, JsonValue]

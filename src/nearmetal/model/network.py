"""What upper rooms hand from the network to the environments: a seat on a network that is built already."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A place on a network that is built already. netns: path of the network namespace to join;
    address: IPv4 address there; interface: its name inside; port: the other end of its pair, in the hub."""

    netns: str
    address: str
    interface: str
    port: str

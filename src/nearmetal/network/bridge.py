"""The network veth-bridge: a hub namespace with one bridge, and a namespace per seat joined to it by a
veth pair.

As root the namespaces are named (/run/netns/<label>-hub, -a, -b ...), so that 'nearmetal clean' finds
them; without root small processes of the user namespace hold them, and die with us.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import RunError
from ..host import Host, LocalHost, namespaces, processes
from ..host.network_meter import DESCRIPTORS, NetworkMeter, taken_over
from ..model.network import Seat
from ..model.record import JsonValue
from . import plan

WORKER_TIMEOUT = 30.0


class Holder(Protocol):
    """What a network needs of the shared user namespace (environments.holder.UserNamespaceHolder)."""

    def command(self, argv: Sequence[str], *, pid: int | None = None) -> list[str]:
        """Tokens that run argv as root of the user namespace in pid's network namespace."""

    def network_namespace(self) -> AbstractContextManager[int]:
        """A new network namespace in it: the pid that holds it."""


@dataclass(frozen=True, kw_only=True)
class BridgedNetwork:
    """A network that stands. hub_*: where mpirun runs; read_back: facts by place ('hub', 'seat 0', ...): MTU,
    congestion control, least RTO, queueing discipline, as the namespaces themselves report them; meters: what
    reads the counters of each namespace, by its path, open while the network stands; empty where descriptors
    are scarce."""

    hub_netns: str
    hub_address: str
    hub_interface: str
    seats: tuple[Seat, ...]
    read_back: Mapping[str, JsonValue]
    hub_enter: tuple[str, ...]
    meters: Mapping[str, NetworkMeter]

    def hub_command(self, argv: Sequence[str]) -> list[str]:
        """Tokens that run argv on the machine, but in the hub's network."""
        return [*self.hub_enter, *argv]


@contextmanager
def bridge(
    run_label: str,
    seats: int,
    *,
    user_namespace_holder: Holder | None = None,
    host: Host | None = None,
) -> Iterator[BridgedNetwork]:
    """A bridge with so many seats; run_label: 'nearmetal-<run>'; everything is gone on leaving.

    Raises RunError when the kernel refuses, UsageError for more than 253 seats.
    """
    names = plan.seat_names(seats)
    machine = host or LocalHost()
    with ExitStack() as stack:
        if user_namespace_holder is None:
            created = tuple(f"{run_label}-{name}" for name in ("hub", *names))
            stack.enter_context(namespaces.named_network_namespaces(created))
            hub, *places = (str(namespaces.NETNS_DIRECTORY / name) for name in created)
            enter = ["env", f"{processes.LABEL_VARIABLE}={run_label}", "nsenter", f"--net={hub}", "--"]
            worker = _worker_argv()
        else:
            created = ()
            pids = [stack.enter_context(user_namespace_holder.network_namespace()) for _ in ("hub", *names)]
            hub, *places = (f"/proc/{pid}/ns/net" for pid in pids)
            enter = user_namespace_holder.command([], pid=pids[0])
            worker = user_namespace_holder.command(_worker_argv(), pid=pids[0])
        settled = plan.make_seats(places)
        ours, theirs = _meter_sockets(stack, len(places) + 1)
        asked = plan.request(run_label, hub, settled, create=created, meters=theirs)
        done = machine.run(
            worker,
            timeout=WORKER_TIMEOUT,
            stdin=json.dumps(asked),
            cwd=Path("/"),
            pass_fds=() if theirs is None else (theirs,),
        )
        if not done.ok:
            raise RunError(
                f"the network could not be built: {done.last_words()}", remedy="nearmetal clean, then again"
            )
        meters = _meters(stack, ours, (hub, *places))
        yield BridgedNetwork(
            hub_netns=hub,
            hub_address=plan.hub_address(),
            hub_interface=plan.HUB_INTERFACE,
            seats=settled,
            read_back=json.loads(done.stdout),
            hub_enter=tuple(enter),
            meters=meters,
        )


def _meter_sockets(stack: ExitStack, places: int) -> tuple[socket.socket | None, int | None]:
    """Our end, and the descriptor of the worker's; none where the meters would take half of the files that we
    may have open."""
    if places * DESCRIPTORS > resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
        return None, None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stack.callback(ours.close)
    stack.callback(theirs.close)
    return ours, theirs.fileno()


def _meters(stack: ExitStack, taken: socket.socket | None, paths: Sequence[str]) -> dict[str, NetworkMeter]:
    """By namespace, in the order in which the worker handed them over."""
    meters: dict[str, NetworkMeter] = {}
    if taken is None:
        return meters
    for path in paths:
        meter = taken_over(taken)
        if meter is None:
            break
        stack.callback(meter.close)
        meters[path] = meter
    return meters


def _worker_argv() -> list[str]:
    return [sys.executable, "-m", "nearmetal.network.worker"]

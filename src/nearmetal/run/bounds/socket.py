"""Measures the latency of plain TCP sockets: the lower bound for a message between ranks.

It is measured over loopback and between the first two addresses of an arm, while nothing else runs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

from ...errors import RunError
from ...model.roof import MeasuredRoof, RoofRequest
from ...model.study import Better
from ...network.build import Network
from ...node.machine import Machine

LIMIT = 120.0
LOOPBACK = "127.0.0.1"


def by_sockets(
    networks: Mapping[str, Network], machine: Machine, wanted: RoofRequest, label: str, scratch: Path
) -> MeasuredRoof:
    """Measure the latency of plain TCP sockets, in seconds.

    networks: networks by name of the arm; arms whose instances have no address of their own are missing.
    wanted: its place names the arm whose network is used; loopback is used if that is missing.

    Raises RunError if the measurement fails.
    """
    argv = [machine.tools / "nm-box", "trip", "--cpus", ",".join(map(str, machine.cpus[:2]))]
    network = networks.get(wanted.place)
    if network is None:
        argv += ["--address", LOOPBACK]
    else:
        near, far, *_ = network.seats
        argv += ["--near", near.netns, "--far", far.netns, "--address", far.address]
        argv = network.hub_command(argv)
    done = machine.host.run(argv, timeout=LIMIT)
    if not done.ok:
        raise RunError(f"sockets {'over loopback' if network is None else wanted.place}: {done.failure()}")
    return MeasuredRoof(
        name=wanted.name,
        ranks=wanted.ranks,
        transport=wanted.transport,
        value=float(json.loads(done.stdout)["seconds"]),
        unit="s",
        better=Better.LOWER,
        measured=time.time(),
        how="nm-box trip, 8 B each way, both ends spinning, best batch",
        place=wanted.place,
    )

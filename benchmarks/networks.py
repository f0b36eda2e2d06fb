"""Time to build the networks of a run: six topologies together, from the call until all exist and have been
read back.

By hand: python -m benchmarks.networks
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.study import Attachment
from nearmetal.network.build import build_networks
from nearmetal.network.plan import NetworkRequest

ROUNDS = 10
LIMIT = 0.5  # seconds
SIX = ("veth", "veth-bridge", "veth-routed", "macvlan", "vxlan")
SETTINGS = NetworkSettings(rto_min=0.002, congestion_control="reno", rate=125e6, mtu=1400)


def wants() -> list[NetworkRequest]:
    """Return requests for five networks of two instances with different attachments, and for one with every
    setting of routes and queues."""
    kinds = [(Attachment(name), NetworkSettings()) for name in SIX]
    kinds.append((Attachment.VETH_BRIDGE, SETTINGS))
    return [NetworkRequest(attachment=a, settings=s, instances=2) for a, s in kinds]


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    built, gone, cpu = [], [], []
    for round_ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as scratch:
            begin, spent = time.monotonic(), _cpu_of_children()
            with build_networks(f"nearmetal-bench{os.getpid()}-{round_}", wants(), Path(scratch)) as networks:
                built.append(time.monotonic() - begin)
                cpu.append(_cpu_of_children() - spent)
                assert len(networks) == len(wants())
                begin = time.monotonic()
            gone.append(time.monotonic() - begin)
    print(f"six networks, {ROUNDS} times, seconds: median, least, most")
    for what, values in (("built", built), ("of it CPU", cpu), ("taken away", gone)):
        print(f"  {what:<11} {statistics.median(values):.3f}  {min(values):.3f}  {max(values):.3f}")
    good = statistics.median(built) < LIMIT
    print(f"  limit {LIMIT:g} s: {'kept' if good else 'NOT kept'}")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()

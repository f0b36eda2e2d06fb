"""The links between emulated nodes: relays where the kernel cannot delay frames itself, and the measured
properties of the links."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..environments import Tools
from ..host import REPORT_FD, Host, cgroups
from ..host.processes.running import await_true, running_helper
from ..model.record import JsonValue
from ..network.build import Emulation, Holder, Network

START_TIMEOUT, PROBE_TIMEOUT, ANSWER = 60.0, 240.0, 10.0


@dataclass(frozen=True, kw_only=True)
class Relay:
    """A running process that forwards the frames of emulated links where the kernel cannot delay them.

    realtime: whether it runs with a real-time priority.
    statistics: file to which it writes its statistics on SIGUSR1.
    """

    pid: int
    realtime: bool
    statistics: Path

    def statistics_so_far(self) -> dict[str, JsonValue]:
        """Return how many frames the relay has forwarded so far, and their lateness; empty if it does not
        answer."""
        had = self.statistics.stat().st_size
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)

        def answer() -> bytes:
            return self.statistics.read_bytes()[had:]

        if not await_true(lambda: answer().endswith(b"\n"), ANSWER, every=0.001):
            return {}
        return dict(json.loads(answer().splitlines()[-1]))


@dataclass(frozen=True, kw_only=True)
class Links:
    """The links of all emulated networks.

    measured: by label of the network, 'rate' in bytes per second and 'round_trip' in seconds.
    relays: by label of the network.
    """

    measured: Mapping[str, Mapping[str, float]]
    relays: Mapping[str, Relay]

    def record(self, network: Network) -> dict[str, JsonValue]:
        """Return the provenance of a network's links; empty if nothing is emulated.

        measured: taken before the first trial, without other load from nearmetal.
        relay: statistics of all frames until now.
        """
        e = network.emulation
        if e is None:
            return {}
        relay = self.relays.get(network.label)
        by = "relay" if relay is not None else "netem" if e.link.delay else "bridge"
        link: dict[str, JsonValue] = {
            "rate": e.link.rate,
            "delay": e.link.delay,
            "queue": e.link.queue,
            "delay_by": by,
            "measured": dict(self.measured.get(network.label, {})),
        }
        if relay is not None:
            link["relay"] = {"realtime": relay.realtime, **relay.statistics_so_far()}
        return {"emulated_nodes": len(e.nodes), "link": link}


@contextmanager
def node_links(
    host: Host,
    tools: Tools,
    networks: Sequence[Network],
    groups: Mapping[str, Path],
    scratch: Path,
    label: str,
    holder: Holder | None,
) -> Iterator[Links]:
    """Run the relay of every emulated network that needs one, in the given control groups. All relays are
    stopped on exit.

    Raises RunError.
    """
    emulated = {n.label: n.emulation for n in networks if n.emulation is not None}
    with ExitStack() as stack:
        relays = {
            name: stack.enter_context(
                _relay(host, tools, e, groups, scratch / f"{name}.relay", label, holder)
            )
            for name, e in emulated.items()
            if e.relay
        }
        yield Links(measured=_measured(host, emulated, holder), relays=relays)


@contextmanager
def _relay(
    host: Host,
    tools: Tools,
    emulation: Emulation,
    groups: Mapping[str, Path],
    statistics: Path,
    label: str,
    holder: Holder | None,
) -> Iterator[Relay]:
    argv = relay_argv(tools, emulation, groups, statistics, holder)
    expect = {"ports", "realtime", "pid"}
    with running_helper(host, argv, label, expect=expect, timeout=START_TIMEOUT) as launched:
        facts = launched.facts
        yield Relay(pid=facts["pid"], realtime=bool(facts["realtime"]), statistics=statistics)


def relay_argv(
    tools: Tools, emulation: Emulation, groups: Mapping[str, Path], statistics: Path, holder: Holder | None
) -> list[str]:
    """Return the command line of a relay. No I/O."""
    argv = [tools / "nm-box", "relay", "--delay-ns", str(round(emulation.link.delay * 1e9))]
    argv += ["--netns", emulation.switch, "--statistics", str(statistics), "--report-fd", str(REPORT_FD)]
    for group in cgroups.unique(groups) if holder is None else ():
        argv += ["--cgroup", str(group)]
    argv += ["--", *emulation.relay]
    return argv if holder is None else holder.command(argv)


def _measured(
    host: Host, emulated: Mapping[str, Emulation], holder: Holder | None
) -> dict[str, dict[str, float]]:
    """Measure the link between the first two emulated nodes of each network with
    nearmetal.network.link_probe.

    Raises RunError if the nodes cannot reach each other.
    """
    if not emulated:
        return {}
    pairs = []
    for e in emulated.values():
        first, second, *_ = e.nodes.values()
        pairs.append({"from": first, "to": second, "address": e.addresses[1]})
    argv = [sys.executable, "-P", "-m", "nearmetal.network.link_probe"]
    done = host.run(
        argv if holder is None else holder.command(argv),
        timeout=PROBE_TIMEOUT,
        stdin=json.dumps({"pairs": pairs}),
        cwd=Path("/"),
    ).require("emulated nodes do not reach each other", remedy="nearmetal clean, then again")
    return dict(zip(emulated, json.loads(done.stdout), strict=True))

"""The ranks of the job that is moved (nm-keeper with a rank), three of them on the loopback interface, and
the change of seats of an instance."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.patience import until

from nearmetal.environments import InstanceRequest, Tools
from nearmetal.host import LocalHost
from nearmetal.lifecycle import read_steps
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.study import Attachment, Environment, NodeLink
from nearmetal.network.build import Network, build_networks
from nearmetal.network.plan import NetworkRequest
from nearmetal.subjects.events.hooks import SeatChange
from nearmetal.subjects.events.progress import read_progress
from nearmetal.subjects.events.tcp_job import port_of

pytestmark = [pytest.mark.more, pytest.mark.beside]

ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
MEMORY = str(1 << 20)


@contextmanager
def job(tools: Tools, directory: Path, port: str) -> Iterator[list[subprocess.Popen[str]]]:
    with ExitStack() as stack:
        ranks = []
        for rank in range(len(ADDRESSES)):
            words = [
                MEMORY,
                str(directory / f"record.{rank}"),
                MEMORY,
                "1000000",
                str(rank),
                port,
                *ADDRESSES,
            ]
            process = stack.enter_context(
                subprocess.Popen(
                    [tools / "nm-keeper", *words],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            ranks.append(process)
        # A few more than a hundred, for the other ranks may be a step behind.
        until(lambda: read_progress(directory / "record.0").steps > 110, "a hundred steps")
        yield ranks


def test_ranks_step_together_and_tell_when_each_step_ended(tools: Tools, tmp_path: Path) -> None:
    with job(tools, tmp_path, "7041") as ranks:
        for process in ranks:
            process.terminate()
        said = [process.communicate(timeout=600) for process in ranks]
        assert [process.returncode for process in ranks] == [0, 0, 0], said
    found = [read_steps(out) for out, _ in said]
    counts = [len(one.ends) for one in found]
    assert min(counts) > 100 and max(counts) - min(counts) <= 2
    for rank, one in enumerate(found):
        assert (one.wrong, one.strange) == (0, 0) and one.passes >= 1
        assert one.ends[-1] <= time.monotonic() and list(one.ends) == sorted(one.ends)
        assert read_progress(tmp_path / f"record.{rank}").steps == len(one.ends)


def test_a_rank_that_is_lost_breaks_the_job(tools: Tools, tmp_path: Path) -> None:
    with job(tools, tmp_path, "7042") as ranks:
        ranks[1].kill()
        said = [process.communicate(timeout=600)[1] for process in ranks]
        assert [process.returncode for process in ranks] == [1, -9, 1]
    assert "a connection broke in step " in said[0] and "a connection broke in step " in said[2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["7", "7043", *ADDRESSES], "this one is of them"),
        (["0", "7043", "127.0.0.2", "nowhere"], "nowhere is no IPv4 address"),
        (["0", "x", *ADDRESSES], "x is not a number"),
    ],
)
def test_what_is_no_job_is_refused(tools: Tools, tmp_path: Path, words: list[str], told: str) -> None:
    argv = [tools / "nm-keeper", MEMORY, str(tmp_path / "r"), MEMORY, "1", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 1 and told in done.stderr


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces with names need root")
    want = NetworkRequest(
        attachment=Attachment.VETH_BRIDGE,
        settings=NetworkSettings(),
        instances=2,
        nodes=2,
        link=NodeLink(delay=0.0),
    )
    with build_networks(f"nearmetal-check-{os.getpid()}-seat", [want], tmp_path) as (built,):
        yield built


def facts(netns: str, interface: str) -> dict[str, Any]:
    argv = ["nsenter", f"--net={netns}", "ip", "-json", "address", "show", "dev", interface]
    found: dict[str, Any] = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)[0]
    return found


def cut_off(found: dict[str, Any]) -> bool:
    """Whether an interface is up and its other end is not. NO-CARRIER would tell that a moment later only."""
    return "UP" in found["flags"] and "LOWER_UP" not in found["flags"]


def test_a_spare_seat_takes_mac_and_address_while_both_are_cut_off(tools: Tools, network: Network) -> None:
    here, there = network.seats
    change = SeatChange(
        host=LocalHost(),
        tools=tools,
        here=here,
        there=there,
        port_here=port_of(network, 0),
        port_there=port_of(network, 1),
    )
    own = facts(there.netns, there.interface)["address"]
    change.prepare()
    taken, source = facts(there.netns, there.interface), facts(here.netns, here.interface)
    assert taken["address"] == source["address"] != own
    assert {a["local"] for a in taken["addr_info"] if a["family"] == "inet"} == {here.address, there.address}
    assert cut_off(taken) and "LOWER_UP" in source["flags"]
    change.leave()
    assert cut_off(facts(here.netns, here.interface))
    change.stay()
    until(lambda: "LOWER_UP" in facts(here.netns, here.interface)["flags"], "the way back")
    request = InstanceRequest(
        label="nearmetal-x",
        hostname="h",
        environment=Environment(name="e", backend="namespaces", placements=()),
        cpus=(0,),
        seat=here,
        binds=(),
        scratch=Path("/"),
    )
    target = change.destination(request)
    assert target.seat == there
    subprocess.run(target.arrival, check=True)
    until(lambda: "LOWER_UP" in facts(there.netns, there.interface)["flags"], "the arrival")


@pytest.mark.parametrize(
    "words", [[], ["take", "a"], ["up", "/nowhere", "eth0"], ["up", "/proc/self/ns/net", "nm-none"]]
)
def test_a_seat_that_is_not_there_is_refused(tools: Tools, words: list[str]) -> None:
    done = subprocess.run([tools / "nm-box", "seat", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 111 and '"event":"error"' in done.stderr

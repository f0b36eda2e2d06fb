"""MPI over every attachment that this machine has, all in one block; and an interface that goes in the
middle."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.blocks import run_one

from nearmetal.host import LocalHost
from nearmetal.host.leftovers import find
from nearmetal.host.lock import machine_lock
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.record import Status
from nearmetal.model.scope import HUB, Scope
from nearmetal.model.study import (
    Attachment,
    Design,
    Environment,
    KernelWorkload,
    Placement,
    Study,
)
from nearmetal.node.arms.running_arm import RunningArm
from nearmetal.node.machine import new_label, prepare_machine
from nearmetal.node.node import Node, open_node
from nearmetal.node.progress import NullProgress
from nearmetal.node.survey.available import usable_arms
from nearmetal.subjects.launches.job import TOKEN_LIMIT

pytestmark = pytest.mark.more

HOST = LocalHost()
SLOW = NetworkSettings(rto_min=0.003, congestion_control="reno", mtu=1280)
#: Everywhere: what namespaces and veth alone give.
MUST = {"veth", "veth-bridge", "veth-routed"}


def study(attachments: Sequence[Attachment]) -> Study:
    boxes = [
        Environment(name=a.value, backend="namespaces", attachment=a, network=SLOW, placements=("2x1",))
        for a in attachments
    ]
    return Study(
        name="attachments",
        question="",
        environments=(Environment(name="native", backend="native", placements=("1x2",)), *boxes),
        placements=(
            Placement(name="1x2", instances=1, tasks=2),
            Placement(name="2x1", instances=2, tasks=1),
        ),
        workloads=(KernelWorkload(name="pp", kernel="pingpong", params={"bytes": 8}),),
        design=Design(
            baselines=("native",), margin=0.03, confidence=0.95, seed=1, slices=2, runs=1, warm_up=0
        ),
    )


@contextmanager
def session(attachments: Sequence[Attachment]) -> Iterator[Node]:
    machine = prepare_machine(HOST, NullProgress())
    asked = study(attachments)
    arms, backends, absent = usable_arms(machine, asked, NullProgress())
    if not {f"{a}/2x1" for a in MUST & set(attachments)} <= arms.keys():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"cannot run here: {absent}")
    label = new_label()
    here = study([a for a in attachments if f"{a}/2x1" in arms])
    with machine_lock(label, command="pytest", force=True):
        with open_node(machine, here, backends, label, NullProgress()) as session:
            yield session
        assert find(label) == ()


def test_messages_pass_over_every_attachment_with_its_settings() -> None:
    with session([a for a in Attachment if a.seated and not (a.on_device or a.of_guests)]) as own:
        records = {r.arm: r for r in run_one(own)}
        network = own.network_record()
    assert {name: r.reason for name, r in records.items()} == dict.fromkeys(records, "")
    assert {name.partition("/")[0] for name in records} >= MUST
    for name, r in records.items():
        if name == "native/1x2":
            continue
        assert r.transport["kind"] == "tcp" and r.transport["btl_tcp_if_include"] == "eth0"
        assert len({p.host for p in r.places}) == 2
        sent = [r.network[Scope.instance(p.host)] for p in r.places]
        assert all((c["TcpOutSegs"] or 0) > 100 and c["dev.eth0.tx_bytes"] for c in sent), name
        assert (HUB in r.network) == (name != "veth/2x1")
    for value in network.values():
        assert isinstance(value, dict) and isinstance(value["got"], dict)
        seats = [f for place, f in value["got"].items() if place != "hub"]
        assert value["asked"] == {"rto_min": 0.003, "congestion_control": "reno", "mtu": 1280}
        assert all(isinstance(f, dict) and value["asked"].items() <= f.items() for f in seats)


def test_an_interface_that_vanishes_fails_its_trial_alone_and_soon() -> None:
    code = "from pyroute2 import IPRoute; IPRoute().link('del', ifname='port0')"

    def cut(standing: Sequence[RunningArm]) -> None:
        network = next(n for (arm, _), n in own.networks.items() if arm == "veth-routed/2x1")
        done = HOST.run(network.hub_command([sys.executable, "-c", code]), timeout=600, cwd=Path("/"))
        assert done.ok, done.failure()

    with session([Attachment.VETH_ROUTED, Attachment.VETH_BRIDGE]) as own:
        first = {r.arm: r for r in run_one(own, audit=cut)}
        second = {r.arm: r for r in run_one(own, 2)}
    for records in (first, second):
        assert records["native/1x2"].status is Status.OK
        assert records["veth-bridge/2x1"].status is Status.OK, records["veth-bridge/2x1"].reason
        cutoff = records["veth-routed/2x1"]
        assert cutoff.status is Status.FAILED
        assert (
            "network interface" in cutoff.reason
            and "no longer exists (attachment veth-routed" in cutoff.reason
        )
        assert cutoff.end - cutoff.begin < TOKEN_LIMIT, "it does not wait for an answer"

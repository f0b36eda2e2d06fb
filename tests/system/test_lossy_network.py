"""A network that really loses packets: counters, drops, connections and the sentence in the report."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.blocks import run_one
from tests.page import Page

from nearmetal.analysis import analyse
from nearmetal.host import LocalHost
from nearmetal.host.lock import machine_lock
from nearmetal.model.change import replace
from nearmetal.model.record import TrialRecord
from nearmetal.model.result import Verdict
from nearmetal.model.scope import HUB, NODE, Scope
from nearmetal.model.study import (
    Attachment,
    CommandWorkload,
    Design,
    Environment,
    KernelWorkload,
    Placement,
    Study,
)
from nearmetal.node.machine import Machine, new_label, prepare_machine
from nearmetal.node.node import Node, open_node
from nearmetal.node.progress import NullProgress
from nearmetal.node.survey.available import usable_arms
from nearmetal.plan import make_plan
from nearmetal.records.codec import from_line, to_line
from nearmetal.report.forms.markdown import markdown_text
from nearmetal.report.page.document import Context, page_html
from nearmetal.report.record_index import RecordIndex
from nearmetal.workloads.kernels.registry import argument

pytestmark = pytest.mark.more
HOST = LocalHost()
BLOCKS = 12
PINGPONG = KernelWorkload(name="pp", kernel="pingpong", params={"bytes": 262144, "trips": 4})
#: A queue of five packets: a window sent at once loses its end, and only a time-out brings it back.
QUEUE = """
from pyroute2 import IPRoute
with IPRoute() as ip:
    for port in ("port0", "port1"):
        device = ip.link_lookup(ifname=port)[0]
        ip.tc("add", "tbf", device, rate="400mbit", burst=5000, limit=8000)
"""


def study(machine: Machine) -> Study:
    # Several seconds on any machine: the connections of a command are looked at once a second. Class B ends
    # in 1.1 s on a fast one.
    second = KernelWorkload(name="ep", kernel="ep", params={"class": "C"})
    specs = [argument(w, ranks=2, llc_bytes=machine.llc, extra=0.0) for w in (PINGPONG, second)]
    whole = (machine.tools / "nm-micro", "--once", *specs)
    return Study(
        name="lossy",
        question="",
        environments=(
            Environment(
                name="native",
                backend="native",
                attachment=Attachment.LOOPBACK,
                placements=("1x2",),
                workloads=("pp",),
            ),
            Environment(
                name="box", backend="namespaces", attachment=Attachment.VETH_BRIDGE, placements=("2x1",)
            ),
        ),
        placements=(
            Placement(name="1x2", instances=1, tasks=2),
            Placement(name="2x1", instances=2, tasks=1),
        ),
        workloads=(PINGPONG, CommandWorkload(name="whole", argv=whole, mpi=True)),
        design=Design(
            baselines=("native",), margin=0.03, confidence=0.95, seed=1, slices=2, runs=1, warm_up=0
        ),
    )


@pytest.fixture
def machine() -> Machine:
    return prepare_machine(HOST, NullProgress())


@pytest.fixture
def session(machine: Machine) -> Iterator[Node]:
    """On a network whose bridge ports have the tiny queue."""
    asked = study(machine)
    _, backends, absent = usable_arms(machine, asked, NullProgress())
    if absent:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"cannot run here: {absent}")
    label = new_label()
    with (
        machine_lock(label, command="pytest", force=True),  # else another run sweeps it away
        open_node(machine, asked, backends, label, NullProgress()) as session,
    ):
        box = session.networks["box/2x1", False]
        done = HOST.run(box.hub_command([sys.executable, "-c", QUEUE]), timeout=600, cwd=Path("/"))
        assert done.ok, done.failure()
        yield session


def test_a_tiny_queue_is_found_and_blamed(session: Node) -> None:
    records = [from_line(to_line(r)) for r in run_one(session)]
    assert [r.reason for r in records] == [""] * 3
    box = next(r for r in records if r.arm == "box/2x1")
    timed, hub = box.network[Scope.timed("pp")], box.network[HUB]
    assert (timed["TcpExtTCPTimeouts"] or 0) >= 1
    assert (hub["qdisc.port0.tbf.drops"] or 0) + (hub["qdisc.port1.tbf.drops"] or 0) > 50
    own = [box.network[Scope.instance(p.host)] for p in box.places]
    assert sum(c["TcpRetransSegs"] or 0 for c in own) >= (timed["TcpRetransSegs"] or 0) > 50
    assert all((c["dev.eth0.tx_bytes"] or 0) > 1e6 for c in own)

    assert box.connections
    seats = {seat.address for seat in session.networks["box/2x1", False].seats}
    for c in box.connections:
        assert {c.local.split(":")[0], c.remote.split(":")[0]} <= seats
        assert c.rto is not None and 0.19 < c.rto <= 120
        assert c.congestion_control
    assert sum(c.retransmitted or 0 for c in box.connections) > 50
    # The connections of the command are gone when it has ended: they were seen while it ran.
    assert len({c.local for c in box.connections}) > 2

    native = next(r for r in records if r.arm == "native/1x2")
    assert native.network[NODE]["TcpOutSegs"]
    assert HUB not in native.network
    _check_report(session.study, records)


def _check_report(asked: Study, records: list[TrialRecord]) -> None:
    """The same block twelve times: enough for a verdict, without the time that it would take."""
    plan = make_plan(asked, blocks=BLOCKS)
    many = [replace(r, block=b, trial=f"{b}.{r.trial}") for b in range(1, BLOCKS + 1) for r in records]
    found = analyse(asked, plan, many)
    cell = next(c for c in found.cells if c.workload == "pp")
    assert cell.verdict is Verdict.SLOWER
    assert cell.network is not None and cell.network.rto is not None
    assert next(iter(cell.network.drops)).startswith("queueing discipline tbf on port")
    assert cell.attribution is not None
    assert "TCP time-outs: " in cell.attribution.sentence, cell.attribution.sentence
    context = Context(records=RecordIndex(many), provenance={}, differences=[], commands=[])
    page = Page(page_html(asked, found, context))
    assert "Most packets were dropped by queueing discipline tbf on port" in page.text
    assert "Connections of the worst trial" in page.text and "10.99.0." in page.text
    assert "## TCP trouble" in markdown_text(asked, found)

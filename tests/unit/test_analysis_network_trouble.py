"""Time-outs in the likely cause: planted counts and seconds come out as the sentence that they deserve."""

import numpy as np
import pytest
from tests.unit.planted_trouble import CONNECTION, TROUBLE

from nearmetal.analysis import analyse
from nearmetal.analysis.causes.network_trouble import timeout_clause
from nearmetal.analysis.fold.counts import CountsBuilder
from nearmetal.model.change import replace
from nearmetal.model.record import TrialRecord
from nearmetal.model.result import Analysis, Cell, NetworkTrouble, Verdict
from nearmetal.model.scope import HUB, NODE, Scope
from nearmetal.model.study import (
    Attachment,
    Better,
    Design,
    Environment,
    KernelWorkload,
    Placement,
    Study,
)
from nearmetal.plan import make_plan
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

STUDY = Study(
    name="lossy",
    question="",
    environments=(
        Environment(name="native", backend="native", attachment=Attachment.LOOPBACK, placements=("one",)),
        Environment(name="box", backend="namespaces", attachment=Attachment.VETH_BRIDGE, placements=("two",)),
    ),
    placements=(
        Placement(name="one", instances=1, tasks=2),
        Placement(name="two", instances=2, tasks=1),
    ),
    workloads=(KernelWorkload(name="cg", kernel="cg", params={}),),
    design=Design(baselines=("native",), margin=0.03, confidence=0.95, seed=3, slices=8),
)
BASE_SECONDS, BLOCKS = 0.25, 12
#: 2015: CG took 180 % longer with some twenty time-outs of 0.2 s.
STORY = {Scope.timed("cg"): {"TcpExtTCPTimeouts": 20.0, "TcpRetransSegs": 40.0, "TcpExtTCPLossProbes": 2.0}}
QUIET = {Scope.timed("cg"): {"TcpExtTCPTimeouts": 0.0, "TcpRetransSegs": 3.0, "TcpExtTCPLossProbes": 3.0}}
LOSSY = replace(CONNECTION, rto=0.2, timeouts=20, timeout_runs=20, timeout_seconds=0.0)


def network(record: TrialRecord, told: dict[Scope, dict[str, float]]) -> TrialRecord:
    if record.arm != "box/two":
        return replace(record, network=QUIET)
    return replace(record, network=told, connections=(LOSSY, replace(LOSSY, rto=0.4)))


def analysis(told: dict[Scope, dict[str, float]], *, overhead: float) -> Analysis:
    plan = make_plan(STUDY, blocks=BLOCKS)
    metric = SimulatedMetric(workload="cg", metric="time", unit="s", better=Better.LOWER, value=BASE_SECONDS)
    records = simulate(STUDY, plan, metrics=[metric], overheads={"box/two": overhead}, spread=Spread())
    return analyse(STUDY, plan, [network(r, told) for r in records])


def only(analysis: Analysis) -> Cell:
    (cell,) = analysis.cells
    return cell


def test_tcp_timeouts_of_2015_are_named_as_the_cause() -> None:
    cell = only(analysis(STORY, overhead=2.2))  # 8 slices of 0.25 s: 4.4 s more
    assert cell.verdict is Verdict.SLOWER
    assert cell.attribution is not None
    assert cell.attribution.sentence == "TCP time-outs: 20 × 0.2 s = 4 s of 4.4 s"
    assert cell.network is not None
    assert (cell.network.timeouts, cell.network.retransmitted, cell.network.rto) == (20, 40, 0.2)
    assert cell.network.waited == pytest.approx(4.0)
    assert cell.network.extra_seconds == pytest.approx(4.4, rel=0.05)
    assert cell.network.shared is False


def test_probes_that_were_answered_are_no_trouble() -> None:
    cell = only(analysis(QUIET, overhead=2.2))
    assert cell.network is None
    assert cell.attribution is not None and "TCP time-outs" not in cell.attribution.sentence


def test_time_outs_that_explain_little_are_shown_and_not_blamed() -> None:
    told = {Scope.timed("cg"): {"TcpExtTCPTimeouts": 1.0, "TcpRetransSegs": 9.0}}
    cell = only(analysis(told, overhead=2.2))
    assert cell.network is not None and cell.network.timeouts == 1
    assert cell.attribution is not None and "time-outs" not in cell.attribution.sentence


def test_a_cell_that_is_not_slower_blames_nothing() -> None:
    cell = only(analysis(STORY, overhead=0.0))
    assert cell.network is not None and cell.attribution is None


def test_without_counters_there_is_nothing_to_say() -> None:
    assert only(analysis({}, overhead=2.2)).network is None


def test_drops_by_place_most_first() -> None:
    network_ = {
        HUB: {"qdisc.port1.tbf.drops": 74.0, "dev.port1.tx_drops": 0.0, "qdisc.port1.tbf.overlimits": 9e9},
        NODE: {"softnet.dropped": 2.0, "softnet.dropped.cpu1": 2.0},
        Scope.instance("nm0"): {
            "TcpExtTCPBacklogDrop": 3.0,
            "TcpExtRcvPruned": 5.0,
            "dev.eth0.100.rx_drops": 1.0,
        },
        Scope.timed("cg"): {"TcpExtTCPTimeouts": 4.0},
    }
    plan = make_plan(STUDY, blocks=2)
    metric = SimulatedMetric(workload="cg", metric="time", unit="s", better=Better.LOWER, value=1.0)
    records = simulate(STUDY, plan, metrics=[metric], overheads={}, spread=Spread())
    first, second = (next(r for r in records if r.block == block) for block in (1, 2))
    telling = CountsBuilder()
    for record in (replace(first, network=network_), replace(second, network={})):
        telling.add(record)
    counts = telling.counts({})
    found = counts.drops(counts.places(np.array([1, 2, 3])))
    assert list(found.items()) == [
        ("queueing discipline tbf on port1 of hub", 37.0),
        ("socket buffers of nm0", 4.0),
        ("softnet: a CPU's input queue (whole node)", 1.0),
        ("device eth0.100 (rx drops) of nm0", 0.5),
    ]
    assert counts.drops(counts.places(np.array([3]))) == {}


def trouble(**changed: object) -> NetworkTrouble:
    plain = replace(TROUBLE, retransmitted=40.0, rto=None, extra_seconds=4.4)
    return replace(plain, **changed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "TCP time-outs: 20 × 0.2 s = 4 s of 4.4 s"),
        ({"extra_seconds": 1.0}, "TCP time-outs: 20 × 0.2 s = 4 s of 1 s, several at once"),
        (
            {"baseline_timeouts": 5.0, "baseline_waited": 1.0, "baseline_rto": 0.2},
            "TCP time-outs: 20 × 0.2 s (baseline: 5 × 0.2 s) = 3 s of 4.4 s",
        ),
        ({"extra_seconds": None}, None),
        ({"extra_seconds": -1.0}, None),
        ({"extra_seconds": 60.0}, None),
        ({"timeouts": None, "waited": None}, None),
        ({"timeouts": 0.0, "waited": 0.0}, None),
    ],
)
def test_clause_names_the_time_lost_in_timeouts(changed: dict[str, object], said: str | None) -> None:
    assert timeout_clause(trouble(**changed)) == said

"""A lossy network as trials and analyses tell it, for tests to vary."""

from __future__ import annotations

from nearmetal.model.record import Connection
from nearmetal.model.result import NetworkTrouble
from nearmetal.model.scope import Scope

CONNECTION = Connection(
    scope=Scope.instance("a"),
    local="10.99.0.2:1",
    remote="10.99.0.3:2",
    congestion_control="cubic",
    rto=0.204,
    rtt=1e-4,
    rttvar=1e-5,
    cwnd=10,
    retransmitted=40,
    lost=0,
    bytes_acked=1,
    bytes_received=1,
    timeouts=None,
    timeout_runs=None,
    timeout_seconds=None,
)
#: Twenty time-outs more than the baseline has, of 0.2 s each.
TROUBLE = NetworkTrouble(
    timeouts=20.0,
    baseline_timeouts=0.0,
    retransmitted=31.0,
    baseline_retransmitted=0.0,
    rto=0.2,
    baseline_rto=None,
    waited=4.0,
    baseline_waited=0.0,
    extra_seconds=4.1,
    drops={},
    baseline_drops={},
    shared=False,
)

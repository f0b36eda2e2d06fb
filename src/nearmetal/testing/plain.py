"""A simple record for tests that need any record."""

from __future__ import annotations

from ..model.record import Fold, Row, Status, TrialRecord
from ..model.study import Better

PLAIN = TrialRecord(
    run="nearmetal-1",
    trial="3.native/1x2",
    block=3,
    attempt=1,
    arm="native/1x2",
    aa=False,
    position=0,
    begin=1.5,
    end=2.5,
    fold=Fold.PAIRED,
    status=Status.OK,
    reason="",
    rows=(
        Row(
            workload="stream",
            metric="triad",
            unit="B/s",
            better=Better.HIGHER,
            values=(7.1e10, 7.2e10),
            status=Status.OK,
            seconds=(0.01, 0.02),
            parts={"comm": (0.0, 0.001)},
        ),
    ),
    counters={"node": {"steal": None, "user": 0.5}},
)

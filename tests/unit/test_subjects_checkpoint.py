"""The rows of checkpoints, and which backends have any."""

from __future__ import annotations

import pytest

from nearmetal.environments.registry import get_backend
from nearmetal.model.study import EventSubject
from nearmetal.subjects.checkpoint import CHECKPOINT, CheckpointRestore, Restored, rows

STEPS = {"freeze": 0.1, "dump": 0.2, "removal": 0.0, "copy": 0.3, "restore": 0.2, "thaw": 0.1}
EVENT = EventSubject(name="w", facts=CHECKPOINT)


def test_a_row_for_each_metric_with_the_steps_of_each_event() -> None:
    one, two = (
        Restored(steps=STEPS, pause=0.8, size=64),
        Restored(steps=STEPS | {"copy": 1.3}, pause=2, size=9),
    )
    total, pause, size = rows(EVENT, [one, two])
    assert tuple(r.metric for r in (total, pause, size)) == CHECKPOINT.metrics
    assert total.values == pytest.approx((0.9, 1.9)) and total.parts["step.copy"] == (0.3, 1.3)
    assert set(total.parts) == {f"step.{name}" for name in STEPS}
    assert (pause.values, pause.unit, size.values, size.unit) == ((0.8, 2), "s", (64, 9), "B")


@pytest.mark.parametrize("name", ["native", "namespaces", "runc"])
def test_backends_with_checkpoints(name: str) -> None:
    assert CheckpointRestore.unable(EVENT, get_backend(name)) is None


@pytest.mark.parametrize("name", ["crun", "podman", "qemu"])
def test_backends_without_say_so(name: str) -> None:
    assert CheckpointRestore.unable(EVENT, get_backend(name)) == (
        f"backend {name} offers no checkpoint of its instances"
    )

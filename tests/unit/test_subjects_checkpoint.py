"""The rows of checkpoints, and which backends have any."""

from __future__ import annotations

import pytest

from nearmetal.environments import Checkpoints, Immovable, Migrates, Unavailable
from nearmetal.environments.registry import backend_names, get_backend
from nearmetal.lifecycle import Method, Phase, PhaseTimes
from nearmetal.model.study import Attachment, Environment, LifecycleSubject
from nearmetal.subjects import checkpoint
from nearmetal.subjects.checkpoint import CHECKPOINT, CheckpointRestore
from nearmetal.subjects.events.restores import facts_of, rows
from nearmetal.subjects.events.verified import Restored
from nearmetal.testing.fake_host import FakeHost

STEPS = {
    Phase.FREEZE: 0.1,
    Phase.DUMP: 0.2,
    Phase.COPY: 0.3,
    Phase.RESTORE: 0.2,
    Phase.THAW: 0.1,
    Phase.REMOVAL: 0.0,
}
EVENT = LifecycleSubject(name="w", facts=CHECKPOINT)


def test_a_row_for_each_metric_with_the_steps_of_each_event() -> None:
    one, two = (
        Restored(
            phases=PhaseTimes(STEPS), pauses=(0.8,), stopped=0.7, size=64, sent=65, behind=0.9, passes=2
        ),
        Restored(
            phases=PhaseTimes(STEPS | {Phase.COPY: 1.3}),
            pauses=(1, 2),
            stopped=1.9,
            size=9,
            sent=8,
            behind=2.5,
            passes=3,
        ),
    )
    total, pause, stopped, slowdown, size, sent = found = rows(EVENT, [one, two])
    assert tuple(r.metric for r in found) == CHECKPOINT.metrics
    assert (slowdown.values, slowdown.unit) == ((0.9, 2.5), "s")
    assert total.verification == {"passes": 2, "wrong_pages": 0, "second_copies": 0}
    assert total.values == pytest.approx((0.9, 1.9)) and total.parts["step.copy"] == (0.3, 1.3)
    assert (stopped.values, sent.values, sent.unit) == ((0.7, 1.9), (65, 8), "B")
    assert set(total.parts) == {f"step.{name}" for name in STEPS}
    assert (pause.values, pause.unit, size.values, size.unit) == ((0.8, 2), "s", (64, 9), "B")
    assert "pauses" not in facts_of(one) and facts_of(two)["pauses"] == [1, 2], "by rank"


@pytest.mark.parametrize("name", ["native", "namespaces", "runc", "lxc"])
def test_backends_with_checkpoints(name: str) -> None:
    assert CheckpointRestore.unable(EVENT, get_backend(name)) is None


@pytest.mark.parametrize("name", backend_names())
def test_backends_without_say_why_and_what_helps(name: str) -> None:
    backend = get_backend(name)
    said = CheckpointRestore.unable(EVENT, backend)
    assert (said is None) == isinstance(backend, Checkpoints)
    able = isinstance(backend, Checkpoints | Migrates)
    assert isinstance(backend, Immovable) != able or name == "handicap", "it says why, or it can"
    if isinstance(backend, Immovable):
        assert said == (
            f"backend {name} offers no checkpoint of its instances: {backend.immovable.reason}; "
            f"use {backend.immovable.remedy}"
        )


@pytest.mark.parametrize("name", ["native", "namespaces", "runc"])
def test_lazy_pages_need_a_network_of_the_instance_s_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source and destination exist at the same time, and would have the same sockets."""
    monkeypatch.setattr(checkpoint, "refused_by_criu", lambda *_: None)
    backend, host = get_backend(name), FakeHost(root=True)
    lazy = LifecycleSubject(name="w", facts=CHECKPOINT, method=Method.CRIU_LAZY)

    def why(attachment: Attachment, event: LifecycleSubject = lazy) -> Unavailable | None:
        environment = Environment(name="e", backend=name, attachment=attachment)
        return CheckpointRestore.refused(event, environment, backend, host)

    refused = why(Attachment.HOST)
    assert (refused is None) == (name == "native"), "bare metal is restored in a network of its own"
    assert refused is None or ("one network" in refused.reason and refused.remedy == "attachment: none")
    assert why(Attachment.NONE) is None
    assert why(Attachment.HOST, LifecycleSubject(name="w", facts=CHECKPOINT, method=Method.CRIU)) is None


def test_a_method_that_the_backend_does_not_name_is_refused_with_those_that_it_does() -> None:
    event = LifecycleSubject(name="w", facts=CHECKPOINT, method=Method.POSTCOPY)
    assert CheckpointRestore.unable(event, get_backend("native")) == (
        "native has only the methods criu, criu-lazy, criu-pageserver, criu-precopy"
    )

"""How a method is chosen for each move of processes in a study, with planted costs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nearmetal.environments import Criu, Instance, Unavailable
from nearmetal.environments.criu import METHODS
from nearmetal.environments.native import Native
from nearmetal.environments.registry import get_backend
from nearmetal.errors import RunError, UnavailableError
from nearmetal.lifecycle import Costs, Estimate, Method, PageSample, Phase, PhaseTimes
from nearmetal.model.change import replace
from nearmetal.model.plan import TrialSpec
from nearmetal.model.study import Arm, Attachment, Design, Environment, Mode, MoveSubject, Placement
from nearmetal.node.node import Node
from nearmetal.node.trial import Trial
from nearmetal.subjects import migrate
from nearmetal.subjects.events import move_choice, process_moves
from nearmetal.subjects.events.move_choice import ProcessMethodChooser
from nearmetal.subjects.events.process_moves import moves_of_processes
from nearmetal.subjects.events.verified import Restored
from nearmetal.subjects.migrate import MIGRATE, Migrate

MEMORY, SPEED = 100_000_000, 1.6e9
"""The files are written and read at 100 to 800 MB/s, so that criu takes 0.2 to 1.3 s and criu-lazy 0.2 s of
standstill."""
LOOKS = (0.1, 0.2, 0.4, 0.8, 1.6)
HERE = cast(Instance, SimpleNamespace(pid=os.getpid()))
NO_DIRTY_BITS = Unavailable(reason="no soft-dirty bits", remedy="another kernel")
NO_FAULTS = Unavailable(reason="no userfaultfd", remedy="another kernel")
ENVIRONMENT = Environment(name="process", backend="native")


class Planted(Native):
    costs = Costs(fixed=Estimate.exactly(0.2), setup=Estimate.exactly(0.0))


def chooser(
    limit: float, refusals: Mapping[Method, Unavailable] = {Method.CRIU_PRECOPY: NO_DIRTY_BITS}
) -> ProcessMethodChooser:
    return ProcessMethodChooser(
        environment=ENVIRONMENT,
        backend=Planted(),
        refusals={m: refusals.get(m) for m in METHODS},
        limit=limit,
    )


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[PageSample]:
    """The planted sample of pages, which is taken out of the list: empty if the memory was sampled."""
    samples: list[PageSample] = []
    monkeypatch.setattr(move_choice, "own_memory", lambda _: MEMORY)
    monkeypatch.setattr(move_choice, "write_speed", lambda _: SPEED)
    monkeypatch.setattr(move_choice, "sample_pages", lambda _: samples.pop())
    return samples


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize(
    ("limit", "chosen", "holds", "reason"),
    [
        (2.0, Method.CRIU, True, "criu-lazy loses the instance if the connection breaks"),
        (0.5, Method.CRIU_LAZY, True, "criu may stand still for 1300 ms"),
        (0.1, Method.CRIU_LAZY, False, "no method keeps 100 ms; criu-lazy comes closest"),
    ],
)
def test_the_shortest_move_that_keeps_the_bound(
    limit: float, chosen: Method, holds: bool, reason: str
) -> None:
    """The lazy method only if no other keeps the bound."""
    choosing = chooser(limit)
    assert choosing.choose(HERE, Path("/")) is chosen
    assert choosing.latest is not None and choosing.latest.choice.holds is holds
    assert reason in choosing.latest.choice.reason


@pytest.mark.usefixtures("sampled")
def test_what_does_not_work_here_is_not_chosen() -> None:
    refused = {Method.CRIU_PRECOPY: NO_DIRTY_BITS, Method.CRIU_LAZY: NO_FAULTS}
    choosing = chooser(0.5, refused)
    assert choosing.choose(HERE, Path("/")) is Method.CRIU
    assert choosing.latest is not None and not choosing.latest.choice.holds
    assert "criu-lazy cannot be used: no userfaultfd" in choosing.latest.choice.reason
    with pytest.raises(UnavailableError, match="environment process: no soft-dirty bits") as caught:
        chooser(0.5, dict.fromkeys(METHODS, NO_DIRTY_BITS)).choose(HERE, Path("/"))
    assert caught.value.remedy == "another kernel"


@pytest.mark.parametrize(
    ("changed", "chosen", "reason"),
    [
        (0, Method.CRIU_PRECOPY, "criu-lazy loses the instance"),
        (1024, Method.CRIU_LAZY, "criu-precopy may not converge"),
    ],
)
def test_pre_copy_is_chosen_by_how_fast_the_memory_is_seen_to_change(
    sampled: list[PageSample], changed: int, chosen: Method, reason: str
) -> None:
    """After pre-copy, all memory is still read back, in at most 0.55 s: for 0.5 s it is not chosen."""
    looks = tuple((at, changed) for at in LOOKS)
    sampled += [PageSample(memory=MEMORY, pages=1024, empty=0, looks=looks) for _ in range(2)]
    assert chooser(0.5, {}).choose(HERE, Path("/")) is Method.CRIU_LAZY
    choosing = chooser(1.2, {})
    assert choosing.choose(HERE, Path("/")) is chosen and sampled == []
    assert choosing.latest is not None and reason in choosing.latest.choice.reason


@pytest.mark.usefixtures("sampled")
def test_earlier_moves_of_the_trial_correct_the_prediction() -> None:
    """criu is predicted to stand still for 0.45 s and at most 1.3 s, but takes four times as long. Nothing is
    known then about the page server, for which the same is predicted."""
    choosing = chooser(1.5)
    expected = {"predicted": [pytest.approx(0.2875), pytest.approx(0.45), pytest.approx(1.3)]}
    for _ in range(3):
        assert choosing.choose(HERE, Path("/")) is Method.CRIU
        times = PhaseTimes({Phase.DUMP: 1.0, Phase.RESTORE: 0.9})
        facts = choosing.learn(Restored(phases=times, pauses=(1.8,), stopped=1.8, size=1, sent=1))
        assert facts["method"] == facts["chosen"] == "criu" and facts["bound_holds"] is True
        assert facts["total"] == expected | {"measured": 1.9}
        assert facts["stopped"] == expected | {"measured": 1.8}
        assert "criu keeps 1500 ms" in str(facts["reason"])
    assert choosing.choose(HERE, Path("/")) is Method.CRIU_PAGESERVER
    assert choosing.latest is not None and "criu may stand still for 2" in choosing.latest.choice.reason


def test_the_memory_is_what_the_processes_have(tmp_path: Path) -> None:
    """Nothing is planted: this process and this directory, which keeps no file."""
    choosing = chooser(600.0)
    assert choosing.choose(HERE, tmp_path) is Method.CRIU
    assert choosing.latest is not None and 0.2 < choosing.latest.prediction.total.value < 600
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RunError, match="the speed of the destination is not measured"):
        choosing.choose(HERE, tmp_path / "missing")


@pytest.mark.parametrize("name", ["native", "namespaces", "runc", "lxc"])
def test_auto_is_offered_by_all_backends_with_checkpoints(name: str) -> None:
    moved = MoveSubject(name="m", facts=MIGRATE, method=Method.AUTO)
    assert Migrate.unable(moved, get_backend(name)) is None


def test_the_time_for_the_choice_is_part_of_the_estimate() -> None:
    design = Design(baselines=("p",), margin=0.03, confidence=0.95, seed=1, mode=Mode.PLAIN)
    placement = Placement(name="1x1", instances=1, tasks=1)

    def seconds(method: Method, attachment: Attachment, backend: str) -> float:
        e = Environment(name="e", backend=backend, method=method, attachment=attachment)
        moved = MoveSubject(name="m", facts=MIGRATE)
        return Migrate.cost([moved], Arm(environment=e, placement=placement), design).once

    for attachment, backend, fixed in (
        (Attachment.NONE, "runc", Method.CRIU),
        (Attachment.HOST, "native", Method.CRIU),
        (Attachment.VETH_BRIDGE, "qemu", Method.PRECOPY),
    ):
        more = seconds(Method.AUTO, attachment, backend) - seconds(fixed, attachment, backend)
        assert more == pytest.approx(2 * 2.0)


@pytest.mark.usefixtures("sampled")
def test_moves_of_earlier_rounds_correct_the_prediction(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each trial makes two moves, which take four times as long as predicted. Three are needed."""
    placement, w = Placement(name="1x1", instances=1, tasks=1), MoveSubject(name="m", facts=MIGRATE)
    w = replace(w, method=Method.AUTO, downtime_limit=20.0)
    arm, other = (
        Arm(environment=replace(ENVIRONMENT, name=name), placement=placement) for name in ("process", "other")
    )
    fields: dict[str, Any] = {f.name: None for f in dataclasses.fields(Node) if f.init}
    fields |= {"backends": {"native": Planted()}, "machine": SimpleNamespace(host=None), "past_moves": {}}
    node = Node(**fields)
    monkeypatch.setattr(process_moves, "find_criu", lambda _: Criu(argv=("criu",), version="4.2.1"))
    monkeypatch.setattr(process_moves, "refusals_by_method", lambda *_: {Method.CRIU: None})

    def move(trial: Trial, criu: Criu, w: MoveSubject, chooser: ProcessMethodChooser) -> Restored:
        assert chooser.choose(HERE, tmp_path) is Method.CRIU
        times = PhaseTimes({Phase.DUMP: 1.0, Phase.RESTORE: 0.9})
        return Restored(phases=times, pauses=(1.8,), stopped=1.8, size=1, sent=1)

    monkeypatch.setattr(process_moves, "_move", move)

    def stopped(block: int, arm: Arm, *, aa: bool = False) -> list[Any]:
        """Return the predicted standstill of each move of a trial."""
        spec = TrialSpec(id=f"{block}.{arm.name}", block=block, position=0, arm=arm.name, aa=aa)
        trial = Trial(spec=spec, arm=arm, node=node, nodes=(), directory=tmp_path, log=tmp_path)
        _, facts = moves_of_processes(trial, w, 2)
        moves = cast(list[Any], facts["moves"])
        assert all(m["chosen"] == "criu" for m in moves), "the facts record each choice"
        return [m["stopped"]["predicted"][1] for m in moves]

    first, learned = pytest.approx(0.45), pytest.approx(1.8)
    assert stopped(1, arm) == [first, first]
    assert stopped(2, arm) == [first, learned]
    assert stopped(3, arm) == [learned, learned]
    assert stopped(3, arm, aa=True) == [learned, learned]
    assert stopped(3, other) == [first, first], "each arm learns by its own moves"


def test_moves_of_guests_of_earlier_rounds_correct_the_prediction(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each choice sees the moves of the trials before. A move ends here as soon as its method is chosen."""
    seen: list[int] = []

    def chosen(backend: Any, environment: Any, now: Any, w: Any, past: list[Any]) -> None:
        seen.append(len(past))
        past.append(object())
        raise RunError("chosen")

    network = SimpleNamespace(seats=(SimpleNamespace(address="10.0.0.1"),) * 2)
    guest, running = SimpleNamespace(label="guest"), SimpleNamespace(udp=None, tcp=None)
    for name, fake in (
        ("build_networks", lambda *_: nullcontext((network,))),
        ("seated_request", lambda *_, **__: guest),
        ("with_memory", lambda request, _: request),
        ("program_inside", lambda *_: nullcontext()),
        ("Probe", lambda **_: SimpleNamespace(floor=lambda _: running)),
        ("choose_for_guest", chosen),
    ):
        monkeypatch.setattr(migrate, name, fake)
    monkeypatch.setattr(Trial, "start", lambda *_: nullcontext(guest))
    fields: dict[str, Any] = {f.name: None for f in dataclasses.fields(Node) if f.init}
    fields |= {"machine": SimpleNamespace(host=None), "past_moves": {}, "instances": {"guest": guest}}
    fields |= {"arms": {}, "software": {"debian-kernel": SimpleNamespace(tools=Path("/tools"))}}
    node = Node(**fields)
    environment = Environment(name="guest", backend="qemu", image="debian-kernel")
    arm = Arm(environment=environment, placement=Placement(name="1x1", instances=1, tasks=1))
    node = dataclasses.replace(node, label="nearmetal-x", arms={arm.name: arm})
    w = MoveSubject(name="m", facts=MIGRATE, method=Method.AUTO)
    for block in (1, 2):
        spec = TrialSpec(id=f"{block}.guest", block=block, position=0, arm=arm.name, aa=False)
        (directory := tmp_path / str(block)).mkdir()
        trial = Trial(spec=spec, arm=arm, node=node, nodes=(), directory=directory, log=directory)
        with pytest.raises(RunError, match="chosen"):
            migrate._move_guest(trial, get_backend("qemu"), w, 2)
    assert seen == [0, 1]

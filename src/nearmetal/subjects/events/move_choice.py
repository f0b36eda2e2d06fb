"""Chooses the method of each move of a trial (`method: auto`) by predictions, which are corrected by the
earlier moves of its arm and workload in the run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...environments import Backend, Checkpoints, Instance, Migrates, Predictable, Unavailable
from ...errors import RunError, UnavailableError
from ...host.pages import own_memory, sample_pages
from ...host.processes.labelled import tree
from ...host.runtime import write_speed
from ...lifecycle import (
    Candidate,
    Choice,
    Conditions,
    Costs,
    Estimate,
    Method,
    PastMove,
    Prediction,
    allowed_rest,
    choose,
    corrected,
    depends_on_dirtying,
    dirtying,
    guest_conditions,
    measured_bandwidth,
    predict,
    process_conditions,
)
from ...model.record import JsonValue
from ...model.study import Environment
from ...model.workloads.moves import MoveSubject
from .verified import Restored

MOVE_KIND = "between two seats"
"""Kind of the moves of a trial (lifecycle.PastMove): only past moves of one kind correct a prediction."""


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Predictions of one move, by method.

    corrected, uncorrected: with and without a correction by the results of earlier moves.
    """

    corrected: Mapping[Method, Prediction]
    uncorrected: Mapping[Method, Prediction]


@dataclass(frozen=True, kw_only=True)
class MoveChoice:
    """The method that was chosen for one move, and its predictions.

    rest: seconds of the downtime in which pre-copy may send the last part of the memory.
    prediction, uncorrected: for the chosen method, with and without a correction by earlier moves.
    """

    choice: Choice
    rest: float
    prediction: Prediction
    uncorrected: Prediction

    def record(self, total: float, stopped: float) -> dict[str, JsonValue]:
        """Return the predicted [low, value, high] and measured times in seconds. An infinite time is null."""
        return {
            "chosen": self.choice.method.value,
            "reason": self.choice.reason,
            "bound_holds": self.choice.holds,
            "total": {"predicted": _ends(self.prediction.total), "measured": total},
            "stopped": {"predicted": _ends(self.prediction.downtime), "measured": stopped},
        }

    def compared(self, total: float, stopped: float) -> PastMove:
        """Return the finished move with its prediction.

        total, stopped: measured seconds.
        """
        return PastMove(
            kind=MOVE_KIND,
            method=self.choice.method,
            predicted_total=self.uncorrected.total.value,
            total=total,
            predicted_downtime=self.uncorrected.downtime.value,
            downtime=stopped,
        )


def _ends(e: Estimate) -> list[JsonValue]:
    return [v if math.isfinite(v) else None for v in (e.low, e.value, e.high)]


def predicted(
    backend: Predictable,
    methods: Sequence[Method],
    instance: Instance,
    past: Sequence[PastMove],
    *,
    bound: float,
    bandwidth: float | None,
) -> Predictions:
    """Sample the memory of a guest, and predict its move by each method. Raises UnavailableError or RunError.

    past: earlier moves, by which the predictions are corrected.
    bound: allowed downtime in seconds.
    bandwidth: limit in bytes per second; None for no limit.
    """
    sample = backend.sample_memory(instance)
    assert backend.costs.bandwidth is not None
    known = guest_conditions(
        float(sample.memory),
        dirtying(sample),
        backend.costs,
        backend.costs.bandwidth,
        bound=bound,
        most=bandwidth,
    )
    return _predictions(methods, known, past)


def choose_for_guest(
    backend: Backend, environment: Environment, instance: Instance, w: MoveSubject, past: Sequence[PastMove]
) -> MoveChoice:
    """Predict a move of a guest by every method, and choose one. Raises UnavailableError if none can be
    used."""
    assert isinstance(backend, Migrates) and isinstance(backend, Predictable)
    limit = w.most_downtime
    expected = predicted(backend, backend.moves_by, instance, past, bound=limit, bandwidth=w.bandwidth)
    refusals = {m: backend.unmovable(environment, m) for m in backend.moves_by}
    return _chosen(environment, limit, backend.costs, expected, refusals)


@dataclass(kw_only=True)
class ProcessMethodChooser:
    """Chooses a method of CRIU for each move of an instance with processes.

    environment: environment of the instances.
    backend: their backend.
    refusals: for each method of the backend, why it cannot be used; None if it can.
    limit: allowed downtime in seconds.
    past: the earlier moves that correct predictions; learn() adds the latest.
    latest: the choice for the latest move; None before the first one.
    """

    environment: Environment
    backend: Checkpoints
    refusals: Mapping[Method, Unavailable | None]
    limit: float
    past: list[PastMove] = field(default_factory=list)
    latest: MoveChoice | None = None

    def choose(self, instance: Instance, images: Path) -> Method:
        """Predict a move of a running instance by every method, and choose one. This takes up to two seconds.

        images: directory at the destination, in which 32 MiB are written to measure its speed.
        Raises UnavailableError if no method can be used; RunError if the memory of the instance cannot be
        read, or the directory not be written to.
        """
        processes, costs = tree(instance.pid), self.backend.costs
        able = [m for m, refused in self.refusals.items() if refused is None]
        try:
            speed = write_speed(images)
        except OSError as e:
            raise RunError(
                f"the speed of the destination is not measured: {e.strerror}", where=str(images)
            ) from e
        known = process_conditions(
            float(own_memory(processes)),
            dirtying(sample_pages(processes)) if depends_on_dirtying(able) else None,
            costs,
            measured_bandwidth(speed, self.backend.passes),
            bound=self.limit,
            read_speed=measured_bandwidth(speed, 1.0),
        )
        expected = _predictions(tuple(self.refusals), known, self.past)
        self.latest = _chosen(self.environment, self.limit, costs, expected, self.refusals)
        return self.latest.choice.method

    def learn(self, moved: Restored) -> dict[str, JsonValue]:
        """Correct later predictions by the move that was chosen latest. Return the facts to be recorded about
        the choice."""
        assert self.latest is not None
        times = (moved.phases.total, moved.stopped)
        self.past.append(self.latest.compared(*times))
        return {"method": self.latest.choice.method.value, **self.latest.record(*times)}


def _predictions(methods: Sequence[Method], known: Conditions, past: Sequence[PastMove]) -> Predictions:
    raw = {m: predict(m, known) for m in methods}
    return Predictions(corrected={m: corrected(p, past, MOVE_KIND) for m, p in raw.items()}, uncorrected=raw)


def _chosen(
    environment: Environment,
    limit: float,
    costs: Costs,
    expected: Predictions,
    refusals: Mapping[Method, Unavailable | None],
) -> MoveChoice:
    every = [
        Candidate(prediction=expected.corrected[m], refused=why.reason if why is not None else "")
        for m, why in refusals.items()
    ]
    if all(c.refused for c in every):
        remedy = next((why.remedy for why in refusals.values() if why is not None), "")
        raise UnavailableError(f"environment {environment.name}: {every[0].refused}", remedy=remedy)
    choice = choose(limit, every)
    return MoveChoice(
        choice=choice,
        rest=allowed_rest(limit, costs),
        prediction=expected.corrected[choice.method],
        uncorrected=expected.uncorrected[choice.method],
    )

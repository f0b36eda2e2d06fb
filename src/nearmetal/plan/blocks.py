"""The order of trials, drawn from the seed. Every block has its own permutation, independent of all others.

The generator is SHA-256, so that a plan is the same on every machine and Python version: the trials of a
block are sorted by the digest of `nearmetal-order-1/<seed>/<block>/<trial>`. Different inputs give
independent uniform digests, hence a uniform permutation, and block k can be drawn without any other block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..model.plan import GROWING, Block, NodeState, Plan, Schedule, TrialSpec, draw
from ..model.study import Study


def make_block(study: Study, number: int, without: Collection[str] = ()) -> Block:
    """Return block `number` of a study: all arms once and the A/A arms once more, in the order in which they
    start.

    Positions in the block count from 0. Block 0 is the rehearsal. Both runs of a baseline are elements of the
    permutation, so it is also random which of them is A1 and which is A2 (aa).

    without: names of arms that already have their verdicts; the order of the others does not change.

    Raises ValueError for a negative number or a study without arms.
    """
    if number < 0:
        raise ValueError(f"rounds count from 0 (the rehearsal), not from {number}")
    members = [m for m in _members(study) if m[0] not in without]
    if not members:
        raise ValueError("a study without environments has no rounds")
    seed = study.design.seed
    drawn = sorted(members, key=lambda m: draw("order", seed, number, _trial_id(number, *m)))
    return Block(
        number=number,
        trials=tuple(
            TrialSpec(id=_trial_id(number, arm, aa), block=number, position=position, arm=arm, aa=aa)
            for position, (arm, aa) in enumerate(drawn)
        ),
        slice_seed=int.from_bytes(draw("slices", seed, number, "")[:8], "big"),
    )


def make_plan(
    study: Study,
    *,
    blocks: int = 0,
    schedule: Schedule = GROWING,
    started: float | None = None,
    missing: Iterable[int] = (),
    nodes: Mapping[str, NodeState] | None = None,
    machines: Iterable[str] = (),
) -> Plan:
    """Return the plan of a study with blocks 1 to `blocks`. For the other arguments, see model.plan.Plan."""
    return Plan(
        seed=study.design.seed,
        schedule=schedule,
        sides=frozenset(_members(study)),
        blocks=tuple(make_block(study, number) for number in range(1, blocks + 1)),
        started=started,
        missing=frozenset(missing),
        nodes=dict(nodes or {}),
        machines=tuple(machines),
    )


def _members(study: Study) -> list[tuple[str, bool]]:
    return [(arm.name, False) for arm in study.arms()] + [(arm.name, True) for arm in study.aa_arms()]


def _trial_id(number: int, arm: str, aa: bool) -> str:
    return f"{number}.{arm}.aa" if aa else f"{number}.{arm}"

"""Parts of a study in parts, by key, and their plans."""

from __future__ import annotations

from nearmetal.model.change import replace
from nearmetal.model.series import Part, Series
from nearmetal.model.study import Study
from nearmetal.node.survey.accelerator import foreseen_accelerators
from nearmetal.run.estimate import RunEstimate, estimate
from nearmetal.testing.fake_host import FakeHost

NO_VIRTUALISATION = FakeHost(
    files={"/proc/cpuinfo": "processor : 0\nflags : fpu\n"}, absent=("/sys/*", "/proc/*"), cpus=(0, 1)
)


def part(of: Series, key: str) -> Part:
    return next(p for p in of.parts if p.key == key)


def study(of: Series, key: str) -> Study:
    found = part(of, key).study
    assert found is not None, part(of, key).absent
    return found


def emulated(of: Series, key: str, seconds: float | None) -> Study:
    """Return a part with a time budget, on a machine where guests are emulated."""
    own = study(of, key)
    own = replace(own, design=replace(own.design, max_time=seconds))
    return foreseen_accelerators(own, NO_VIRTUALISATION)


def near(guess: RunEstimate, rounds: int, round_seconds: float) -> bool:
    """Return whether a plan is within a factor of 2 of a run: of its rounds, and of the seconds of a round
    with all environments."""
    return (
        rounds / 2 <= guess.blocks <= 2 * rounds
        and round_seconds / 2 <= guess.block_seconds <= 2 * round_seconds
    )


def planned(of: Series, key: str, seconds: float | None) -> RunEstimate:
    return estimate(emulated(of, key, seconds))

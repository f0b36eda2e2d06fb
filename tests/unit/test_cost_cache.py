"""What the rounds of a study took is kept, and plans the next run of it on the same machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.small_study import RATE, small_study

from nearmetal.model.change import replace
from nearmetal.model.design import LEAST_SLICES
from nearmetal.model.environments.guest import Accelerator, GuestSettings
from nearmetal.model.record import TrialRecord, slice_phase
from nearmetal.model.study import Study
from nearmetal.plan import FIXED_FROM, make_plan
from nearmetal.run import cost_cache as module
from nearmetal.run.cost_cache import measured_costs, store_costs, stored_costs
from nearmetal.run.estimate import BlockCosts, RunCosts, estimate, estimated_costs
from nearmetal.testing.fake_host import FakeHost
from nearmetal.testing.simulate import Spread, simulate


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield tmp_path / "nearmetal" / "costs"


def host(model: str = "one") -> FakeHost:
    return FakeHost(files={"/proc/cpuinfo": f"processor : 0\nmodel name : {model}\n"})


def records(study: Study, blocks: int, slice_seconds: float = 0.01) -> list[TrialRecord]:
    plan = make_plan(study, blocks=blocks)
    found = simulate(study, plan, metrics=(RATE,), overheads={}, spread=Spread())
    return [replace(r, phases={**r.phases, slice_phase("ep"): slice_seconds}) for r in found]


def designed(study: Study, **changes: object) -> Study:
    return replace(study, design=replace(study.design, **changes))


def keep(study: Study) -> None:
    costs = measured_costs(study, rehearsal=5.0, walls={1: 2.0}, records=records(study, 1))
    assert costs is not None
    store_costs(study, host(), costs)


def test_fixed_cost_of_a_block_is_its_time_without_slices() -> None:
    study = small_study("native", "box")
    own = records(study, 2)
    number = len(own[0].rows[0].values)
    found = measured_costs(study, rehearsal=5.0, walls={1: 2.0, 2: 3.0}, records=own)
    assert found is not None and found.rehearsal == 5.0 and found.late is None
    assert found.block.beside == pytest.approx(2.5 - 3 * 0.01 * number)
    assert found.block.slices == pytest.approx(3 * 0.01 * LEAST_SLICES)
    assert measured_costs(study, rehearsal=5.0, walls={}, records=own) is None


def test_a_study_is_found_again_with_another_budget_and_seed_but_on_no_other_machine() -> None:
    study = small_study("native", "box")
    keep(study)
    again = designed(study, seed=9, max_time=70.0, max_blocks=3)
    found = stored_costs(again, host())
    assert found is not None and found.rehearsal == 5.0
    assert stored_costs(study, host("two")) is None
    assert stored_costs(designed(study, slices=3), host()) is None
    assert stored_costs(designed(study, margin=0.01), host()) is None
    limited = [replace(e, limits=replace(e.limits, cpu_quota=0.5)) for e in study.environments]
    assert stored_costs(replace(study, environments=tuple(limited)), host()) is None
    assert stored_costs(small_study("native", "other"), host()) is None


def test_a_plan_by_measured_costs_differs_from_one_by_estimates() -> None:
    study = designed(small_study("native", "box"), slices=4, max_time=100.0)
    costs = RunCosts(rehearsal=20.0, block=BlockCosts(beside=7.0, slices=1.0))
    guess = estimate(study, costs)
    assert guess.measured and not estimate(study).measured
    assert (guess.rehearsal_seconds, guess.block_seconds, guess.blocks) == (20.0, 8.0, 10)
    assert guess.least_seconds == 28.0
    assert estimate(designed(study, max_time=10.0), costs).blocks == 0
    assert estimate(study, replace(costs, until=6)).blocks == 6, "everything was decided then"


def test_no_plan_ends_before_the_first_look() -> None:
    study = small_study("native", "box")
    assert estimate(designed(study, slices=144)).blocks == FIXED_FROM < estimate(study).blocks


def test_how_long_short_rounds_go_on_is_between_the_last_run_and_the_usual() -> None:
    study = designed(small_study("native", "box"), slices=4, max_time=100.0)
    full, late = BlockCosts(beside=4.0, slices=1.0), BlockCosts(beside=0.1, slices=0.1)
    costs = RunCosts(rehearsal=20.0, block=full, late=late, until=10)
    assert [estimate(study, replace(costs, until=n)).blocks for n in (9, 36, 144)] == [18, 36, 72]
    assert estimate(study, replace(costs, until=None)).blocks == FIXED_FROM + 200, "as many as fit"


def test_a_run_that_ended_with_all_verdicts_says_how_many_rounds_that_took() -> None:
    study = small_study("native", "box")
    walls = dict.fromkeys(range(1, 13), 1.0)
    for decided, until in ((True, 12), (False, None)):
        found = measured_costs(study, rehearsal=5.0, walls=walls, records=records(study, 12), decided=decided)
        assert found is not None and found.until == until


def test_rounds_without_emulated_guests_are_measured_or_follow_from_the_estimate() -> None:
    study = small_study("native", "guest")
    tcg = GuestSettings(accelerator=Accelerator.TCG)
    native, guest = study.environments
    study = replace(study, environments=(native, replace(guest, backend="qemu", guest=tcg)))
    guess = estimated_costs(study)
    assert guess.late is not None
    own = records(study, FIXED_FROM + 2)
    walls = dict.fromkeys(range(1, FIXED_FROM + 1), 10.0) | dict.fromkeys((9, 10), 1.0)
    whole = measured_costs(study, rehearsal=5.0, walls=walls, records=own)
    assert whole is not None and whole.late is not None
    share = guess.late.seconds / guess.block.seconds
    assert whole.late.seconds == pytest.approx(share * whole.block.seconds), "no arm had dropped out"
    left = [r for r in own if r.block <= FIXED_FROM or not r.arm.startswith("guest")]
    found = measured_costs(study, rehearsal=5.0, walls=walls, records=left)
    assert found is not None and found.late is not None
    assert found.late.seconds == pytest.approx(1.0), "as long as the run made these rounds"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"rehearsal": -1, "block": {"beside": 1, "slices": 1}, "late": null, "until": null}'],
)
def test_a_damaged_file_is_not_used(cache: Path, text: str) -> None:
    study = small_study("native", "box")
    keep(study)
    (file,) = cache.iterdir()
    file.write_text(text)
    assert stored_costs(study, host()) is None


def test_the_oldest_files_are_removed_and_a_cache_that_cannot_be_written_is_no_error(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 2)
    for name in ("a", "b", "c"):
        study = small_study("native", name)
        keep(study)
    assert len(list(cache.iterdir())) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    keep(study)

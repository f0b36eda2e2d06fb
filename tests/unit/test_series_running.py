"""A series that is planned, run, resumed and read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.test_series_files import offer, read, written

from nearmetal.api import images
from nearmetal.api.results import Results
from nearmetal.api.series import planning, running, sizes
from nearmetal.api.series.results import frozen_series, waiting_parts
from nearmetal.api.series.running import create_series
from nearmetal.cli import series as shown
from nearmetal.cli.measure.runs import _not_of_parts
from nearmetal.cli.options import RunOptions
from nearmetal.cli.view import View
from nearmetal.errors import BusyError, ExitCode, RecordsError, RunError, UsageError
from nearmetal.images.build import build_seconds
from nearmetal.images.store import ImageStore
from nearmetal.model.design import Mode
from nearmetal.model.environments.guest import GuestSettings
from nearmetal.model.environments.image import ImageDefinition
from nearmetal.model.series import Figure, Omission, Part, Series, omission_lines
from nearmetal.model.study import KernelWorkload, Study
from nearmetal.node.machine import Machine
from nearmetal.node.progress import NullProgress
from nearmetal.plan.narrowing import narrow
from nearmetal.records import ResultsDirectory, SeriesDirectory
from nearmetal.report.tables import profile
from nearmetal.run.estimate import RunEstimate
from nearmetal.run.run import Order, Outcome
from nearmetal.run.series import LONGER_ROUNDS, next_part, offer_planned, planned_times
from nearmetal.testing.fake_host import FakeHost


def test_images_that_are_not_built_are_found_with_those_of_the_kernels_of_guests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "image_store", lambda: ImageStore(tmp_path / "images"))
    monkeypatch.setattr(images, "has_kernel", lambda image: False)
    files = read(written(tmp_path))
    cpu = files.studies["cpu"]
    assert images.unbuilt_images(cpu) == {}
    native, box = cpu.environments
    guest = replace(box, guest=GuestSettings())
    assert list(images.unbuilt_images(replace(cpu, environments=(native, guest)))) == ["debian-kernel"]
    named = replace(guest, image="debian-mpi", guest=GuestSettings(kernel="trixie-kernel"))
    found = images.unbuilt_images(replace(cpu, environments=(native, named)))
    assert list(found) == ["debian-mpi", "trixie-kernel"]
    assert build_seconds(found["debian-mpi"]) > build_seconds(found["trixie-kernel"]) > 0
    monkeypatch.setattr(images, "has_kernel", lambda image: True)
    assert images.unbuilt_images(replace(cpu, environments=(native, guest))) == {}


def test_a_plan_names_the_images_that_are_built_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    series = narrow(read(written(tmp_path)), offer(), seed=1, max_time=60.0)
    odd = ImageDefinition(name="odd", suite="host", packages=("gcc", "make"))
    monkeypatch.setattr(planning, "unbuilt_images", lambda _study: {"odd": odd})
    shown.show_series(series, json=False, blocks=1)
    told = capsys.readouterr().out
    assert "image odd is not built and is built first: about 0:00:" in told
    shown.show_series(series, json=True, blocks=1)
    assert json.loads(capsys.readouterr().out)["images_to_build"] == {"odd": build_seconds(odd)}


def test_what_is_left_out_for_the_same_reason_is_one_line() -> None:
    omissions = [
        Omission(what="a", reason="no image", remedy="make it"),
        Omission(what="jobs", reason="no pool"),
        Omission(what="b", reason="no image", remedy="make it"),
        Omission(what="c", reason="no device", remedy="make it"),
        Omission(what="users", reason="no pool"),
    ]
    assert omission_lines(omissions) == [
        "a, b: no image; c: no device; next: make it",
        "jobs: no pool",
        "users: no pool",
    ]


def test_a_plan_gives_the_parts_the_time_that_the_run_will_give_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every part has time for a rehearsal and a round; shares divide the rest. An early part that needs less
    leaves it to the later ones; one that needs more takes it from them, or leaves none."""
    series = narrow(read(written(tmp_path)), offer(), seed=1, max_time=100.0)

    def guess(seconds: float, rehearsal: float = 0.0) -> dict[str, float | None]:
        plain = RunEstimate(
            blocks=1, least_blocks=1, block_seconds=seconds - rehearsal, rehearsal_seconds=rehearsal
        )
        found = planned_times(series, lambda part, study: plain)
        return {key: study.design.max_time for key, (study, _) in found.items()}

    assert guess(5.0) == {"cpu": pytest.approx(5.0 + 0.6 * 90.0), "net": pytest.approx(95.0)}
    eight = 8 * 10.0 * LONGER_ROUNDS
    assert guess(10.0) == {"cpu": pytest.approx(eight), "net": pytest.approx(90.0)}, (
        "58 s are no eight rounds"
    )
    assert guess(50.0) == {"cpu": pytest.approx(50.0), "net": pytest.approx(50.0)}
    assert guess(80.0) == {"cpu": pytest.approx(80.0), "net": pytest.approx(20.0)}
    assert guess(80.0, rehearsal=60.0) == {"cpu": pytest.approx(80.0)}, "no rehearsal ends in 20 s"
    assert guess(101.0) == {"cpu": pytest.approx(100.0)}
    short = replace(series, max_time=0.01)
    shown.show_series(short, json=False, blocks=1)
    told = capsys.readouterr().out
    assert "about 0 rounds of" in told and "--only cpu --time" in told
    assert "not in this time: the parts before it use it up; next: --only net --time TIME" in told
    shown.show_series(short, json=True, blocks=1)
    parts = json.loads(capsys.readouterr().out)["parts"]
    assert [p["estimated_blocks"] for p in parts] == [0, 0]


def test_an_image_that_another_process_builds_stops_only_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(study: Study, progress: object) -> None:
        raise BusyError("another process builds image odd", remedy="wait for it")

    monkeypatch.setattr(running, "build_images", build)
    series = narrow(read(written(tmp_path)), offer(), seed=1, max_time=60.0)
    made = create_series(series, tmp_path / "results", "")

    def start(
        part: Part, study: Study, into: SeriesDirectory, found: ResultsDirectory | None, left: float
    ) -> Outcome:
        raise AssertionError("nothing starts without its image")

    code = shown.measure_parts(made, series, start, RunOptions(json=True), seconds=60.0)
    assert code == ExitCode.FAILED_TRIALS
    assert set(made.ends().values()) == {"did not run: another process builds image odd; next: wait for it"}
    assert [p["why"] for p in json.loads(capsys.readouterr().out)["parts"]] == [*made.ends().values()]


class Clock:
    """Monotonic seconds that pass only when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("nearmetal.api.series.running.time.monotonic", lambda: self.now)


@pytest.mark.parametrize(
    ("overrun", "said"),
    [(False, ""), (True, "cpu took 0:00:3")],
)
def test_time_above_the_share_of_a_part_is_added_with_overrun_and_else_taken_from_the_later_parts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    overrun: bool,
    said: str,
) -> None:
    clock = Clock(monkeypatch)
    series, made = begun_series(tmp_path, monkeypatch)
    budgets: list[float] = []

    def start(
        part: Part, study: Study, into: SeriesDirectory, found: ResultsDirectory | None, left: float
    ) -> Outcome:
        assert study.design.max_time is not None
        budgets.append(study.design.max_time)
        clock.now += 90.0
        return Outcome(directory=None, stopped="the time is used up", interrupted=False)

    options = RunOptions(json=True, overrun=overrun)
    shown.measure_parts(made, series, start, options, seconds=100.0)
    first, second = budgets
    assert first == pytest.approx(60.0, abs=2.0)
    assert second == pytest.approx(100.0 - first if overrun else 10.0)
    told = capsys.readouterr().err
    assert said in told and ("The later parts keep their shares" in told) == overrun


@pytest.mark.parametrize("begun", [False, True])
def test_a_part_gets_the_options_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    orders: list[Order] = []

    def run(machine: object, study: Study, *given: object) -> Outcome:
        assert study.design.max_blocks == 3
        orders.extend(o for o in given if isinstance(o, Order))
        return Outcome(directory=None, stopped="", interrupted=False)

    monkeypatch.setattr("nearmetal.run.run.start_run", run)
    monkeypatch.setattr("nearmetal.run.run.resume_run", run)
    monkeypatch.setattr(running, "machine_for", lambda study, *_, machine, **__: (machine, study))
    series = narrow(read(written(tmp_path)), offer(), seed=1, max_time=100.0)
    made = create_series(series, tmp_path / "results", "")
    study = series.parts[0].study
    assert study is not None
    found = ResultsDirectory.create(made.path, study.name, study_yaml="name: x") if begun else None
    monkeypatch.setattr(running, "frozen_study", lambda directory: study)
    options = RunOptions(overrun=True, force=True, max_blocks=3)
    start = shown._starter(cast("Machine", None), options, resuming=begun)
    start(series.parts[0], study, made, found, 50.0)
    assert [(o.overrun, o.force, o.parent) for o in orders] == [(True, True, made.path)]
    assert orders[0].longer == ("--time" if begun else "--only cpu --time")
    assert orders[0].begin is not None and orders[0].first_until == 50.0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (RunOptions(margin="3 %"), "--margin"),
        (RunOptions(width="0.7 %"), "--width"),
        (RunOptions(engine="local"), "--engine"),
        (RunOptions(workers=2), "--workers"),
        (RunOptions(nodes="slurm"), "--nodes"),
        (RunOptions(engine_option=["a=b"]), "--engine-option"),
        (RunOptions(lease="1m"), "--lease"),
        (RunOptions(mode=Mode.PLAIN), "--mode"),
    ],
)
def test_options_that_parts_do_not_have_are_refused(options: RunOptions, word: str) -> None:
    with pytest.raises(UsageError, match=f"{word} does not apply to a study in parts"):
        _not_of_parts(options)


def begun_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Series, SeriesDirectory]:
    """A series with its directory, for which no image is built."""
    monkeypatch.setattr(running, "build_images", lambda study, progress: None)
    series = narrow(read(written(tmp_path)), offer(), seed=1, max_time=100.0)
    return series, create_series(series, tmp_path / "results", "")


def test_ctrl_c_while_an_image_is_built_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    series, made = begun_series(tmp_path, monkeypatch)

    def interrupted(study: Study, progress: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "build_images", interrupted)
    start = shown._starter(cast("Machine", None), RunOptions(json=True), resuming=False)
    assert shown.measure_parts(made, series, start, RunOptions(json=True), seconds=100.0) == 130
    assert f"Go on with:  nearmetal resume {made.path}" in capsys.readouterr().err


def test_a_part_that_could_not_run_is_tried_again_and_parts_that_are_done_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    series, made = begun_series(tmp_path, monkeypatch)
    started: list[str] = []

    def start(
        part: Part, study: Study, into: SeriesDirectory, found: ResultsDirectory | None, left: float
    ) -> Outcome:
        started.append(part.key)
        if started == ["cpu"]:
            raise RunError("no instance starts", remedy="mend it")
        return Outcome(directory=None, stopped="all comparisons have a verdict", interrupted=False)

    shown.measure_parts(made, series, start, RunOptions(json=True), seconds=100.0)
    assert made.ends() == {
        "cpu": "did not run: no instance starts; next: mend it",
        "net": "all comparisons have a verdict",
    }
    assert "cpu did not run: no instance starts" in capsys.readouterr().err
    done = ResultsDirectory.create(made.path, "mine-net", study_yaml="name: x")
    (done.path / "plan.json").write_text("{}")
    monkeypatch.setattr(ResultsDirectory, "closed", property(lambda directory: directory.path == done.path))
    assert [p.key for p in waiting_parts(made, series)] == ["cpu"]


def test_an_older_series_without_left_out_and_figures_is_still_read(tmp_path: Path) -> None:
    files = read(written(tmp_path))
    made = create_series(narrow(files, offer(), seed=1, max_time=1.0), tmp_path / "results", "")
    stored = json.loads((made.path / "series.json").read_text())
    for part in stored["parts"]:
        del part["figures"], part["left_out"]
    stored["parts"][0]["places"] = {"1 per node": "box/1x1"}
    (made.path / "series.json").write_text(json.dumps(stored))
    cpu, net = frozen_series(made).parts
    assert cpu.figures == (Figure.PACKING,) and net.figures == (Figure.OVERHEADS,) and net.left_out == ()


def test_another_backend_needs_a_list_in_the_series_file(tmp_path: Path) -> None:
    host = FakeHost(absent=("/sys/*", "/proc/*"), cpus=(0, 1))
    files = read(written(tmp_path, ("series.yaml", "  backends: {lxc: [lxc, namespaces]}\n", "")))
    assert offer_planned(files, host, None).substitutes == {}
    with pytest.raises(UsageError, match="mine has no list of backends"):
        offer_planned(files, host, "namespaces")


def test_a_note_is_shown_once_for_all_parts(capsys: pytest.CaptureFixture[str]) -> None:
    told: set[str] = set()
    for _part in range(2):
        with View(shown=told) as view:
            view.note("guests are emulated")
    with View() as view:
        view.note("guests are emulated")
    assert capsys.readouterr().err.count("note: guests are emulated") == 2


def test_a_part_whose_image_is_not_built_is_planned_as_it_is_foreseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guests may be emulated, which makes the plan of a dry run longer."""
    series = narrow(read(written(tmp_path)), offer(), seed=1, max_time=60.0)
    odd = ImageDefinition(name="odd", suite="host", packages=("gcc",))
    monkeypatch.setattr(planning, "unbuilt_images", lambda study: {"odd": odd})
    monkeypatch.setattr(planning, "foreseen", lambda study: replace(study, question="foreseen"))
    machine = cast("Machine", None)  # not asked
    parts = planning.checked_series(series, machine, NullProgress()).parts
    assert [p.study and p.study.question for p in parts] == ["foreseen", "foreseen"]


def test_only_the_first_part_begins_if_no_rehearsal_would_end_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise a resumption in the same time would measure nothing either."""
    series, made = begun_series(tmp_path, monkeypatch)
    begun: list[str] = []

    def start(
        part: Part, study: Study, into: SeriesDirectory, found: ResultsDirectory | None, left: float
    ) -> Outcome:
        begun.append(part.key)
        raise RunError("it ended")

    code = shown.measure_parts(made, series, start, RunOptions(json=True), seconds=0.2)
    first, *others = [p.key for p in series.parts if p.study is not None]
    assert begun == [first] and others
    assert code == ExitCode.FAILED_TRIALS
    assert {made.ends()[key] for key in others} == {running.NO_TIME}
    assert "nearmetal resume measures it" in capsys.readouterr().out


def test_where_not_every_part_can_have_a_round_those_that_need_least_run_first(tmp_path: Path) -> None:
    series = narrow(read(written(tmp_path)), offer(), seed=1, max_time=100.0)
    dear, cheap = series.parts[:2]
    least = {
        key: RunEstimate(blocks=0, least_blocks=0, block_seconds=each, rehearsal_seconds=each)
        for key, each in ((dear.key, 40.0), (cheap.key, 15.0))
    }
    part, seconds = next_part([dear, cheap], 120.0, least)
    assert part is dear and seconds == pytest.approx(80.0 + 0.6 * 10.0)
    assert next_part([dear, cheap], 100.0, least) == (cheap, 30.0)
    begun = least | {dear.key: replace(least[dear.key], done=3, rehearsal_seconds=0.0)}
    assert next_part([dear, cheap], 60.0, begun) == (cheap, 30.0)  # a begun part needs a round too
    sized = replace(cheap, sizes_from=dear.key)
    assert next_part([dear, sized], 100.0, least)[0] is dear, "it chooses the sizes of the other one"
    assert next_part([sized], 100.0, least)[0] is sized


def test_where_no_part_would_have_a_verdict_one_gets_the_time_of_its_first_look(tmp_path: Path) -> None:
    first, second = narrow(read(written(tmp_path)), offer(), seed=1, max_time=60.0).parts[:2]
    first, second = replace(first, share=0.6), replace(second, share=0.4)
    rounds = {first.key: 30.0, second.key: 10.0}
    least = {
        key: RunEstimate(blocks=0, least_blocks=0, block_seconds=each, rehearsal_seconds=each)
        for key, each in rounds.items()
    }
    look = 10.0 + 8 * 10.0 * LONGER_ROUNDS
    part, seconds = next_part([first, second], 160.0, least)
    assert part is second and seconds == pytest.approx(look)
    assert next_part([first], 160.0 - look, least) == (first, 160.0 - look)
    assert next_part([first, second], 110.0, least)[0] is first, "no look can be reached"
    part, seconds = next_part([first, second], 500.0, least)
    assert part is first and seconds == pytest.approx(60 + 0.6 * 420), "second reaches its look by its share"
    begun = least | {second.key: replace(least[second.key], done=7)}
    assert next_part([first, second], 85.0, begun)[0] is first, "the next round of second is its first look"


def test_a_part_gets_the_sizes_that_another_one_chose_before_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series, made = begun_series(tmp_path, monkeypatch)
    source, part = series.parts
    part = replace(part, key="q1", sizes_from=source.key)
    series = replace(series, paper="containers-2015", parts=(source, part))
    said: list[str] = []
    results: list[object] = []

    def analyse(found: ResultsDirectory) -> Results:
        if not results:
            raise RecordsError("torn")
        return cast("Results", results[0])

    def sized(of: Part, study: Study) -> Study:
        return sizes.sized(made, series, of, study, note=said.append, analyse=analyse)

    assert source.study is not None and part.study is not None
    cg = [KernelWorkload(name=f"cg-{c}", kernel="cg", params={"class": c}) for c in "SW"]
    candidates = replace(source.study, workloads=tuple(cg))
    asked = replace(part.study, workloads=(replace(cg[0], name="cg"),))
    assert sized(replace(part, sizes_from=""), asked) is asked and not made.choices()
    assert sized(part, asked) is asked
    assert "as in its file: part cpu has no results" in made.choices()["q1"]
    there: dict[str, object] = {source.key: object()}
    monkeypatch.setattr(SeriesDirectory, "part", lambda _self, of: there.get(of.key))
    results.append(SimpleNamespace(study=candidates, trials=()))
    shares = {("native/1x1", "cg-S"): 0.1, ("native/1x1", "cg-W"): 0.5}
    monkeypatch.setattr(profile, "computation_shares", lambda _arms, _records: shares)
    chosen = sized(part, asked)
    assert [(w.name, w.params["class"]) for w in chosen.kernels] == [("cg", "W")]
    assert "cg class W (50 %, in the paper 54.7 %)" in made.choices()["q1"]
    assert "q1: Chosen by the share" in said[-1]
    monkeypatch.setattr(profile, "computation_shares", lambda _arms, _records: {})
    assert sized(part, asked) is asked
    assert "part cpu has no profile" in made.choices()["q1"]
    there["q1"] = object()
    assert sized(part, asked) is asked, "it has begun, with its sizes frozen"
    del there["q1"]

    def torn(*_: object) -> None:
        raise RecordsError("torn")

    results.clear()
    assert sized(part, asked) is asked
    assert "part cpu cannot be read: torn" in made.choices()["q1"]
    other = replace(asked, workloads=(replace(cg[0], name="ua", kernel="ua"),))
    assert sized(part, other) is other
    assert "no claim of the published table about part q1 says" in made.choices()["q1"]
    monkeypatch.setattr(sizes, "paper_of", torn)
    assert sized(part, asked) is asked
    assert "the published table cannot be read: torn" in made.choices()["q1"]

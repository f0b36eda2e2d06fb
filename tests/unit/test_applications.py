"""The way of an application through study file, command line and rows, by one that exists for these tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearmetal import plugins
from nearmetal.api.adhoc.weigh import weigh_study
from nearmetal.api.catalog import catalog
from nearmetal.api.studies import study_from
from nearmetal.api.workload_names import misplaced, named_workloads
from nearmetal.environments.registry import get_backend
from nearmetal.errors import StudyError, UnavailableError, UsageError
from nearmetal.model.record import Status
from nearmetal.model.study import (
    ApplicationWorkload,
    Better,
    KernelWorkload,
    Mode,
    StorageKind,
    Study,
    Workload,
)
from nearmetal.node.machine import Hardware
from nearmetal.node.survey.programs import place_of, require_programs, runs_mpi
from nearmetal.study_file import dump_study, load_text
from nearmetal.workloads.applications import registry as applications
from nearmetal.workloads.applications.contract import Invocation, Metric, Needs, Output, Parsed, Place
from nearmetal.workloads.applications.registry import choices, rows
from nearmetal.workloads.command import ResourceUse
from nearmetal.workloads.parameter import Choices, Kind, Parameter

TEXT = """
name: apps
environments:
  native: {backend: native, storage: {kind: overlay}}
  box: {backend: namespaces, storage: {kind: overlay}, limits: {memory: 1 GiB}}
placements: {1x2: {instances: 1, tasks: 2}}
workloads:
  ours: {application: walker, steps: 3, size: 4 MiB, wait: 2 ms, share: 80 %, path: /opt/a b, way: left}
design: {baseline: native, seed: 1, mode: plain}
"""


class Walker:
    name = "walker"
    doc = "walks"
    parameters = (
        Parameter(name="steps", kind=Kind.WHOLE, default=1, doc="how many", most=9),
        Parameter(name="size", kind=Kind.BYTES, default=1 << 20, doc="of a step"),
        Parameter(name="wait", kind=Kind.SECONDS, default=0.5, doc="after each", least=0),
        Parameter(name="share", kind=Kind.SHARE, default=0.5, doc="of the way", least=0, most=1),
        Parameter(name="path", kind=Kind.TEXT, default="/", doc="where"),
        Parameter(name="way", kind=Kind.WORD, default="right", doc="which", words=("left", "right")),
    )

    def needs(self, choices: Choices) -> Needs:
        return Needs(programs=("walk", "rest"), packages=("walking",), storage=True)

    def problem(self, choices: Choices, place: Place) -> str | None:
        return "walker has two legs" if place.ranks != 2 else None

    def prepare(self, choices: Choices, place: Place) -> tuple[Invocation, ...]:
        return ()

    def command(self, choices: Choices, place: Place) -> Invocation:
        return Invocation(argv=("walk", str(choices.whole("steps"))), mpi=True)

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        return (("pace", "op/s", Better.HIGHER),)

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        pace = Metric(name="pace", unit="op/s", better=Better.HIGHER, value=2.0)
        return Parsed(metrics=(pace,), ok=output.stdout == "there", expected="there", found=output.stdout)


@pytest.fixture(autouse=True)
def walker(monkeypatch: pytest.MonkeyPatch) -> None:
    known = plugins.points

    class Point:
        value = "tests:Walker"

        def load(self) -> type[Walker]:
            return Walker

    monkeypatch.setattr(
        plugins, "points", lambda group: {"walker": Point()} if group == applications.GROUP else known(group)
    )
    applications.application.cache_clear()


def _ours(study: Study) -> ApplicationWorkload:
    (workload,) = study.workloads
    assert isinstance(workload, ApplicationWorkload)
    return workload


def test_application_keys_are_read_in_base_units_and_written_back() -> None:
    study = load_text(TEXT, "s.yaml", catalog())
    assert _ours(study).params == {
        "steps": 3,
        "size": 4 << 20,
        "wait": 0.002,
        "share": 0.8,
        "path": "/opt/a b",
        "way": "left",
    }
    text = dump_study(study, catalog())
    assert load_text(text, "s.yaml", catalog()) == study
    assert load_text(text, "s.yaml", None) == study


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (": walker", ": walkr", 8, 'unknown application "walkr"; did you mean "walker"?'),
        ("steps: 3", "stepps: 3", 8, 'unknown parameter of walker; did you mean "steps"?'),
        ("steps: 3", "steps: 30", 8, "steps is a whole number from 1 to 9"),
        ("share: 80 %", "share: 180 %", 8, "share is a number from 0 to 1"),
        ("way: left", "way: up", 8, 'unknown value "up"'),
        ("tasks: 2", "tasks: 1", 8, "walker has two legs (placement 1x2)"),
        ("native, storage: {kind: overlay}", "native", 8, "walker needs storage; give native"),
    ],
)
def test_invalid_option_is_reported_with_its_line(old: str, new: str, line: int, words: str) -> None:
    with pytest.raises(StudyError) as caught:
        load_text(TEXT.replace(old, new, 1), "s.yaml", catalog())
    said = str(caught.value)
    assert words in said
    assert f"s.yaml:{line}:" in said


def test_the_command_line_names_it_with_keys() -> None:
    quick = study_from("quick", 0)
    texts = ["walker:steps=3,wait=2 ms,cg", "npb:ep.S", "stream:elements=1000"]
    found = named_workloads(texts, catalog(), quick)
    assert [type(w) for w in found] == [ApplicationWorkload, KernelWorkload, KernelWorkload, KernelWorkload]
    params = [w.params for w in found if isinstance(w, ApplicationWorkload | KernelWorkload)]
    assert (params[0], params[2]) == ({"steps": 3, "wait": 0.002}, {"class": "S"})
    assert [w.name for w in found] == ["walker", "cg", "ep-S", "stream-1000"]


@pytest.mark.parametrize(
    "text",
    ["walker:steps", "walker:steps=30", "walker:step=3", "start:count=3", "npb:stream.S", "npb:ep", "cg,cg"],
)
def test_invalid_workload_on_the_command_line_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        named_workloads([text], catalog(), study_from("quick", 0))


def test_weigh_gives_it_storage_and_plain_trials() -> None:
    own = named_workloads(["walker"], catalog(), study_from("quick", 0))
    study = _weighed(own, ranks=2)
    assert study.design.mode is Mode.PLAIN
    assert [e.storage and e.storage.kind for e in study.environments] == [StorageKind.BIND] * 2
    assert misplaced(_ours(study), study) == ()
    assert misplaced(_ours(_weighed(own, ranks=1)), _weighed(own, ranks=1)) == (
        "walker has two legs (placement 1x1)",
    )


def _weighed(own: tuple[Workload, ...], ranks: int) -> Study:
    return weigh_study(
        {name: get_backend(name) for name in ("native", "namespaces")},
        workloads=own,
        command=(),
        ranks=ranks,
        instances=None,
        mpi=False,
        margin=0.03,
        seed=1,
        max_time=60,
    )


def test_the_least_memory_of_any_arm_counts_for_all() -> None:
    study = load_text(TEXT, "s.yaml", catalog())
    machine = Hardware(memory=8 << 30, cpu_flags=frozenset({"avx2", "fma"}), rdma=("mlx5_0",))
    places = [place_of(_ours(study), arm, study, machine, Path("/d")) for arm in study.arms()]
    assert [p.memory for p in places] == [1 << 30, 1 << 30]
    assert {(p.cpu_flags, p.rdma) for p in places} == {(machine.cpu_flags, machine.rdma)}
    assert runs_mpi(_ours(study), study)


def test_a_missing_program_is_named_with_its_package() -> None:
    study = load_text(TEXT, "s.yaml", catalog())
    with pytest.raises(UnavailableError, match="rest is not on this machine") as caught:
        require_programs(study, "host", {"walk": "/usr/bin/walk"}.get)
    assert caught.value.remedy == "sudo apt-get install walking"
    require_programs(study, "other", lambda _: None)  # no environment has that image


def test_rows_fail_together_where_the_result_is_wrong() -> None:
    study = load_text(TEXT, "s.yaml", catalog())
    ours = _ours(study)
    place = Place(nodes=1, instances=1, tasks=2, directory=Path("/"), storage=None, memory=1)
    for said, status in (("there", Status.OK), ("lost", Status.FAILED)):
        found = Walker().parse(choices(ours), place, Output(stdout=said))
        made = rows(ours, found, ResourceUse(wall=1.0, user=2.0, system=0.1, max_rss=1000))
        assert [r.metric for r in made] == ["wall", "user", "system", "max_rss", "pace"]
        assert {r.status for r in made} == {status}
        assert made[-1].values == (2.0,)

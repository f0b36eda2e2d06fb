"""The study of two virtual machine scenarios: its parts, the paper's figures, and both side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests import parts

from nearmetal.analysis import analyse
from nearmetal.analysis.instances import instance_figures
from nearmetal.api.catalog import catalog
from nearmetal.api.series.files import read_series
from nearmetal.environments.xen.backend import Xen
from nearmetal.environments.xen.settings import XenSettings, XenType
from nearmetal.errors import UsageError
from nearmetal.host.counters.procfiles import CounterUnits
from nearmetal.images.find import builtin_definition
from nearmetal.model.change import replace
from nearmetal.model.environments.environment import BackendSettings
from nearmetal.model.environments.guest import GuestSettings
from nearmetal.model.environments.image import HOST
from nearmetal.model.papers.published import PublishedFigure, Quantity
from nearmetal.model.record import TrialRecord
from nearmetal.model.scope import GUEST, INSTANCE, NODE, Scope
from nearmetal.model.series import Part, Scale, Series
from nearmetal.model.series_file import SeriesFiles
from nearmetal.model.study import ApplicationWorkload, Better, Study
from nearmetal.node.machine import Hardware
from nearmetal.node.survey.programs import place_of
from nearmetal.plan import make_plan
from nearmetal.plan.narrowing import MachineOffer, Substitute, narrow
from nearmetal.published import published
from nearmetal.report import series_page
from nearmetal.report.record_index import RecordIndex
from nearmetal.report.series import PartResult, series_json, series_text
from nearmetal.report.series_page import write_series
from nearmetal.report.tables.instances import value_of
from nearmetal.run.estimate import estimate
from nearmetal.run.series import offer_planned
from nearmetal.samplers import Header, Sample, SampleSection
from nearmetal.studies import find_series, series_names
from nearmetal.study_file import dump_study, load_text
from nearmetal.testing.fake_host import FakeHost
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate
from nearmetal.workloads.applications.lammps import Lammps, memory
from nearmetal.workloads.parameter import Choices

BLOCKS = 12
MB = 1e6
MACHINE = Hardware(memory=24 << 30)


NAME, IMAGE = "two-vm-scenarios-2009", "debian-lammps"
MIB = 1 << 20
TASK_MEMORY = {Scale.SMALL: 128 * MIB, Scale.PAPER: 256 * MIB}
CELLS = {Scale.SMALL: 12, Scale.PAPER: 44}


def files(scale: Scale = Scale.SMALL) -> SeriesFiles:
    found = find_series(NAME)
    assert found is not None
    return read_series(found, scale=scale, seed=7)


def offer(cpus: tuple[int, ...], backend: str, own: BackendSettings | None = None) -> MachineOffer:
    """A machine with LAMMPS."""
    virtual = {"qemu", "xen"}
    return MachineOffer(
        cpus=cpus,
        cores=len(cpus),
        substitutes={"qemu": Substitute(backend=backend, own_kernel=backend in virtual, settings=own)},
        programs=frozenset({"lmp"}),
        own_kernel=lambda name: name in virtual,
    )


def series(cpus: int, *, virtual: bool = True, scale: Scale = Scale.SMALL) -> Series:
    here = offer(tuple(range(cpus)), "qemu" if virtual else "namespaces")
    return narrow(files(scale), here, seed=7, max_time=900.0)


def planned(host: FakeHost, backend: str, only: tuple[str, ...] = ()) -> Series:
    return narrow(files(), offer_planned(files(), host, backend), seed=1, max_time=60.0, only=only)


def study(of: Series, key: str) -> Study:
    found = next(p for p in of.parts if p.key == key).study
    assert found is not None
    return found


@pytest.mark.parametrize("cpus", [2, 3, 8, 24])
@pytest.mark.parametrize("scale", Scale)
@pytest.mark.parametrize("virtual", [True, False])
def test_every_part_is_a_study_that_its_own_file_holds(cpus: int, scale: Scale, virtual: bool) -> None:
    known = replace(catalog(), no_image=lambda _name, _own, _file: None)  # whether it is built or not
    for p in series(cpus, scale=scale, virtual=virtual).parts:
        assert p.study is not None, p.absent
        assert load_text(dump_study(p.study, known), "s.yaml", known) == p.study
        assert set(p.places.values()) == {a.name for a in p.study.arms()}
        if p.key == "monitor":
            continue
        assert {c.arm for c in p.study.comparisons()} == {p.places["scenario 1"], p.places["bare"]}
        assert {c.baseline for c in p.study.comparisons()} == {p.places["scenario 2"]}
        assert p.study.design.instance_counters


@pytest.mark.parametrize(("virtual", "backend"), [(True, "qemu"), (False, "namespaces")])
def test_a_monitor_runs_in_either_guest_and_alone_on_the_machine(virtual: bool, backend: str) -> None:
    own = study(series(2, virtual=virtual), "monitor")
    beside = {e.name: e.beside for e in own.environments}
    first = next(iter(beside))
    assert beside[first] is None and not own.design.instance_counters, "which would be a monitor too"
    inside, apart = beside["monitor-inside"], beside["monitor-apart"]
    assert inside is not None and apart is not None and inside.argv == apart.argv
    assert (inside.backend, apart.backend) == (None, backend)
    assert ("monitor-apart/1x1", "monitor-inside/1x1") in {(c.arm, c.baseline) for c in own.comparisons()}


def test_memory_is_split_between_the_tasks_and_a_fifth_is_added() -> None:
    asked = series(2)
    for key, factor in (("scenarios", 1.0), ("memory", 1.2), ("cores", 1.0)):
        sizes = {
            a.environment.name: a.environment.guest.memory
            for a in study(asked, key).arms()
            if a.environment.guest is not None
        }
        own = TASK_MEMORY[Scale.SMALL]
        assert sizes["two-vms"] == pytest.approx(factor * own, rel=0.01)
        assert sizes["one-vm"] == pytest.approx(2 * factor * own, rel=0.01)
    guests = [a.environment.guest for a in study(asked, "memory").arms()]
    assert all(g is None or (g.swap and g.writable) for g in guests)
    containers = study(series(2, virtual=False), "scenarios")
    limits = {a.environment.name: a.environment.limits.memory for a in containers.arms()}
    assert limits == {"two-containers": own, "one-container": 2 * own, "bare": None}


def test_both_tasks_share_a_cpu_as_on_the_papers_nodes_and_then_each_has_its_own() -> None:
    asked = series(4)
    assert {a.placement.cpus for a in study(asked, "scenarios").arms()} == {(0, 0)}
    assert all(a.placement.oversubscribe for a in study(asked, "memory").arms())
    assert {a.placement.cpus for a in study(asked, "cores").arms()} == {(0, 1)}
    assert not any(a.placement.oversubscribe for a in study(asked, "cores").arms())
    eight = study(series(4, scale=Scale.PAPER), "scenarios")
    assert {a.placement.cpus for a in eight.arms()} == {(0, 0, 1, 1, 2, 2, 3, 3)}
    assert all(a.placement.node.emulated for a in eight.arms())
    others = narrow(files(), offer((4, 6), "qemu"), seed=7, max_time=900.0)
    assert {a.placement.cpus for a in study(others, "scenarios").arms()} == {(4, 4)}
    assert {a.placement.cpus for a in study(others, "cores").arms()} == {(4, 6)}


def test_parts_that_one_cpu_cannot_run_say_so() -> None:
    parts = {p.key: p for p in series(1).parts}
    assert parts["cores"].study is None and "1 core" in parts["cores"].absent
    assert parts["scenarios"].study is not None


@pytest.mark.parametrize("scale", Scale)
def test_every_arm_is_asked_for_the_same_work_that_fits(scale: Scale) -> None:
    """However the tasks are spread, and whatever memory the bare machine has."""
    asked = study(series(2, scale=scale), "scenarios")
    (load,) = asked.workloads
    assert isinstance(load, ApplicationWorkload)
    given = Choices(values={p.name: p.default for p in Lammps.parameters} | dict(load.params))
    places = [place_of(load, a, asked, MACHINE, Path("/")) for a in asked.arms()]
    assert {p.memory // p.tasks for p in places} == {TASK_MEMORY[scale]}
    commands = {str(Lammps().command(given, replace(p, storage=Path("/s"))).files) for p in places}
    assert len(commands) == 1
    assert all(Lammps().problem(given, p) is None for p in places)
    assert 0.25 < memory(given, places[0]) / places[0].memory < 0.7
    assert given.whole("cells") == CELLS[scale]


def test_guests_without_their_own_settings_have_the_usual_memory() -> None:
    asked = study(series(2), "scenarios")
    (load,) = asked.workloads
    assert isinstance(load, ApplicationWorkload)
    wide = replace(asked.environments[0], guest=GuestSettings())
    one = replace(asked, environments=(wide, *asked.environments[1:]))
    assert place_of(load, one.arms()[0], one, MACHINE, Path("/")).memory == 2 * TASK_MEMORY[Scale.SMALL]


def test_the_image_brings_lammps_an_mpi_and_a_kernel() -> None:
    definition = builtin_definition(IMAGE)
    assert definition is not None
    wanted = {"lammps", "openmpi-bin", "linux-image-cloud-amd64"}
    assert wanted <= set(definition.packages)


def test_a_plan_starts_nothing() -> None:
    host = FakeHost(absent=("/sys/*", "/proc/*"), programs={"lmp": "/usr/bin/lmp"}, cpus=(0, 1))
    assert NAME in series_names()
    made = planned(host, "namespaces", only=("cores",))
    assert made.keys == ("cores",) and made.notes[-1] == "Containers by namespaces."
    assert study(made, "cores").environments[0].image == HOST
    bare = FakeHost(absent=("/sys/*", "/proc/*"), missing=("lmp",), cpus=(0, 1))
    assert study(planned(bare, "namespaces"), "cores").environments[0].image == IMAGE
    with pytest.raises(UsageError, match="no backend"):
        offer_planned(files(), host, "no-such-backend")


def test_a_plan_by_xen_is_of_guests_alike_those_of_qemu() -> None:
    host = FakeHost(absent=("/sys/*", "/proc/*"), programs={"lmp": "/usr/bin/lmp"}, cpus=(0,))
    both = {backend: planned(host, backend) for backend in ("xen", "qemu")}
    assert "Guests by xen" in both["xen"].notes[-1]
    own, other = (study(both[b], "scenarios") for b in ("xen", "qemu"))
    assert [a.name for a in own.arms()] == ["one-vm/1x2", "two-vms/2x1", "bare/1x2"]
    guests = [e for e in own.environments if e.backend == "xen"]
    assert len(guests) == 2 and {e.image for e in own.environments} == {IMAGE}
    alike = tuple(replace(e, backend="qemu") if e in guests else e for e in own.environments)
    assert replace(own, environments=alike) == other
    (cores,) = (p for p in both["xen"].parts if p.key == "cores")
    assert cores.study is None and cores.absent.startswith("this machine has 1 core")


@pytest.mark.parametrize(
    ("caps", "kind_of_guest"),
    [("xen-3.0-x86_64 hvm-3.0-x86_64", None), ("xen-3.0-x86_64", XenType.PV)],
)
def test_xen_without_hardware_virtualisation_uses_pv_guests(caps: str, kind_of_guest: XenType | None) -> None:
    told = f"xen_major : 4\nxen_minor : 17\nxen_caps : {caps}\nxen_scheduler : credit2\n"
    dom0 = FakeHost(programs={"xl": "/usr/sbin/xl"}, commands={("xl", "info"): told}, root=True)
    found = Xen().settings_here(dom0)
    assert (found and found.type) == kind_of_guest
    own = study(narrow(files(), offer((0,), "xen", found), seed=7, max_time=60.0), "scenarios")
    known = replace(catalog(), no_image=lambda _name, _own, _file: None)
    assert load_text(dump_study(own, known), "s.yaml", known) == own
    assert [(isinstance(e.own, XenSettings) and e.own.type) or None for e in own.environments] == [
        kind_of_guest,
        kind_of_guest,
        None,
    ]


def test_every_published_figure_has_a_source() -> None:
    paper = published(NAME)
    assert paper is not None
    assert {f.part for f in paper.figures} == {"scenarios", "memory"}
    assert all(f.source and f.differs and f.low == f.high for f in paper.figures)
    inside = {(f.arm, f.phase): f.low for f in paper.of_part("scenarios") if f.quantity is Quantity.INSTANCES}
    node = [inside["scenario 1", f"node.{name}"] for name in ("user", "system", "wait", "idle")]
    assert node == [0.538, 0.022, 0.026, 0.414]
    assert inside["scenario 1", "memory.committed"] == 285.57e6
    assert inside["scenario 2", "rates.blocks sent"] == 19.99 * 1024


#: A second of a guest of 100 ticks a second: user, nice, system, idle, iowait, irq, softirq, steal.
BUSY = (27.4, 0.0, 1.0, 39.2, 4.1, 0.0, 0.0, 28.3)
CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def guest_counters(share: tuple[float, ...] = BUSY, seconds: float = 10.0) -> dict[str, float | None]:
    counted = {name: seconds * v / 100 for name, v in zip(CPU, share, strict=True)}
    return {
        "seconds": seconds,
        **counted,
        "busy": sum(counted[n] for n in ("user", "nice", "system", "irq", "softirq")),
        "memory_total": 236.7 * MB,
        "memory_free": 8.71 * MB,
        "memory_inactive": 53.4 * MB,
        "memory_active": 164.5 * MB,
        "swap_total": 512 * MB,
        "swap_free": 512 * MB - 57.54 * MB,
        "blocks_in": 25.76 * 1024 * seconds,
        "blocks_out": 32.76 * 1024 * seconds,
        "interrupts": 680.7 * seconds,
        "context_switches": 651.14 * seconds,
        "clock_ahead": 0.008,
        "clock_error": 0.0002,
        "clock_drift": -0.00001,
    }


def counted(trial: TrialRecord, instances: int) -> TrialRecord:
    """With what two guests like the paper's, or one, counted over the run."""
    scopes: dict[Scope, dict[str, float | None]] = {NODE.over_runs("lammps"): {"seconds": 10.0}}
    for i in range(instances):
        own: dict[str, float | None] = {"seconds": 10.0, "vcpu": 2.84, "vcpu_delay": 1.42}
        scopes[Scope(kind=INSTANCE, name=f"nm1-{i}", runs="lammps")] = own
        scopes[Scope(kind=GUEST, name=f"nm1-{i}", runs="lammps")] = guest_counters()
    return replace(trial, counters={**trial.counters, **scopes})


@pytest.fixture(scope="module")
def measured() -> tuple[Series, tuple[PartResult, ...]]:
    asked = narrow(files(), offer((0, 1), "qemu"), seed=7, max_time=900.0, only=("scenarios",))
    return asked, (result(asked.parts[0]),)


def result(part: Part) -> PartResult:
    assert part.study is not None
    plan = make_plan(part.study, blocks=BLOCKS)
    metrics = [
        SimulatedMetric(workload="lammps", metric="wall", unit="s", better=Better.LOWER, value=10.0),
        SimulatedMetric(workload="lammps", metric="loop", unit="s", better=Better.LOWER, value=8.0),
    ]
    records = simulate(
        part.study, plan, metrics=metrics, overheads={part.places["scenario 1"]: 0.1}, spread=Spread()
    )
    guests = {part.places["scenario 1"]: 2, part.places["scenario 2"]: 1}
    records = [counted(r, guests[r.arm]) if r.arm in guests else r for r in records]
    return PartResult(
        part=part,
        directory=Path("x"),
        study=part.study,
        analysis=analyse(part.study, plan, records),
        records=records,
        why="every comparison has its verdict",
        guests=tuple(sampled(r.trial) for r in records for _ in range(guests.get(r.arm, 0))),
    )


def sampled(trial: str) -> SampleSection:
    """Of one guest, second by second."""
    told = {k: v for k, v in guest_counters(seconds=1.0).items() if not k.startswith(("clock", "seconds"))}
    heights = ("memory", "swap")
    samples = tuple(
        Sample(
            time=float(at),
            monotonic=float(at),
            scopes={
                Scope(kind=GUEST, name="g"): {
                    k: v if k.startswith(heights) else at * (v or 0.0) for k, v in told.items()
                }
            },
        )
        for at in range(12)
    )
    header = Header(
        scale=CounterUnits(tick=100, page=4096), trial=trial, windows={"lammps": ((0.5, 3.0), (4.0, 10.5))}
    )
    return SampleSection(header=header, samples=samples)


def test_the_figures_of_the_paper_come_out_of_its_own_numbers(
    measured: tuple[Series, tuple[PartResult, ...]],
) -> None:
    """Two guests that count what its first virtual machine did."""
    _, (found,) = measured
    assert found.study is not None
    arm = next(a for a in found.study.arms() if a.name == found.part.places["scenario 1"])
    figures = instance_figures(arm, "lammps", [r for r in found.records if r.arm == arm.name])
    assert figures is not None and figures.trials == BLOCKS and figures.kernels
    node = {k: round(100 * v, 1) for k, v in figures.node.items()}
    assert node == {"user": 54.8, "system": 2.0, "wait": 2.5, "idle": 40.7, "excess": 0.0}
    assert [round(100 * i["steal"], 1) for i in figures.instances] == [28.3, 28.3]
    assert figures.memory["committed"] == pytest.approx(285.53 * MB)
    assert figures.memory["swap"] == pytest.approx(0.2015, abs=1e-4)
    assert figures.rates["blocks sent"] == pytest.approx(2 * 32.76 * 1024)
    assert figures.mean_rates["interrupts"] == pytest.approx(680.7)
    assert figures.run_delay == pytest.approx(1 / 3) and figures.accounting == pytest.approx(1.0)
    assert (figures.clock_ahead, figures.clock_drift) == (0.008, -0.00001)
    assert instance_figures(arm, "other", found.records) is None
    for others, words in (((), "CPU time: two-vms"), (("other",), "CPU time: lammps, two-vms")):
        counted = (figures, *(replace(figures, workload=name) for name in others))
        first = next(series_page._second_by_second(found, counted, RecordIndex(found.records)))
        assert first.title.startswith(words), "the title names the workload if there are several"


def test_tables_and_figures_are_shown_beside_the_papers(
    measured: tuple[Series, tuple[PartResult, ...]], tmp_path: Path
) -> None:
    asked, found = measured
    paper = published(asked.paper)
    page, markdown = write_series(tmp_path, asked, found, paper)
    html, text = page.read_text().replace("\u00a0", " "), markdown.read_text()
    for form in (html, text):
        assert "CPU time of the instances" in form and "40.7 %" in form and "41.4 %" in form
        assert "A node: here, and in section 4.2" in form
        assert "1686 s" in form and "around" in form
        assert "the printed figures need 236.7 and 488.5" in form
        assert "CPU time and clocks of the guests, compared with those of the machine" in form
    for n in (1, 2):
        assert f"CPU time: two-vms, 2 VMs × 1 task, oversubscribed, guest {n}" in html
    for title in ("Memory", "Disk traffic", "Interrupts and context switches"):
        assert f"{title}: one-vm, 1 VM × 2 tasks, oversubscribed" in html
    told = series_text(asked, found, paper)
    assert "Memory: here, and in section 4.3" in told
    told_json = series_json(asked, found, paper, results_dir="r", report="r/report.html")
    json.dumps(told_json, allow_nan=False)
    parts: Any = told_json["parts"]
    (own,) = parts
    assert [f["arm"] for f in own["instances"]] == ["one-vm/1x2", "two-vms/2x1"]
    beside = {(b["what"]): b for b in own["published"]}
    overhead = beside["two virtual machines on each node against one: around"]
    assert overhead["ours"][0]["value"] == pytest.approx(0.1, abs=0.02)
    assert beside["wall time, one virtual machine on each node"]["ours"][0]["value"] == pytest.approx(
        10, rel=0.02
    )
    assert beside["CPU time of a node wait, scenario 1"]["value"] == pytest.approx(0.025, abs=1e-3)


def test_containers_tell_what_their_groups_do() -> None:
    asked = study(series(2, virtual=False), "cores")
    arm = next(a for a in asked.arms() if a.placement.instances == 2)
    plan = make_plan(asked, blocks=1)
    metric = SimulatedMetric(workload="lammps", metric="wall", unit="s", better=Better.LOWER, value=1.0)
    trials = [
        replace(
            r,
            counters={
                Scope(kind=INSTANCE, name=f"nm1-{i}", runs="lammps"): {
                    "seconds": 4.0,
                    "user": 3.0,
                    "system": 0.5,
                    "blocks_in": 4096.0,
                    "blocks_out": None,
                }
                for i in range(2)
            },
        )
        for r in simulate(asked, plan, metrics=[metric], overheads={}, spread=Spread())
        if r.arm == arm.name
    ]
    found = instance_figures(arm, "lammps", trials)
    assert found is not None and not found.kernels
    assert found.node == {"user": 0.75, "system": 0.125}
    assert found.instances == ({"user": 0.75, "system": 0.125},) * 2
    assert found.rates == {"blocks received": 2048.0} and found.memory == {}
    assert found.run_delay is None and found.accounting is None and found.clock_error is None
    assert value_of(found, "instance 2.user") == 0.75
    unknown = ("instance 0.user", "instance 3.user", "instance x.user", "cpu.user", "node")
    assert [value_of(found, key) for key in unknown] == [None] * 5


def test_an_instance_that_was_not_counted_keeps_its_place() -> None:
    asked = study(series(2, virtual=False), "cores")
    arm = next(a for a in asked.arms() if a.placement.instances == 2)
    plan = make_plan(asked, blocks=2)
    metric = SimulatedMetric(workload="lammps", metric="wall", unit="s", better=Better.LOWER, value=1.0)
    own = [
        r
        for r in simulate(asked, plan, metrics=[metric], overheads={}, spread=Spread())
        if r.arm == arm.name and not r.aa
    ]

    def counted(first: float | None, second: float | None) -> dict[Scope, dict[str, float | None]]:
        users = enumerate((first, second))
        return {
            Scope(kind=INSTANCE, name=f"nm1-{i}", runs="lammps"): {"seconds": 1.0, "user": u, "system": 0.0}
            for i, u in users
        }

    def users(*counters: dict[Scope, dict[str, float | None]]) -> list[float | None]:
        trials = [replace(r, counters=c) for r, c in zip(own, counters, strict=True)]
        found = instance_figures(arm, "lammps", trials)
        assert found is not None
        return [shares.get("user") for shares in found.instances]

    assert users(counted(0.25, 0.75), counted(None, 0.75)) == [0.25, 0.75]
    assert users(counted(None, 0.75), counted(None, 0.75)) == [None, 0.75]
    assert users(counted(None, None), counted(None, None)) == []


def test_a_figure_of_a_place_that_was_not_measured_is_left_open() -> None:
    from nearmetal.report.tables.instances import printed_grids, printed_json

    paper = published(NAME)
    assert paper is not None
    own: list[PublishedFigure] = [f for f in paper.of_part("memory") if f.quantity is Quantity.INSTANCES]
    (grid,) = printed_grids(own, {}, (), {"scenario 1": " (TCG, no KVM)"})
    assert grid.rows == (("swap", "not measured", "0 %", "not measured", "0 %"),)
    assert grid.heads[1] == "scenario 1, here (TCG, no KVM)" and grid.heads[3] == "scenario 2, here"
    values: Any = printed_json(own, {}, ())
    assert [v["value"] for v in values] == [None, None]


def test_the_estimate_counts_tasks_that_share_a_cpu_and_the_sizes_of_the_paper() -> None:
    def seconds(key: str, scale: Scale) -> float:
        return estimate(study(series(2, virtual=False, scale=scale), key)).block_seconds

    # Containers of two tasks: 20 steps of 6,912 atoms, and 1000 steps of 340,736.
    assert seconds("scenarios", Scale.SMALL) == pytest.approx(2 * seconds("cores", Scale.SMALL))
    assert seconds("cores", Scale.PAPER) > 100 * seconds("cores", Scale.SMALL)


@pytest.mark.parametrize(
    ("key", "seconds", "rounds", "round_seconds"),
    [
        ("scenarios", 300.0, 8, 29.4),
        ("cores", 180.0, 8, 17.5),
        ("memory", 75.6, 1, 29.5),
        ("monitor", 60.9, 1, 21.5),
    ],
)
def test_a_plan_is_within_a_factor_of_two_of_runs_on_two_cores(
    key: str, seconds: float, rounds: int, round_seconds: float
) -> None:
    """What was run on two cores where guests are emulated, without other work, in these seconds."""
    guess = parts.planned(series(2), key, seconds)
    assert parts.near(guess, rounds, round_seconds), guess

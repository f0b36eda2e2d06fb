"""The study of migration: its parts on machines of all sizes, what each environment is, and the claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.parts import near, part, planned, study

from nearmetal.analysis import analyse
from nearmetal.api import images
from nearmetal.api.catalog import catalog
from nearmetal.api.series.files import read_series
from nearmetal.environments import Backend, Checkpoints, Migrates
from nearmetal.environments.registry import get_backend
from nearmetal.host import LocalHost
from nearmetal.images.store import ImageStore
from nearmetal.lifecycle import Method
from nearmetal.model.change import replace
from nearmetal.model.papers.published import Quantity
from nearmetal.model.record import STEP, Row, TrialRecord
from nearmetal.model.series import Figure, Omission, Part, Scale, Series
from nearmetal.model.series_file import SeriesFiles
from nearmetal.model.study import Attachment, Better, KernelWorkload, MoveSubject
from nearmetal.model.sweep import sweeps
from nearmetal.model.workloads.moves import Extent
from nearmetal.plan import make_plan
from nearmetal.plan.narrowing import MachineOffer, Substitute, narrow
from nearmetal.published import published
from nearmetal.report.series import PartResult, series_json, series_text
from nearmetal.report.series_page import write_series
from nearmetal.run.series import able, offer_planned
from nearmetal.studies import find_series
from nearmetal.study_file import dump_study, load_text
from nearmetal.testing.fake_host import FakeHost
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

NAME = "migration-2014"
KEYS = ("latency", "throughput", "blast", "npb", "unused", "moves", "rank")
BLOCKS = 12
NO_CARD = Omission(what="sriov", reason="no network card with SR-IOV", remedy="another card")
NO_RDMA = Omission(what="rdma", reason="no RDMA device", remedy="another machine")


def files(scale: Scale = Scale.SMALL) -> SeriesFiles:
    found = find_series(NAME)
    assert found is not None
    return read_series(found, scale=scale, seed=7)


def series(cpus: int, *, scale: Scale = Scale.SMALL, card: bool = False, rdma: bool = False) -> Series:
    offer = MachineOffer(
        cpus=tuple(range(cpus)),
        cores=cpus,
        substitutes={
            "qemu": Substitute(backend="qemu", own_kernel=True),
            "runc": Substitute(backend="runc"),
        },
        lacking={} if card else {Attachment.SRIOV: NO_CARD},
        cards=("ib0",) if card else (),
        unusable={} if rdma else {"rdma": NO_RDMA},
        own_kernel=lambda name: name == "qemu",
    )
    return able(narrow(files(scale), offer, seed=7, max_time=900.0))


@pytest.mark.parametrize("cpus", [2, 4, 16, 32])
@pytest.mark.parametrize("scale", Scale)
def test_every_part_is_a_study_that_its_own_file_holds(cpus: int, scale: Scale) -> None:
    asked = series(cpus, scale=scale)
    assert asked.keys == KEYS
    known = replace(catalog(), no_image=lambda _name, _own, _file: None)  # whether it is built or not
    for p in asked.parts:
        assert p.study is not None, p.absent
        assert load_text(dump_study(p.study, known), "s.yaml", known) == p.study
        arms = {a.name for a in p.study.arms()}
        assert set(p.places.values()) <= arms
        assert {c.arm for c in p.study.comparisons()} | {c.baseline for c in p.study.comparisons()} == arms
        assert all(a.placement.ranks <= cpus for a in p.study.arms())


def test_layers_and_ways_to_the_network_are_those_that_the_machine_has() -> None:
    bare = part(series(2), "latency")
    assert bare.study is not None
    assert [w.name for w in bare.study.workloads] == ["tcp", "udp", "mpi"]
    assert [e.name for e in bare.study.environments] == ["native", "movable", "virtio", "nearest"]
    assert {str(o) for o in bare.left_out} >= {
        "sriov: no network card with SR-IOV; next: another card",
        "rdma: no RDMA device; next: another machine",
    }
    assert any(o.what == "pass-through" and o.reason and o.remedy for o in bare.left_out)
    assert set(bare.places) == {"native", "BLCR", "KVM"}
    whole = part(series(2, card=True, rdma=True), "latency")
    assert whole.study is not None and whole.places["SR-IOV"] == "sriov/2x1"
    takers = {e.name for e in whole.study.environments if e.takes("rdma")}
    assert takers == {"native", "sriov"}
    (card,) = (e for e in whole.study.environments if e.name == "sriov")
    assert card.network.devices == ("ib0",)


def test_throughput_is_one_curve_over_all_sizes() -> None:
    own = part(series(2), "throughput")
    assert own.study is not None and own.figures == (Figure.CURVE,)
    (sweep,) = sweeps(own.study)
    assert sweep.name == "throughput" and sweep.keys == ("bytes",) and sweep.curved
    assert list(sweep.at.values()) == [(4**n,) for n in range(12)]
    loads = [w for w in own.study.workloads if isinstance(w, KernelWorkload)]
    assert {w.params["measure"] for w in loads} == {"bandwidth"}


def test_the_summary_draws_the_curve_of_throughput_once(tmp_path: Path) -> None:
    own = part(series(2), "throughput")
    metrics = [
        SimulatedMetric(workload=name, metric="bandwidth", unit="B/s", better=Better.HIGHER, value=1e6 * at)
        for (sweep,) in [sweeps(study(series(2), "throughput"))]
        for name, (at,) in sweep.at.items()
    ]
    found = measured(own, metrics, {"virtio/2x1": 1.0})
    page, _ = write_series(tmp_path, replace(series(2), parts=(own,)), [found], published(NAME))
    text = page.read_text().replace("\u00a0", " ")
    assert "<h4>throughput: bandwidth over bytes</h4>" in text
    assert text.count("over bytes</h4>") == text.count('class="chart lines"') == 1
    assert "native/1x2, 4 MiB: " in text and "virtio/2x1, 4 MiB: " in text


@pytest.mark.parametrize(
    ("cpus", "blast", "npb"),
    [(1, [1], 1), (2, [2, 1], 1), (4, [4, 2, 1], 4), (32, [32, 16, 8, 4, 2, 1], 16)],
)
def test_blast_takes_every_number_of_ranks_and_the_benchmarks_one_that_all_allow(
    cpus: int, blast: list[int], npb: int
) -> None:
    asked = series(cpus)
    search = part(asked, "blast")
    assert search.study is not None
    for name in ("native", "movable", "vm"):
        arms = [a for a in search.study.arms() if a.environment.name == name]
        assert [a.placement.ranks for a in arms] == blast
    assert search.places["KVM"] == f"vm/1x{cpus}" and search.places["BLCR"] == f"movable/1x{cpus}"
    assert {a.placement.ranks for a in study(asked, "npb").arms()} == {npb}


def test_environments_that_represent_a_mechanism_support_moves() -> None:
    asked = series(4, card=True, rdma=True)
    root = FakeHost(root=True)
    seen = set()
    for key in KEYS[:-2]:
        for e in study(asked, key).environments:
            if not e.movable:
                continue
            backend: Backend = get_backend(e.backend)
            seen.add((key, e.backend))
            if isinstance(backend, Migrates):
                assert backend.unmovable(e, Method.PRECOPY) is None
            else:
                assert isinstance(backend, Checkpoints)
                assert backend.refuses_checkpoint(root, e) is None
    both = {(key, name) for key in ("blast", "npb", "unused") for name in ("namespaces", "qemu")}
    assert seen == both | {("latency", "namespaces"), ("throughput", "namespaces")}


def test_the_same_environments_without_a_mechanism_differ_in_nothing_else() -> None:
    by_name = {e.name: e for e in study(series(2), "unused").environments}
    for name in ("container", "guest"):
        movable = by_name[f"{name}-movable"]
        assert movable.movable and not by_name[name].movable
        assert replace(movable, name=name, movable=False) == by_name[name]
    pairs = {(c.arm, c.baseline) for c in study(series(2), "unused").comparisons()}
    assert {("container-movable/1x2", "container/1x2"), ("guest-movable/1x2", "guest/1x2")} <= pairs


def test_moves_are_of_256_mib_by_the_methods_of_each_backend() -> None:
    own = part(series(2), "moves")
    assert own.study is not None
    (moved,) = own.study.workloads
    assert isinstance(moved, MoveSubject) and moved.memory == 256 << 20
    assert [e.name for e in own.study.environments] == [
        "process-criu",
        "process-criu-pageserver",
        "container-criu",
        "container-criu-pageserver",
        "guest-offline",
        "guest-precopy",
        "guest-postcopy",
    ]
    reasons = {o.what: o.reason for o in own.left_out}
    assert "native has only the methods criu" in reasons["process-precopy"]
    assert own.places["KVM"] == "guest-offline/1x1" and own.places["BLCR"] == "process-criu/1x1"


def test_a_machine_without_guests_still_moves_processes() -> None:
    offer = MachineOffer(
        cpus=(0, 1),
        cores=2,
        substitutes={
            "qemu": Substitute(backend=None, reason="no QEMU", remedy="install it"),
            "runc": Substitute(backend="runc"),
        },
        lacking={Attachment.SRIOV: NO_CARD},
        unusable={"rdma": NO_RDMA},
    )
    moves = part(able(narrow(files(), offer, seed=7, max_time=900.0)), "moves")
    assert moves.study is not None
    assert {e.backend for e in moves.study.environments} == {"native", "runc"}
    assert "KVM" not in moves.places
    assert "guest-offline: no QEMU; next: install it" in [str(o) for o in moves.left_out]


def test_a_plan_leaves_out_what_this_machine_has_no_device_for(tmp_path: Path) -> None:
    host = FakeHost(absent=("/sys/*", "/proc/*"), missing=("ib_write_lat", "hostname"), cpus=(0, 1))
    asked = narrow(files(), offer_planned(files(), host, None), seed=1, max_time=60.0)
    out = {o.what: o for p in asked.parts for o in p.left_out}
    assert "RDMA" in out["rdma"].reason and out["rdma"].remedy


@pytest.mark.parametrize(
    ("program", "built"), [(None, ["debian-apps", "criu"]), ("/usr/sbin/criu", ["debian-apps"])]
)
def test_criu_is_built_before_the_moves_unless_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, built: list[str]
) -> None:
    monkeypatch.setattr(images, "image_store", lambda: ImageStore(tmp_path / "images"))
    monkeypatch.setattr(LocalHost, "which", lambda _self, name: program if name == "criu" else None)
    assert list(images.unbuilt_images(study(series(2), "moves"))) == built
    assert list(images.unbuilt_images(study(series(2), "npb"))) == ["debian-apps"]


@pytest.mark.parametrize("method", ["", ", method: auto"])
@pytest.mark.parametrize("subject", ["checkpoint", "migrate"])
def test_criu_is_built_if_the_default_method_or_auto_needs_it(
    subject: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "image_store", lambda: ImageStore(tmp_path / "images"))
    monkeypatch.setattr(LocalHost, "which", lambda _self, name: None)
    own = f"moved: {{subject: {subject}{method}}}"
    text = (
        "name: s\nenvironments: {native: {backend: native}, box: {backend: namespaces}}\n"
        f"placements: {{one: {{instances: 1, tasks: 1}}}}\nworkloads: {{{own}}}\n"
        "design: {baseline: native, seed: 1}\n"
    )
    assert list(images.unbuilt_images(load_text(text, "s.yaml", None))) == ["criu"]


def measured(asked: Part, metrics: list[SimulatedMetric], overheads: dict[str, float]) -> PartResult:
    assert asked.study is not None
    plan = make_plan(asked.study, blocks=BLOCKS)
    records = simulate(asked.study, plan, metrics=metrics, overheads=overheads, spread=Spread())
    return PartResult(
        part=asked,
        directory=Path("x"),
        study=asked.study,
        analysis=analyse(asked.study, plan, records),
        records=records,
        why="every comparison has its verdict",
    )


def test_a_claim_on_moves_is_answered_by_the_moves(tmp_path: Path) -> None:
    own = part(series(2), "moves")
    metric = SimulatedMetric(workload="moved", metric="total", unit="s", better=Better.LOWER, value=0.5)
    slow = dict.fromkeys(("guest-offline/1x1", "guest-precopy/1x1"), 3.0)
    found = measured(own, [metric], slow)
    stepped = replace(found, records=[with_steps(r) for r in found.records])
    paper = published(NAME)
    asked = replace(series(2), parts=(own,))
    told: Any = series_json(asked, [stepped], paper, results_dir="r", report="r/report.html")
    (result,) = told["parts"]
    claims = {c["what"]: c for c in result["claims"]}
    assert claims["moving a virtual machine takes longer than moving a process"]["held"] == "holds here"
    assert (
        claims["nobody answers for a shorter time if a virtual machine is moved live"]["held"]
        == "no verdict yet"
    )
    assert (
        claims["moving a virtual machine takes longer the more memory it has"]["held"]
        == "cannot be checked here"
    )
    beside = {b["what"]: b for b in result["published"]}
    guest = beside["migration of one virtual machine of two"]
    assert guest["ours"][0]["value"] == pytest.approx(2.0, rel=0.1)
    page, _ = write_series(tmp_path, asked, [stepped], paper)
    assert "moved.total by steps" in page.read_text().replace("\u00a0", " ")


def test_move_of_one_rank_is_shown_beside_the_papers_three_processes() -> None:
    own = part(series(2), "rank")
    assert own.study is not None
    (moved,) = own.study.workloads
    assert isinstance(moved, MoveSubject) and moved.extent is Extent.RANK and moved.job_ranks == 3
    arms = ["process-criu", "container-criu", "guest-offline", "guest-precopy"]
    assert [e.name for e in own.study.environments] == arms
    assert [e.attachment for e in own.study.environments] == [Attachment.HOST, *[Attachment.VETH_BRIDGE] * 3]
    metric = SimulatedMetric(workload="rank", metric="total", unit="s", better=Better.LOWER, value=0.5)
    found = measured(own, [metric], {})
    asked = replace(series(2), parts=(own,))
    told: Any = series_json(asked, [found], published(NAME), results_dir="r", report="r/report.html")
    beside = {b["what"]: b for b in told["parts"][0]["published"]}
    process = beside["migration of one process of three with BLCR"]
    assert process["published"]["text"] == "0.51 s" and process["quantity"] == "value"
    assert process["ours"][0]["value"] == pytest.approx(0.5, rel=0.05)


def with_steps(trial: TrialRecord) -> TrialRecord:
    def divided(row: Row) -> Row:
        half = tuple(v / 2 for v in row.values)
        return replace(row, parts={f"{STEP}copy": half, f"{STEP}restore": half})

    return replace(trial, rows=tuple(divided(r) for r in trial.rows))


def test_every_claim_has_a_part_and_every_part_that_the_paper_measured_has_claims() -> None:
    paper = published(NAME)
    assert paper is not None
    assert {c.part for c in paper.claims} == set(KEYS) - {"unused", "rank"}
    asked = series(2, card=True, rdma=True)
    nothing = [
        PartResult(part=p, directory=None, study=None, analysis=None, records=(), why="not begun")
        for p in asked.parts
    ]
    told: Any = series_json(asked, nothing, paper, results_dir="r", report="r/report.html")
    answers = {c["what"]: c["held"] for p in told["parts"] for c in p["claims"]}
    assert len(answers) == len(paper.claims)
    impossible = {what for what, held in answers.items() if held == "cannot be checked here"}
    assert impossible == {c.what for c in paper.claims if c.cannot} and len(impossible) == 3
    assert "0.91 us" in series_text(asked, nothing, paper)


def test_printed_latencies_are_shown_beside_the_same_layer() -> None:
    paper = published(NAME)
    assert paper is not None
    values = [f for f in paper.of_part("latency") if f.quantity is Quantity.VALUE]
    by = {(f.workloads, f.arm): f.low for f in values}
    assert by[("perftest",), "SR-IOV"] == pytest.approx(1.16e-6)
    assert by[("pingpong",), "BLCR"] == pytest.approx(1.61e-6)
    assert all(f.metric == "latency" for f in values) and len(values) == 7
    metric = SimulatedMetric(workload="mpi", metric="latency", unit="s", better=Better.LOWER, value=10e-6)
    found = measured(part(series(2), "latency"), [metric], {"movable/1x2": 0.0, "virtio/2x1": 0.5})
    told: Any = series_json(
        replace(series(2), parts=(found.part,)), [found], paper, results_dir="r", report="r/report.html"
    )
    beside = {b["what"]: b for b in told["parts"][0]["published"]}
    native = beside["latency, half of a round trip native, Open MPI"]
    assert native["ours"][0]["value"] == pytest.approx(10e-6, rel=0.05)
    assert "(" in native["ours"][0]["text"]
    assert beside["latency, half of a round trip SR-IOV, Open MPI"]["lacking"]


@pytest.mark.parametrize(
    ("key", "seconds", "rounds", "round_seconds"),
    [
        ("latency", 66.7, 5, 9.0),
        ("throughput", 57.2, 8, 5.4),
        ("blast", 126.8, 6, 17.5),
        ("npb", 60.7, 59, 4.1),
        ("latency", 102.0, 6, 13.6),
        ("moves", 269.0, 12, 19.3),
        ("rank", 120.0, 2, 23.4),
    ],
)
def test_a_plan_is_within_a_factor_of_two_of_runs_on_two_cores(
    key: str, seconds: float, rounds: int, round_seconds: float
) -> None:
    """What was run on two cores where guests are emulated, without other work, in these seconds."""
    guess = planned(series(2), key, seconds)
    assert near(guess, rounds, round_seconds), guess

"""The study of 2015: its parts on machines of all sizes, the paper's figures, directory and report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.parts import near, part, planned, study
from tests.unit.planted_trouble import TROUBLE

from nearmetal.analysis import analyse
from nearmetal.api.catalog import catalog
from nearmetal.api.series.files import read_series
from nearmetal.api.series.planning import requested_series
from nearmetal.api.series.results import has_open_cells
from nearmetal.errors import RecordsError, UsageError
from nearmetal.model.change import replace
from nearmetal.model.papers.published import Likeness, Quantity
from nearmetal.model.series import Omission, Scale, Series
from nearmetal.model.series_file import SeriesFiles
from nearmetal.model.study import Attachment, Better, KernelWorkload, NodeLink, Study, Transport
from nearmetal.model.workloads.profile import RankProfile
from nearmetal.plan import make_plan
from nearmetal.plan.narrowing import MachineOffer, Substitute, narrow
from nearmetal.published import published
from nearmetal.records import SeriesDirectory
from nearmetal.report.page.rank_curves import rank_figures
from nearmetal.report.series import PartResult, series_json, series_text
from nearmetal.report.series_page import write_series
from nearmetal.report.tables.papers.whole_runs import WholeRun, whole_runs_grids
from nearmetal.run.series import offer_planned
from nearmetal.studies import find_series
from nearmetal.study_file import dump_study, load_text
from nearmetal.testing.fake_host import FakeHost
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

BLOCKS = 12


NAME = "containers-2015"
KEYS = ("sizes", "q1", "q2", "q3", "rto", "cures", "nodes", "ovs", "kernels", "appendix")
COMPUTING = {"cg": 0.547, "ep": 0.968, "ft": 0.679, "is": 0.742, "lu": 0.842, "mg": 0.825}
"""Share of computation in computation and communication of the paper's baseline."""
NO_CARD = Omission(what="sriov", reason="no network card with virtual functions", remedy="another card")


def files(scale: Scale = Scale.SMALL) -> SeriesFiles:
    found = find_series(NAME)
    assert found is not None
    return read_series(found, scale=scale, seed=7)


def series(
    cpus: int,
    *,
    scale: Scale = Scale.SMALL,
    only: tuple[str, ...] = (),
    lacking: tuple[Attachment, ...] = (Attachment.SRIOV,),
) -> Series:
    offer = MachineOffer(
        cpus=tuple(range(cpus)),
        cores=cpus,
        substitutes={
            "lxc": Substitute(backend="namespaces"),
            "qemu": Substitute(backend="qemu", own_kernel=True),
        },
        lacking={a: replace(NO_CARD, what=a.value) for a in lacking},
    )
    return narrow(files(scale), offer, seed=7, max_time=900.0, only=only)


@pytest.mark.usefixtures("every_image")
@pytest.mark.parametrize("cpus", [2, 3, 4, 8, 24])
@pytest.mark.parametrize("scale", Scale)
def test_every_part_is_a_study_that_its_own_file_holds(cpus: int, scale: Scale) -> None:
    for p in series(cpus, scale=scale).parts:
        assert p.study is not None, p.absent
        text = dump_study(p.study, catalog())
        assert load_text(text, "s.yaml", catalog()) == p.study
        arms = {a.name for a in p.study.arms()}
        assert set(p.places.values()) <= arms
        assert all(a.placement.ranks <= cpus for a in p.study.arms())
        compared = {name for c in p.study.comparisons() for name in (c.arm, c.baseline)}
        assert compared == (set() if p.key == "sizes" else arms)


def test_packing_keeps_the_ranks_and_never_more_instances_than_cpus() -> None:
    packed = study(series(8), "q1")
    shapes = [
        (a.placement.nodes, a.placement.instances) for a in packed.arms() if a.environment.name != "native"
    ]
    assert shapes == [(8, 1), (4, 2), (2, 4), (1, 8)]
    assert {a.placement.ranks for a in packed.arms()} == {8}
    assert [a.placement.nodes for a in packed.arms() if a.environment.name == "native"] == [8]
    assert [(a.placement.nodes, a.placement.instances) for a in study(series(2), "q1").arms()] == [
        (2, 1),
        (2, 1),
        (1, 2),
    ]


def test_bare_nodes_alone_choose_the_sizes_of_packing_with_the_paper_s_links_or_slower_ones() -> None:
    asked = series(4)
    assert part(asked, "q1").sizes_from == "sizes" and asked.keys[0] == "sizes"
    sizes = study(asked, "sizes")
    assert sizes.design.profile and {e.name for e in sizes.environments} == {"native"}
    assert {(a.placement.ranks, a.placement.link.rate * 8) for a in sizes.arms()} == {(4, 1e9), (4, 10e9)}
    packed = {w.kernel for w in study(asked, "q1").kernels}
    assert {w.kernel for w in sizes.kernels} == packed == set(COMPUTING)
    candidates = [(w.kernel, w.params) for w in sizes.kernels]
    assert all((w.kernel, w.params) in candidates for w in study(asked, "q1").kernels), "the plan knows it"
    links = {a.placement.link for a in sizes.arms()}
    assert {a.placement.link for a in study(asked, "q1").arms() if a.placement.node.emulated} < links
    assert [w.name for w in study(series(4, scale=Scale.PAPER), "sizes").kernels] == list(COMPUTING)


def test_whole_runs_on_the_same_nodes_are_named_by_their_links() -> None:
    own = study(series(2), "sizes")
    runs = tuple(
        WholeRun(workload="ep", kernel="ep", size="W", arm=a.name, n=1, seconds=1.0, rate=1e9)
        for a in own.arms()
    )
    (grid,) = whole_runs_grids(own, runs)
    assert [row[0] for row in grid.rows] == [
        "EP.W, native, 2 emulated nodes × 1 task, links of 1 Gbit/s and 50 us",
        "EP.W, native, 2 emulated nodes × 1 task, links of 10 Gbit/s and 0 us",
    ]
    packed = study(series(2), "q1")
    (grid,) = whole_runs_grids(packed, (replace(runs[0], arm=packed.arms()[0].name),))
    assert grid.rows[0][0] == "EP.W, native, 2 emulated nodes × 1 task"


def test_parts_that_one_cpu_cannot_run_say_so() -> None:
    asked = series(1)
    assert part(asked, "q1").absent == "this machine has 1 core, and the smallest placement has 2 ranks"
    assert "2 cores or more" in part(asked, "q1").left_out[0].remedy
    assert part(asked, "q2").study is None
    assert [a.placement.ranks for a in study(asked, "q3").arms()] == [1, 1]


def test_the_scale_chooses_the_classes_of_the_paper() -> None:
    def classes(scale: Scale) -> dict[str, Any]:
        found = study(series(4, scale=scale), "q1").workloads
        return {w.name: w.params["class"] for w in found if isinstance(w, KernelWorkload)}

    assert classes(Scale.SMALL) == {"cg": "W", "ep": "W", "ft": "W", "is": "W", "lu": "W", "mg": "A"}
    assert classes(Scale.PAPER) == {"cg": "B", "ep": "B", "ft": "B", "is": "C", "lu": "B", "mg": "C"}


@pytest.mark.parametrize(
    ("key", "seconds", "rounds", "round_seconds"),
    [
        ("sizes", 48.0, 1, 15.9),
        ("q1", 80.0, 12, 6.1),
        ("q2", 60.0, 41, 3.0),
        ("q3", 88.0, 24, 3.5),
        ("rto", 54.0, 11, 3.9),
        ("cures", 30.0, 51, 0.6),
        ("nodes", 40.0, 8, 3.5),
        ("ovs", 61.0, 245, 1.0),
        ("ovs", 48.0, 164, 1.0),
        ("kernels", 136.0, 4, 25.0),
        ("appendix", 44.0, 49, 0.9),
        ("appendix", 60.0, 63, 0.9),
    ],
)
def test_a_plan_is_within_a_factor_of_two_of_a_run_on_two_cores(
    key: str, seconds: float, rounds: int, round_seconds: float
) -> None:
    """What was run in these seconds on two cores where guests are emulated, without other work."""
    guess = planned(series(2), key, seconds)
    assert near(guess, rounds, round_seconds), guess


def test_the_least_time_out_is_the_papers_and_all_lose_packets_alike() -> None:
    arms = study(series(4), "rto").arms()
    assert {a.placement.link for a in arms} == {NodeLink(rate=400e6 / 8, queue=16_000)}
    assert [a.environment.network.rto_min for a in arms] == [None, None, 0.002]


def test_cures_are_those_that_can_be_built_and_the_others_are_named() -> None:
    cures = part(series(2), "cures")
    assert cures.study is not None
    assert [e.attachment.value for e in cures.study.environments] == [
        "loopback",
        "veth-bridge",
        "macvlan",
    ]
    assert [str(o) for o in cures.left_out] == [
        "container-sriov: no network card with virtual functions; next: another card"
    ]
    assert "sriov" not in cures.places
    bare = series(2, lacking=(Attachment.SRIOV, Attachment.MACVLAN))
    assert study(bare, "cures").design.baselines == ("native",)


def test_time_is_asked_over_every_number_of_ranks_and_without_binding() -> None:
    asked = study(series(8), "q3")
    ranks = {
        e.name: sorted({a.placement.ranks for a in asked.arms() if a.environment is e})
        for e in asked.environments
    }
    assert ranks == {"native": [1, 2, 4, 8], "native-unbound": [2, 4, 8], "container": [1, 2, 4, 8]}
    unbound = [c.baseline for c in asked.comparisons() if c.arm.startswith("native-unbound")]
    assert unbound == ["native/1x8", "native/1x4", "native/1x2"]
    assert part(series(1), "q3").study is not None


def test_macvlan_and_open_vswitch_join_containers_of_two_nodes() -> None:
    arms = study(series(8), "nodes").arms()
    assert {(a.environment.attachment, a.placement.nodes, a.placement.tasks) for a in arms} == {
        (Attachment.HOST, 2, 4),
        (Attachment.VETH_BRIDGE, 2, 4),
        (Attachment.MACVLAN, 2, 4),
        (Attachment.OVS, 2, 4),
    }
    without = part(series(8, lacking=(Attachment.MACVLAN, Attachment.OVS)), "nodes")
    assert [o.what for o in without.left_out] == ["container-macvlan", "container-ovs"]
    assert without.study is not None and len(without.study.arms()) == 2


def test_several_containers_run_in_each_of_two_guests_with_kernels_of_their_own() -> None:
    kernels = part(series(4, lacking=(Attachment.VETH_BRIDGE,)), "kernels")
    assert kernels.study is not None
    assert [(e.name, e.inside) for e in kernels.study.environments] == [
        ("kernel", None),
        ("newer-kernel", None),
        ("container", "kernel"),
        ("container-newer", "newer-kernel"),
    ]
    assert {(c.arm, c.baseline) for c in kernels.study.comparisons()} >= {
        ("container/4x1", "kernel/1x4"),
        ("container-newer/4x1", "newer-kernel/1x4"),
        ("newer-kernel/1x4", "kernel/1x4"),
        ("container-newer/4x1", "container/4x1"),
    }
    assert {a.transport for a in kernels.study.arms()} == {Transport.TCP} and not kernels.left_out


def test_open_vswitch_has_a_part_of_its_own_for_its_blocks_last_long() -> None:
    own = study(series(2), "ovs")
    assert [e.name for e in own.environments] == ["native", "container", "container-ovs"]
    assert own.design.slices == 1
    without = part(series(2, lacking=(Attachment.OVS,)), "ovs")
    assert without.study is None and without.absent == NO_CARD.reason


def test_parts_are_chosen_in_order() -> None:
    two = series(2, only=("q3", "q1"))
    assert two.keys == ("q1", "q3")
    assert sum(p.share for p in series(2).parts) <= 1.0 + 1e-9
    assert series(2).keys == KEYS


def test_a_plan_starts_nothing_and_says_so() -> None:
    host = FakeHost(absent=("/sys/*", "/proc/*"), cpus=(0, 1))
    planned = narrow(files(), offer_planned(files(), host, None), seed=1, max_time=60.0)
    assert (
        planned.notes[-1] == "Containers by lxc where it works here, else by namespaces: the run finds out."
    )
    assert {e.backend for e in study(planned, "q1").environments} == {"native", "lxc"}
    only = narrow(files(), offer_planned(files(), host, "namespaces"), seed=1, max_time=60.0)
    assert {e.backend for e in study(only, "q1").environments} == {"native", "namespaces"}
    kernels = part(only, "kernels")
    assert kernels.study is None and "qemu, and namespaces takes its place" in kernels.absent


def test_every_published_figure_has_a_source() -> None:
    paper = published("containers-2015")
    assert paper is not None
    assert published("no-such-paper") is None
    assert all(f.source and f.differs and f.low <= f.high for f in paper.figures)
    assert {f.part for f in paper.figures} <= set(KEYS)
    kinds = {f.likeness for f in paper.figures if f.quantity is Quantity.OVERHEAD}
    assert kinds == {Likeness.LIKE}, "the paper's overheads are of whole runs on other machines"
    (rto,) = [f for f in paper.of_part("rto") if "2 ms" in f.arm]
    assert (rto.low, rto.unit) == (0.247, "share")


def profile(rank: int, communication: float) -> RankProfile:
    return RankProfile(
        rank=rank,
        complete=True,
        before=0.0,
        init=0.25,
        compute=2.0,
        communication=communication,
        finalize=0.0,
        calls={},
        peers=(),
    )


def results(asked: Series) -> tuple[PartResult, ...]:
    """Every part measured, with an overhead of 25 % planted in the packed and the shared arms."""
    out = []
    for p in asked.parts:
        if p.study is None:
            out.append(
                PartResult(part=p, directory=None, study=None, analysis=None, records=(), why=p.absent)
            )
            continue
        plan = make_plan(p.study, blocks=BLOCKS)
        metrics = [
            SimulatedMetric(
                workload=w.name, metric="rate", unit="op/s", better=Better.HIGHER, value=1e9, comm=0.3
            )
            for w in p.study.workloads
            if isinstance(w, KernelWorkload)
        ]
        planted = {p.places[w]: 0.25 for w in ("packed", "container") if w in p.places}
        records = simulate(p.study, plan, metrics=metrics, overheads=planted, spread=Spread())
        if p.study.design.profile:
            shares = COMPUTING if p.key == "q1" else {}
            profiles = {
                m.workload: tuple(
                    profile(k, 2 / shares[m.workload] - 2 if shares else 0.5 + 0.25 * k) for k in range(2)
                )
                for m in metrics
            }
            records = [replace(r, profile=profiles) for r in records]
        analysis = analyse(p.study, plan, records)
        out.append(
            PartResult(
                part=p,
                directory=Path(f"{p.study.name}-x"),
                study=p.study,
                analysis=analysis,
                records=records,
                why="every comparison has its verdict",
            )
        )
    return tuple(out)


@pytest.fixture(scope="module")
def measured() -> tuple[Series, tuple[PartResult, ...]]:
    asked = series(8)
    return asked, results(asked)


def test_the_papers_figures_stand_beside_ours_and_are_not_mixed(
    measured: tuple[Series, tuple[PartResult, ...]],
) -> None:
    asked, found = measured
    form = series_json(asked, found, published(asked.paper), results_dir="r", report="r/report.html")
    json.dumps(form, allow_nan=False)
    told: Any = form["parts"]
    parts: dict[str, Any] = {p["part"]: p for p in told}
    packing = next(b for b in parts["q1"]["published"] if b["published"]["text"] == "15 to 67 %")
    assert packing["likeness"] == "like it"
    assert packing["where"] == "section 4.2, Figure 1c"
    assert {o["what"] for o in packing["ours"]} == {"cg", "ep", "ft", "is", "lu", "mg"}
    assert all(o["low"] - 0.02 < 0.25 < o["high"] + 0.02 for o in packing["ours"])
    gain = next(b for b in parts["q1"]["published"] if b["quantity"] == "gain")
    assert gain["ours"] == [] and "boot state" in gain["lacking"]
    times = [b for b in parts["q2"]["published"] if b["where"] == "Table 1"]
    assert len(times) == 2 * 54, "times and shares"
    both = [b for b in times if b["what"] == "communication of CG-B, multinode"]
    (share,) = [b for b in both if b["published"]["unit"] == "share"]
    assert share["published"]["text"] == "39 %"
    assert share["likeness"] == "same quantity"
    assert share["far"] == "computes for 76.2 % of its time, in the paper 54.7 %"
    assert share["ours"][0]["value"] == pytest.approx(0.625 / 2.875)
    near = {b["far"] for b in times if "of LU-B, multinode" in b["what"]}
    assert near == {""}, "84.2 % in the paper"
    assert parts["q1"]["emulated"] and parts["q1"]["result"]["cells"][0]["emulated"]
    assert all("published" not in key for key in parts["q1"]["result"])


def test_a_part_that_was_not_measured_says_why() -> None:
    asked = series(2)
    nothing = tuple(
        PartResult(part=p, directory=None, study=None, analysis=None, records=(), why="did not run: no MPI")
        for p in asked.parts
    )
    text = series_text(asked, nothing, published(asked.paper))
    assert "Nothing was measured yet." in text
    assert "not measured: did not run: no MPI" in text


def test_a_part_whose_time_was_used_up_before_its_first_block_is_not_called_measured(
    measured: tuple[Series, tuple[PartResult, ...]],
) -> None:
    asked, found = measured
    first, second = (r for r in found if r.study is not None and r.part.key in ("q1", "q2"))
    assert second.study is not None
    plan = make_plan(second.study, blocks=1)
    empty = replace(second, analysis=analyse(second.study, plan, []), records=())
    text = series_text(asked, (first, empty), None)
    assert "1 of 2 parts measured" in text and "Nothing was measured: " in text
    assert first.analysis is not None and not has_open_cells(first.analysis)
    assert empty.analysis is not None and has_open_cells(empty.analysis)


def test_the_page_names_emulated_nodes_and_shows_the_curve(
    measured: tuple[Series, tuple[PartResult, ...]], tmp_path: Path
) -> None:
    asked, found = measured
    page, markdown = write_series(tmp_path, asked, found, published(asked.paper))
    html, text = page.read_text().replace("\u00a0", " "), markdown.read_text()
    for form in (html, text):
        assert "8 emulated nodes × 1 task" in form
        assert "It compares no environments." in form and "none: nothing is compared" in form
        assert "Nothing could be compared yet" not in form
    assert "Packing: the same ranks on fewer nodes" in html
    assert "15 to 67 %" in html and "section 4.2, Figure 1c" in html
    assert html.count("Nodes emulated on one machine.") >= 3, "figures say so too"
    assert "CG-S, multinode, emulated" in html and "39 %, 2721.28 ms" in html and "22 %, 625 ms" in html
    assert 'href="containers-2015-q1-x/report.html"' in html
    told = series_text(asked, found, published(asked.paper))
    assert "emulated" in told and "What the paper found, and what was found here" in told


def test_a_place_without_a_number_is_no_point_of_the_packing_curve(
    measured: tuple[Series, tuple[PartResult, ...]], tmp_path: Path
) -> None:
    asked, found = measured
    q1 = next(r for r in found if r.part.key == "q1")
    places = {**q1.part.places, "as many as fit per node": q1.part.places["packed"]}
    page, _ = write_series(tmp_path, asked, (replace(q1, part=replace(q1.part, places=places)),), None)
    assert "Packing: the same ranks on fewer nodes" in page.read_text()


def test_curves_over_ranks_have_a_line_for_each_environment_and_number_of_nodes(
    measured: tuple[Series, tuple[PartResult, ...]],
) -> None:
    _, found = measured
    third = next(r for r in found if r.part.key == "q3")
    assert third.study is not None and third.analysis is not None
    (figure,) = rank_figures(third.study, third.analysis.cells)
    assert [panel.title for panel in figure.panels] == ["cg", "ep", "ft", "is", "lu", "mg"]
    lines = {name: [at for at, _ in points] for name, points in figure.panels[0].lines.items()}
    assert lines == {
        "native on 1 node": [1, 2, 4, 8],
        "native on 2 nodes": [2, 4, 8],
        "native-unbound on 1 node": [2, 4, 8],
        "container on 1 node": [1, 2, 4, 8],
        "container on 2 nodes": [2, 4, 8],
    }
    assert "Nodes emulated on one machine." in figure.caption
    alone = [c for c in third.analysis.cells if c.placement == "1x1"]
    assert rank_figures(third.study, alone) == ()


def test_time_outs_stand_in_a_table_of_their_own(measured: tuple[Series, tuple[PartResult, ...]]) -> None:
    asked, found = measured
    third = next(r for r in found if r.part.key == "q3")
    assert third.analysis is not None
    cells = tuple(replace(c, network=TROUBLE) for c in third.analysis.cells)
    with_trouble = replace(third, analysis=replace(third.analysis, cells=cells))
    text = series_text(asked, (with_trouble,), None)
    assert "TCP time-outs in the timed part of a trial" in text
    assert "20" in text and "0.20 s" in text.replace("200 ms", "0.20 s")


def load(text: str, where: str) -> Study:
    return load_text(text, where, None)


def test_the_directory_holds_what_was_asked(tmp_path: Path) -> None:
    asked = series(1)
    texts = {p.key: dump_study(p.study, catalog()) for p in asked.parts if p.study is not None}
    made = SeriesDirectory.create(tmp_path, asked, texts)
    found = SeriesDirectory.at(made.path)
    assert found is not None and SeriesDirectory.at(tmp_path) is None
    assert found.series(load) == asked
    assert found.part(part(asked, "q3")) is None and found.part(part(asked, "q1")) is None
    found.ended("q3", "stopped: one\nline")
    found.ended("q3", "later")
    with (made.path / "ends.jsonl").open("a") as file:
        file.write('{"part": "q1"')
    assert found.ends() == {"q3": "later"}


@pytest.mark.parametrize("wound", ['{"schema": 1}', '{"schema": 9}', "[]", "{"])
def test_corrupt_series_file_is_reported(tmp_path: Path, wound: str) -> None:
    made = SeriesDirectory.create(tmp_path, series(1), {})
    (made.path / "series.json").write_text(wound)
    with pytest.raises(RecordsError):
        made.series(load)


@pytest.mark.parametrize("wound", ['{"schema": 1}', '{"created": [1]}', "{"])
def test_corrupt_time_of_creation_is_reported(tmp_path: Path, wound: str) -> None:
    made = SeriesDirectory.create(tmp_path, series(1), {})
    assert made.created > 0
    (made.path / "series.json").write_text(wound)
    with pytest.raises(RecordsError, match="corrupt"):
        _ = made.created


def test_parts_that_are_not_there_are_a_mistake() -> None:
    from nearmetal.cli.common import in_parts

    found = in_parts(NAME, scale=Scale.SMALL, only=["q1"])
    assert found is not None and in_parts("quick") is None
    with pytest.raises(UsageError, match="no part q9"):
        requested_series(found, only=["q1,q9"], seed=1)
    with pytest.raises(UsageError, match="--only is for studies in parts"):
        in_parts("quick", only=["q1"])

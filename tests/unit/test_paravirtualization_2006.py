"""The study of paravirtualization: its parts on this and that machine, its claims, its figures, its plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.parts import near, part, study

from nearmetal.analysis import analyse
from nearmetal.api.catalog import catalog
from nearmetal.api.series.files import read_series
from nearmetal.environments.xen.settings import XenDiskKind, XenSettings, XenType
from nearmetal.model.change import replace
from nearmetal.model.environments.guest import Accelerator
from nearmetal.model.record import TOO_FAST_TO_MEASURE, Status, TrialRecord
from nearmetal.model.series import Figure, Part, Scale, Series
from nearmetal.model.series_file import SeriesFiles
from nearmetal.model.study import Better, Study
from nearmetal.node.survey.accelerator import foreseen_accelerators
from nearmetal.plan import FIXED_FROM, make_plan
from nearmetal.plan.narrowing import MachineOffer, Substitute, narrow
from nearmetal.published import published
from nearmetal.report.charts.chart import PAGE
from nearmetal.report.charts.series import relative
from nearmetal.report.series import PartResult, series_json, series_text
from nearmetal.report.series_page import write_series
from nearmetal.run.estimate import BOOT, EMULATED_BOOT, estimate
from nearmetal.run.series import offer_planned
from nearmetal.studies import find_series
from nearmetal.study_file import dump_study, load_text
from nearmetal.subjects.contract import EMULATED_FILES
from nearmetal.testing.fake_host import FakeHost
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate
from nearmetal.workloads.applications.bonnie import Bonnie
from nearmetal.workloads.applications.registry import choices

NAME = "paravirtualization-2006"
BLOCKS = 12
VOLUME = "/dev/nearmetal/disk"
VIRTUAL = {"qemu", "xen"}
QEMU = Substitute(backend="qemu", own_kernel=True)
XEN = Substitute(backend="xen", own_kernel=True)


def files(scale: Scale = Scale.SMALL) -> SeriesFiles:
    found = find_series(NAME)
    assert found is not None
    return read_series(found, scale=scale, seed=7)


def series(
    stand_in: Substitute = QEMU,
    *,
    cores: int = 2,
    scale: Scale = Scale.SMALL,
    devices: frozenset[str] = frozenset(),
) -> Series:
    offer = MachineOffer(
        cpus=tuple(range(cores)),
        cores=cores,
        substitutes={"xen": stand_in},
        devices=devices,
        own_kernel=lambda backend: backend in VIRTUAL,
    )
    return narrow(files(scale), offer, seed=7, max_time=900.0)


@pytest.mark.parametrize("scale", Scale)
@pytest.mark.parametrize("cores", [1, 2, 16])
@pytest.mark.parametrize(
    "stand_in", [QEMU, XEN, Substitute(backend="namespaces")], ids=lambda s: str(s.backend)
)
def test_every_part_is_a_study_that_its_own_file_holds(
    scale: Scale, cores: int, stand_in: Substitute
) -> None:
    known = replace(catalog(), no_image=lambda _name, _own, _file: None)
    made = series(stand_in, cores=cores, scale=scale, devices=frozenset({VOLUME}))
    for p in made.parts:
        if p.study is None:
            assert p.key in ("npb", "kernels") and (cores == 1 or p.key == "kernels")
            assert ("1 core" if cores == 1 else "a container has no kernel of its own") in p.absent
            continue
        assert load_text(dump_study(p.study, known), "s.yaml", known) == p.study
        assert {c.baseline for c in p.study.comparisons()} == {p.places["CHAOS"]}
        assert Figure.RELATIVE in p.figures


def test_a_dom0_has_guests_of_xen_and_other_machines_guests_of_qemu() -> None:
    for stand_in in (QEMU, XEN):
        made = series(stand_in)
        backends = {e.backend for p in made.parts if p.study for e in p.study.environments}
        assert backends == {"native", stand_in.backend}
        assert part(made, "memory").places == {"CHAOS": "bare/1x1", "Xen": "guest/1x1"}


def test_parts_on_a_volume_are_left_out_without_the_volume_or_xen() -> None:
    def volumes(made: Series) -> tuple[set[str], dict[str, str]]:
        own = {e.name for e in study(made, "backing").environments}
        return own, {o.what: o.reason for o in part(made, "backing").left_out}

    own, left_out = volumes(series())
    assert own == {"bare", "bare-loop", "guest"}
    assert left_out == {
        "bare-volume": f"this machine has no {VOLUME}",
        "guest-volume": "it is of backend xen, and qemu takes its place here",
    }
    assert all(o.remedy for o in part(series(), "backing").left_out)
    own, left_out = volumes(series(devices=frozenset({VOLUME})))
    assert own == {"bare", "bare-loop", "bare-volume", "guest"} and set(left_out) == {"guest-volume"}
    own, left_out = volumes(series(XEN))
    assert left_out["guest-volume"] == "this machine has no /dev/nearmetal"
    own, left_out = volumes(series(XEN, devices=frozenset({VOLUME, "/dev/nearmetal"})))
    assert own == {"bare", "bare-loop", "bare-volume", "guest", "guest-volume"} and not left_out


def test_dom0_without_hardware_virtualisation_keeps_the_disks_of_the_study() -> None:
    """Its guests are pv, and the disk remains a volume."""
    pv = replace(XEN, settings=XenSettings(type=XenType.PV))
    made = series(pv, devices=frozenset({VOLUME, "/dev/nearmetal"}))
    own = {e.name: e.own for e in study(made, "backing").environments}
    guest, volume = own["guest"], own["guest-volume"]
    assert isinstance(guest, XenSettings) and isinstance(volume, XenSettings)
    assert guest.type is volume.type is XenType.PV
    assert (guest.disk.kind, volume.disk.kind) == (XenDiskKind.FILE, XenDiskKind.LVM)


def test_the_ocean_counts_what_guest_and_machine_account() -> None:
    ocean = study(series(), "ocean")
    assert [w.ran for w in ocean.workloads] == ["veros"] and ocean.design.instance_counters
    assert {e.image for e in ocean.environments} == {"debian-ocean"}


def test_the_kernels_are_those_of_guests_with_one_image() -> None:
    own = study(series(), "kernels")
    assert {e.guest.kernel for e in own.environments if e.guest} == {None, "trixie-kernel"}
    assert len({e.image for e in own.environments}) == 1 and own.design.baselines == ("kernel",)


def test_the_scale_chooses_the_papers_sizes() -> None:
    def disk(scale: Scale) -> dict[str, Mapping[str, Any]]:
        return {w.name: w.params for w in study(series(scale=scale), "disk").applications}

    paper, small = disk(Scale.PAPER), disk(Scale.SMALL)
    for sizes, mebibytes in ((paper, (100, 500, 1000)), (small, (100, 150, 300))):
        assert [sizes[f"{s}-file"]["size"] for s in ("small", "middle", "large")] == [
            n << 20 for n in mebibytes
        ]
        assert [name for name, params in sizes.items() if params.get("characters") == "yes"] == ["small-file"]
    assert paper["beyond-memory"]["size"] == "auto" and "beyond-memory" not in small
    assert paper["large-file"]["chunk"] == 1024
    (memory,) = {e.guest.memory for e in study(series(), "disk").environments if e.guest}
    assert memory < small["large-file"]["size"], "beyond the memory of a guest"
    for scale, size in ((Scale.SMALL, "S"), (Scale.PAPER, "C")):
        own = study(series(scale=scale, cores=16), "npb")
        assert [(w.kernel, w.params["class"]) for w in own.kernels] == [
            (k, size) for k in ("ep", "is", "mg", "lu", "cg")
        ]
        (arm,) = {a.placement.name for a in own.arms()}
        assert arm == ("1x2" if scale is Scale.SMALL else "emulated-4x1x4")
        (stream,) = study(series(scale=scale), "memory").kernels
        assert stream.params["elements"] == 2_000_000


METRICS: Mapping[str, tuple[tuple[str, str, str, Better, float], ...]] = {
    "memory": tuple(
        ("stream", name, "B/s", Better.HIGHER, 2e10) for name in ("copy", "scale", "add", "triad")
    ),
    "disk": (
        ("small-file", "sequential_output_character", "B/s", Better.HIGHER, 2e6),
        ("small-file", "sequential_input_character", "B/s", Better.HIGHER, 3e6),
        *(
            (f"{size}-file", name, unit, Better.HIGHER, 1e8)
            for size in ("small", "middle", "large")
            for name, unit in (
                ("sequential_output_block", "B/s"),
                ("sequential_input_block", "B/s"),
                ("rewrite", "B/s"),
                ("random_seek", "op/s"),
            )
        ),
    ),
    "npb": tuple((k, "rate", "op/s", Better.HIGHER, 1e9) for k in ("ep", "is", "mg", "lu", "cg")),
    "kernels": (("lu", "rate", "op/s", Better.HIGHER, 1e9),),
    "ocean": (
        ("ocean", "wall", "s", Better.LOWER, 10.0),
        ("ocean", "user", "s", Better.LOWER, 9.0),
        ("ocean", "system", "s", Better.LOWER, 1.0),
    ),
}
#: Overheads of the guest, or of the newer kernel: as in the paper where it prints a number.
PLANTED: Mapping[str, Mapping[str, float]] = {
    "memory": {"stream.copy": 0.1, "stream.scale": 0.1, "stream.add": 0.1, "stream.triad": 0.1},
    "disk": {
        "small-file.sequential_output_character": -0.2,
        **{f"{size}-file.sequential_input_block": 1 / 0.86 - 1 for size in ("small", "middle", "large")},
        **{f"{size}-file.sequential_output_block": -0.2 for size in ("small", "middle", "large")},
        "small-file.rewrite": -0.2,
        "middle-file.rewrite": -0.2,
        "large-file.rewrite": 0.2,
    },
    "npb": {"cg.rate": 0.5},
    "kernels": {"lu.rate": 0.05},
    "ocean": {},
}


def result(p: Part) -> PartResult:
    assert p.study is not None
    if p.key not in METRICS:
        return PartResult(part=p, directory=None, study=None, analysis=None, records=(), why="not begun")
    plan = make_plan(p.study, blocks=BLOCKS)
    metrics = [
        SimulatedMetric(workload=w, metric=m, unit=unit, better=better, value=value)
        for w, m, unit, better, value in METRICS[p.key]
    ]
    slow = p.places.get("Xen", p.places.get("RHEL 2.6.12", ""))
    records = simulate(
        p.study, plan, metrics=metrics, overheads={slow: PLANTED[p.key]}, spread=Spread(instance=0.002)
    )
    records = [verified(r, p.study, slow) for r in records]
    return PartResult(
        part=p,
        directory=Path("x"),
        study=p.study,
        analysis=analyse(p.study, plan, records),
        records=records,
        why="every comparison has its verdict",
    )


def verified(trial: TrialRecord, of: Study, slow: str) -> TrialRecord:
    """With a whole run of each kernel in every second block: 2 s, and 4 s in the guest, for 3e9 each."""
    if trial.block % 2 or not of.kernels:
        return trial
    whole: dict[str, Any] = {"ok": True, "seconds": 4.0 if trial.arm == slow else 2.0, "work": 3e9}
    return replace(trial, rows=tuple(replace(r, verification=whole) for r in trial.rows))


@pytest.fixture(scope="module")
def measured() -> tuple[Series, tuple[PartResult, ...]]:
    made = series()
    return made, tuple(map(result, made.parts))


HOLDS, FAILS, IMPOSSIBLE = "holds here", "does not hold here", "cannot be checked here"


def test_every_claim_is_asked_by_a_part_and_answered(
    measured: tuple[Series, tuple[PartResult, ...]],
) -> None:
    made, found = measured
    paper = published(NAME)
    assert paper is not None
    form: Any = series_json(made, found, paper, results_dir="r", report="x")
    json.dumps(form, allow_nan=False)
    claims = {c["what"]: c for p in form["parts"] for c in p["claims"]}
    assert len(claims) == len(paper.claims), "every claim has its part"
    held = {what: c["held"] for what, c in claims.items()}
    assert held == {
        "STREAM under Xen against RHEL 2.6.12": IMPOSSIBLE,
        "CHAOS has the highest bandwidth of STREAM": HOLDS,
        "sequential block input under Xen against the three other kernels": HOLDS,
        "rewriting under Xen is faster than under CHAOS for all sizes of files": FAILS,
        "rewriting under Xen is slower for the file of 1 GB": HOLDS,
        "output per block under Xen is faster than under CHAOS for all sizes of files": HOLDS,
        "output per character under Xen is faster than under CHAOS for all sizes of files": HOLDS,
        "input per character does not differ between kernels": HOLDS,
        "random seeks under Xen are slower than under CHAOS": FAILS,
        "EP, IS and MG do not differ between kernels": HOLDS,
        "LU under RHEL 2.6.12 against CHAOS": HOLDS,
        "CG does not differ significantly between Xen and CHAOS": FAILS,
        "the ocean does not differ significantly between Xen and CHAOS": HOLDS,
    }
    bandwidth = claims["CHAOS has the highest bandwidth of STREAM"]
    assert set(bandwidth["each"]) == {f"stream.{m}" for m in ("copy", "scale", "add", "triad")}
    rewriting = claims["rewriting under Xen is faster than under CHAOS for all sizes of files"]
    assert rewriting["reason"] == "holds for small-file, middle-file; does not hold for large-file"
    assert "qemu instead of Xen 3.0.1" in bandwidth["differs"]
    npb = claims["EP, IS and MG do not differ between kernels"]
    assert "2 ranks instead of 16" in npb["differs"] and "class S instead of C" in npb["differs"]


def test_a_claim_on_an_image_that_is_not_imported_says_so() -> None:
    of = files(Scale.SMALL)
    by_hand = replace(of.head.narrow, imports={"debian-ocean": "import it"})
    made = narrow(
        replace(of, head=replace(of.head, narrow=by_hand)),
        MachineOffer(cpus=(0, 1), cores=2, substitutes={"xen": QEMU}, own_kernel=lambda b: b in VIRTUAL),
        seed=7,
        max_time=900.0,
    )
    ocean = part(made, "ocean")
    assert ocean.study is None and {o.what for o in ocean.left_out} == {"bare", "guest"}
    nothing = [
        PartResult(part=p, directory=None, study=None, analysis=None, records=(), why=p.absent or "no time")
        for p in made.parts
    ]
    form: Any = series_json(made, nothing, published(NAME), results_dir="r", report="x")
    claims = {c["what"]: c for p in form["parts"] for c in p["claims"]}
    claim = claims["the ocean does not differ significantly between Xen and CHAOS"]
    assert (claim["held"], claim["reason"]) == (IMPOSSIBLE, 'there is no image "debian-ocean"')
    assert sum(c["held"] == "no verdict yet" for c in claims.values()) == len(claims) - 2


def test_a_claim_on_what_was_too_fast_to_measure_says_so(
    measured: tuple[Series, tuple[PartResult, ...]],
) -> None:
    made, found = measured
    (disk,) = [r for r in found if r.part.key == "disk"]
    assert disk.study is not None
    metric = "sequential_input_block"
    why = f"{metric} needs a larger size: {TOO_FAST_TO_MEASURE}"
    fast = [
        replace(
            r,
            rows=tuple(
                replace(x, values=(), seconds=(), status=Status.FAILED, reason=why)
                if x.metric == metric
                else x
                for x in r.rows
            ),
        )
        for r in disk.records
    ]
    analysis = analyse(disk.study, make_plan(disk.study, blocks=BLOCKS), fast)
    assert not analysis.failed_trials and not any(u.failed for u in analysis.unused)
    own = replace(disk, records=fast, analysis=analysis)
    form: Any = series_json(made, [own], published(NAME), results_dir="r", report="x")
    claims = {c["what"]: c for c in form["parts"][0]["claims"]}
    block = claims["sequential block input under Xen against the three other kernels"]
    assert (block["held"], block["reason"]) == ("no verdict yet", f"not measured: {why}")
    assert claims["input per character does not differ between kernels"]["held"] == HOLDS


def test_the_report_has_bars_whole_runs_and_the_t_test(
    measured: tuple[Series, tuple[PartResult, ...]], tmp_path: Path
) -> None:
    made, found = measured
    paper = published(NAME)
    page, markdown = write_series(tmp_path, made, found, paper)
    html, text = page.read_text(), markdown.read_text()
    sections = {s.partition('"')[0]: s for s in html.split('id="part-')[1:]}
    drawn = {key for key, s in sections.items() if "Relative to the baseline" in s}
    assert drawn == METRICS.keys(), "of every part with results"
    assert len(html) < 2_500_000
    terminal = series_text(made, found, paper)
    for form in (text, terminal):
        assert "By the paper's method (t-test, section 3)" in form.replace("\\", "")
        assert "significant: slower (t = " in form and "not significant (t = " in form
        assert "Whole runs of the benchmarks, verified: medians" in form
    told: Any = series_json(made, found, paper, results_dir="r", report="x")
    runs = {
        (p["part"], r["workload"], r["arm"].partition("/")[0]): r
        for p in told["parts"]
        for r in p["whole_runs"]
    }
    assert len(runs) == 2 * len(METRICS["npb"]) + 2, "none of STREAM, which has no operations"
    for arm, seconds in (("bare", 2.0), ("guest", 4.0)):
        run = runs["npb", "lu", arm]
        assert (run["n"], run["seconds"], run["rate"]) == (BLOCKS // 2, seconds, 3e9 / seconds)
    assert "1,500 Mop/s" in terminal and "750 Mop/s" in terminal


def test_bars_are_ratios_of_times_and_of_rates(measured: tuple[Series, tuple[PartResult, ...]]) -> None:
    _, found = measured
    by_key = {r.part.key: r for r in found}
    npb = by_key["npb"].analysis
    assert npb is not None
    chart = relative(npb.cells, lambda arm: arm.partition("/")[0])
    assert chart is not None
    chart.view(PAGE).to_dict(validate=True)
    rows: Any = chart.data["rows"]
    bars = {(r["row"].partition(".")[0].upper(), r["name"]): r for r in rows}
    (cg,) = [r for (metric, arm), r in bars.items() if "CG" in metric and arm == "guest"]
    assert cg["at"] == pytest.approx(1 / 1.5, rel=0.01) and cg["low"] <= cg["at"] <= cg["high"]
    assert all(r["at"] == 1.0 for r in rows if r["name"] == "bare") and cg["row"].endswith("↑")
    assert sum(r["name"] == "bare" for r in rows) == len(METRICS["npb"]), "once for each metric"
    assert "log" not in json.dumps(chart.view(PAGE).to_dict())
    ocean = by_key["ocean"].analysis
    assert ocean is not None
    slow = tuple(replace(c, overhead=9.0, low=8.0, high=10.0) for c in ocean.cells)
    wide = relative(slow, lambda arm: arm)
    assert wide is not None
    own: Any = wide.view(PAGE).to_dict(validate=True)["layer"]
    assert own[0]["encoding"]["x"]["scale"]["type"] == "log" and own[0]["encoding"]["x2"] == {"datum": 1}
    assert {r["at"] for r in wide.data["rows"]} == {1.0, 10.0}
    assert relative((), lambda arm: arm) is None


NO_VIRTUALISATION = "processor\t: 0\nflags\t\t: fpu sse2 avx2\n"


def host(*, xl: bool = False, flags: str = NO_VIRTUALISATION) -> FakeHost:
    return FakeHost(
        files={"/proc/cpuinfo": flags},
        absent=("/sys/*", "/proc/*"),
        programs={"xl": "/usr/sbin/xl"} if xl else {},
        missing=() if xl else ("xl",),
        cpus=(0, 1),
    )


def test_a_plan_assumes_what_the_machine_shows_and_starts_nothing() -> None:
    offer = offer_planned(files(), host(), None)
    assert offer.substitutes["xen"].backend == "qemu"
    assert offer.substitutes["xen"].notes[1] == "Not by xen: no xl: this machine is not a dom0."
    dom0 = offer_planned(files(), host(xl=True), None)
    assert dom0.substitutes["xen"].backend == "xen"
    assert "else by qemu" in dom0.substitutes["xen"].notes[0]


def test_a_plan_takes_guests_without_virtualisation_for_emulated() -> None:
    own = study(series(), "npb")
    emulated = foreseen_accelerators(own, host())
    guests = [e.guest for e in emulated.environments if e.guest is not None]
    assert [g.accelerator for g in guests] == [Accelerator.TCG] and "no virtualisation" in guests[0].label
    assert foreseen_accelerators(own, host(flags="processor : 0\nflags : fpu vmx\n")) == own
    fast, slow = estimate(own), estimate(emulated)
    assert slow.block_seconds > fast.block_seconds + 1


def test_a_plan_knows_what_large_files_take() -> None:
    seconds = {scale: estimate(study(series(scale=scale), "disk")).block_seconds for scale in Scale}
    assert seconds[Scale.PAPER] > 2 * seconds[Scale.SMALL] > 20


def emulated(key: str, *, seconds: float) -> Study:
    own = study(series(), key)
    own = replace(own, design=replace(own.design, max_time=seconds))
    return foreseen_accelerators(own, host())


def test_a_plan_knows_that_emulated_guests_drop_out_at_the_first_look() -> None:
    guess = estimate(emulated("npb", seconds=120.0))
    assert guess.blocks == 18 and guess.late_blocks == 18 - FIXED_FROM, "8 slices in a round"
    assert guess.late_seconds < 1 < guess.block_seconds and guess.seconds < 120
    assert guess.mean_seconds(FIXED_FROM) == guess.block_seconds
    twelve = FIXED_FROM * guess.block_seconds + 4 * guess.late_seconds
    assert guess.mean_seconds(12) == pytest.approx(twelve / 12)
    short = estimate(emulated("npb", seconds=40.0))
    assert 0 < short.blocks < FIXED_FROM and short.late_blocks == 0, "the first look comes too late"
    kernels = estimate(emulated("kernels", seconds=600.0))
    assert kernels.late_blocks == 0 and kernels.blocks > FIXED_FROM, "guests against guests stay"


@pytest.mark.parametrize(
    ("key", "seconds", "rounds", "round_seconds"),
    [
        ("memory", 62.0, 34, 4.5),
        ("memory", 50.0, 27, 4.3),
        ("memory", 38.0, 5, 4.3),
        ("disk", 303.0, 2, 76.5),
        ("backing", 332.0, 8, 35.0),
        ("backing", 154.0, 3, 34.8),
        ("npb", 150.0, 27, 7.9),
        ("npb", 86.0, 18, 4.7),
        ("kernels", 139.0, 6, 13.6),
        ("kernels", 69.0, 2, 17.6),
    ],
)
def test_a_plan_is_within_a_factor_of_two_of_runs_on_two_cores(
    key: str, seconds: float, rounds: int, round_seconds: float
) -> None:
    """What was run on two cores where guests are emulated, without other work, in these seconds."""
    guess = estimate(emulated(key, seconds=seconds))
    assert near(guess, rounds, round_seconds), guess


def test_waiting_is_not_slowed_by_an_emulator() -> None:
    own, slow = (estimate(s) for s in (study(series(), "backing"), emulated("backing", seconds=900.0)))
    bare = Bonnie().seconds(choices(study(series(), "backing").applications[0]))
    waits = Bonnie().waiting(choices(study(series(), "backing").applications[0]))
    assert slow.block_seconds - own.block_seconds == pytest.approx(
        (EMULATED_FILES - 1) * (bare - waits) + EMULATED_BOOT - BOOT
    )


def test_each_part_has_a_round_within_its_time_where_guests_are_emulated() -> None:
    made = series()
    waiting = [p for p in made.parts if p.study is not None]
    whole = sum(p.share for p in waiting)
    for p in waiting:
        assert p.study is not None
        time = made.max_time * p.share / whole
        own = foreseen_accelerators(replace(p.study, design=replace(p.study.design, max_time=time)), host())
        guess = estimate(own)
        assert guess.rehearsal_seconds + guess.block_seconds <= time, p.key

"""A series as files: what nearmetal writes, a user's own series, its mistakes, how a machine narrows it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nearmetal.api.catalog import catalog
from nearmetal.api.series.files import paper_of, read_series, series_output, write_series_files
from nearmetal.api.series.planning import RequestedSeries, requested_series
from nearmetal.api.series.results import frozen_series
from nearmetal.api.series.running import create_series
from nearmetal.api.studies import study_from
from nearmetal.cli.common import in_parts
from nearmetal.errors import StudyError, UnavailableError, UsageError
from nearmetal.model.series import Figure, Omission, Scale
from nearmetal.model.series_file import RankChoice, SeriesFiles
from nearmetal.model.study import Attachment
from nearmetal.plan.narrowing import MachineOffer, Substitute, narrow
from nearmetal.published import published
from nearmetal.records import ResultsDirectory, SeriesDirectory
from nearmetal.report.series import PartResult, series_text
from nearmetal.run.series import unable_omission
from nearmetal.studies import find_series, series_names
from nearmetal.study_file import load_text
from nearmetal.study_file.series import _without_placing, series_schema

SERIES = """\
name: mine
title: What does a container cost here?
published: published.toml
time: 2 min
narrow:
  ranks: every
  backends: {lxc: [lxc, namespaces]}
parts:
  cpu:
    title: Computation
    share: 60 %
    places: {bare: native/1x1, boxed: [box/2x1, box/1x1]}
  net:
    title: Messages
    share: 40 %
    file: messages.yaml
    notes: [Two ranks.]
"""
PART = """\
name: mine-cpu
environments:
  native: {backend: native}
  box: {backend: lxc, attachment: veth-bridge}
placements:
  1x1: {instances: 1, tasks: 1}
  2x1: {instances: 2, tasks: 1}
  1x2: {instances: 1, tasks: 2}
workloads:
  ep: {kernel: ep, class: S}
design: {baseline: native}
"""
TABLE = """\
[paper]
key = "own"
title = "A measurement of my own"
authors = "A. Nobody"
year = 2001
where = "a notebook"
setting = "one machine"

[[number]]
name = "overhead"
what = "overhead of a box"
source = "page 3"
value = [1, 4]
unit = "%"
shown = { part = "cpu", quantity = "overhead", likeness = "like it", differs = "another machine", \
workloads = ["ep"], arm = "boxed", baseline = "bare" }
"""


def written(here: Path, *changes: tuple[str, str, str], leave_out: str = "") -> Path:
    """A directory with the files of a series; each change replaces a text in a file."""
    texts = {
        "series.yaml": SERIES,
        "cpu.yaml": PART,
        "messages.yaml": PART.replace("mine-cpu", "mine-net"),
        "published.toml": TABLE,
    }
    for file, old, new in changes:
        assert old in texts[file]
        texts[file] = texts[file].replace(old, new, 1)
    for file, text in texts.items():
        if file != leave_out:
            (here / file).write_text(text)
    return here


def read(here: Path) -> SeriesFiles:
    found = find_series(str(here))
    assert found is not None
    return read_series(found, scale=None, seed=5)


def offer(cores: int = 2) -> MachineOffer:
    substitutes = {"lxc": Substitute(backend="namespaces")}
    return MachineOffer(cpus=tuple(range(cores)), cores=cores, substitutes=substitutes)


def test_a_series_of_the_users_own_is_read_and_narrowed(tmp_path: Path) -> None:
    files = read(written(tmp_path))
    assert files.head.name == "mine" and files.head.scale is None and files.head.time == 120
    assert files.head.narrow.ranks is RankChoice.EVERY
    series = narrow(files, offer(), seed=5, max_time=60.0)
    assert series.keys == ("cpu", "net") and series.paper == ""
    cpu, net = series.parts
    assert cpu.study is not None and net.study is not None and net.notes == ("Two ranks.",)
    assert cpu.places == {"bare": "native/1x1", "boxed": "box/2x1"}
    assert cpu.figures == (Figure.OVERHEADS,)
    assert {e.backend for e in cpu.study.environments} == {"native", "namespaces"}
    assert cpu.study.design.seed == 5
    one = narrow(files, offer(cores=1), seed=5, max_time=60.0).parts[0]
    assert one.study is not None and one.places == {"bare": "native/1x1", "boxed": "box/1x1"}
    assert find_series(str(tmp_path / "series.yaml")) == find_series(str(tmp_path))
    assert find_series(str(tmp_path / "cpu.yaml")) is None


def test_a_part_has_its_own_ranks_and_names_what_no_file_asks(tmp_path: Path) -> None:
    here = written(
        tmp_path,
        ("series.yaml", "ranks: every", "ranks: largest"),
        (
            "series.yaml",
            "file: messages.yaml",
            "file: messages.yaml\n    ranks: every\n    not_asked: {jobs: {reason: no pool, remedy: wait}}",
        ),
    )
    cpu, net = narrow(read(here), offer(), seed=5, max_time=60.0).parts
    assert cpu.study is not None and net.study is not None
    assert {a.placement.ranks for a in cpu.study.arms()} == {2}
    assert {a.placement.ranks for a in net.study.arms()} == {1, 2}
    assert [str(o) for o in net.left_out] == ["jobs: no pool; next: wait"]
    lost = offer(cores=0)
    net = narrow(read(here), lost, seed=5, max_time=60.0).parts[1]
    assert net.study is None and "no pool" not in net.absent


def test_an_optional_workload_is_left_out_where_its_device_is_missing(tmp_path: Path) -> None:
    rdma = "  ep: {kernel: ep, class: S}\n  rdma: {application: perftest}"
    here = written(
        tmp_path,
        ("series.yaml", "ranks: every", "ranks: every\n  optional: [rdma]"),
        ("cpu.yaml", "  ep: {kernel: ep, class: S}", rdma),
        ("cpu.yaml", "  1x1: {instances: 1, tasks: 1}\n", ""),
        (
            "series.yaml",
            "{bare: native/1x1, boxed: [box/2x1, box/1x1]}",
            "{bare: native/1x2, boxed: box/2x1}",
        ),
    )
    why = Omission(what="rdma", reason="no device", remedy="a card")
    bare = narrow(read(here), replace(offer(), unusable={"rdma": why}), seed=5, max_time=60.0).parts[0]
    assert bare.study is not None and [w.name for w in bare.study.workloads] == ["ep"]
    assert why in bare.left_out
    whole = narrow(read(here), offer(), seed=5, max_time=60.0).parts[0]
    assert whole.study is not None and [w.name for w in whole.study.workloads] == ["ep", "rdma"]


def test_a_series_of_the_users_own_keeps_its_table_in_the_results(tmp_path: Path) -> None:
    files = read(written(tmp_path))
    series = narrow(files, offer(), seed=5, max_time=60.0)
    made = create_series(series, tmp_path / "results", files.table)
    found = SeriesDirectory.at(made.path)
    assert found is not None and frozen_series(found) == series
    paper = paper_of(found, series.paper)
    assert paper is not None and paper.paper.title == "A measurement of my own"
    (figure,) = paper.of_part("cpu")
    assert (figure.low, figure.high, figure.arm) == (0.01, 0.04, "boxed")
    nothing = [
        PartResult(part=p, directory=None, study=None, analysis=None, records=(), why="not begun")
        for p in series.parts
    ]
    text = series_text(series, nothing, paper)
    assert "overhead of a box" in text and "1 to 4 %" in text and "not measured: not begun" in text
    assert "A measurement of my own (2001)" in text


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (
            "series.yaml",
            "share: 60 %",
            "share: 70 %",
            "series.yaml:15:12  parts.net.share: up to here the shares",
        ),
        ("series.yaml", "share: 60 %", "share: 160 %", "series.yaml:11:12  parts.cpu.share: "),
        ("series.yaml", "native/1x1", "native/9x9", 'series.yaml:12:20  parts.cpu.places.bare: "native/9x9"'),
        ("series.yaml", "box/2x1", "boks", 'series.yaml:12:39  parts.cpu.places.boxed: "boks"'),
        (
            "series.yaml",
            "file: messages",
            "file: messenger",
            "series.yaml:16:11  parts.net.file: cannot read",
        ),
        ("series.yaml", "file: messages", "file: ../messages", "series.yaml:16:11  parts.net.file: "),
        (
            "series.yaml",
            "notes: [Two",
            "figures: [packing]\n    notes: [Two",
            "series.yaml:17:14  parts.net.figures",
        ),
        (
            "series.yaml",
            "notes: [Two",
            "needs: [ovs]\n    notes: [Two",
            "series.yaml:17:13  parts.net.needs[0]",
        ),
        (
            "series.yaml",
            "notes: [Two",
            "figures: [curve]\n    notes: [Two",
            "series.yaml:17:14  parts.net.figures: the chart curve shows workloads that differ in one number",
        ),
        (
            "series.yaml",
            "notes: [Two",
            "figures: [steps]\n    notes: [Two",
            "series.yaml:17:14  parts.net.figures: the chart steps shows the steps of events",
        ),
        (
            "series.yaml",
            "notes: [Two",
            "sizes_from: cpi\n    notes: [Two",
            'series.yaml:17:17  parts.net.sizes_from: no part before this one is called "cpi"',
        ),
        (
            "series.yaml",
            "share: 60 %",
            "sizes_from: net\n    share: 60 %",
            'series.yaml:11:17  parts.cpu.sizes_from: no part before this one is called "net"',
        ),
        (
            "series.yaml",
            "notes: [Two",
            "sizes_from: cpu\n    notes: [Two",
            "series.yaml:17:17  parts.net.sizes_from: the shares are those of profiles; write profile: true",
        ),
        (
            "series.yaml",
            "notes: [Two",
            "not_asked: {jobs: {remedy: by hand}}\n    notes: [Two",
            "series.yaml:17:23  parts.net.not_asked.jobs.reason: missing",
        ),
        (
            "series.yaml",
            "ranks: every",
            "ranks: every\n  optional: [ep]",
            'series.yaml:7:14  narrow.optional[0]: no application workload is called "ep"',
        ),
        (
            "series.yaml",
            "notes:",
            "notse:",
            'series.yaml:17:5  parts.net.notse: unknown key; did you mean "notes"?',
        ),
        (
            "series.yaml",
            "[lxc, names",
            "[lxd, names",
            'series.yaml:7:19  narrow.backends.lxc: unknown backend "lxd"',
        ),
        ("series.yaml", "{lxc: [", "{qemu: [", "series.yaml:7:14  narrow.backends.qemu: no environment has"),
        (
            "series.yaml",
            "ranks: every",
            "imports: {ocean: import it}\n  ranks: every",
            'series.yaml:6:13  narrow.imports.ocean: no environment has the image "ocean"',
        ),
        (
            "series.yaml",
            "ranks: every",
            "own_backend: [bix]\n  ranks: every",
            'series.yaml:6:17  narrow.own_backend[0]: no environment is called "bix"; did you mean "box"?',
        ),
        ("series.yaml", "ranks: every", "ranks: most", "series.yaml:6:10  narrow.ranks: unknown value"),
        ("series.yaml", "published.toml", "no-such", "series.yaml:3:12  published: no published table"),
        ("series.yaml", "time: 2 min", "time: soon", "series.yaml:4:7  time: "),
        ("series.yaml", "title: What", "titel: What", "series.yaml:2:1  titel: unknown key"),
        (
            "messages.yaml",
            "mine-net",
            "mine-cpu",
            "series.yaml:9:3  parts.cpu: several parts have a study called",
        ),
        ("cpu.yaml", "class: S", "class: Z", "cpu.yaml:10:27  workloads.ep.class"),
        ("published.toml", "[1, 4]", "[4, 1]", "published.toml:13:9  number[0].value: the range is swapped"),
        (
            "published.toml",
            "[1, 4]",
            "[nan, 4]",
            "published.toml:13:9  number[0].value: must be a finite number",
        ),
        ("published.toml", "[1, 4]", "[1, 4", "published.toml:14:1  not readable as TOML"),
        ("published.toml", TABLE, "", "published.toml:1:1  paper: missing"),
    ],
)
def test_mistake_is_reported_with_file_line_and_column(
    tmp_path: Path, file: str, old: str, new: str, said: str
) -> None:
    with pytest.raises(StudyError) as told:
        read(written(tmp_path, (file, old, new)))
    lines = str(told.value).splitlines()
    assert any(line.startswith(f"{tmp_path}/{said}") for line in lines), lines


@pytest.mark.parametrize("file", ["cpu.yaml", "published.toml"])
def test_a_missing_file_is_a_mistake_of_the_series_file(tmp_path: Path, file: str) -> None:
    with pytest.raises(StudyError, match=f"cannot read {file}: No such file or directory"):
        read(written(tmp_path, leave_out=file))


def test_mistakes_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    here = written(
        tmp_path,
        ("series.yaml", "share: 60 %", "share: 90 %"),
        ("cpu.yaml", "class: S", "class: Z"),
        ("messages.yaml", "kernel: ep", "kernel: eq"),
        ("published.toml", "year = 2001", "yaer = 2001"),
    )
    with pytest.raises(StudyError) as told:
        read(here)
    files = {Path(p.file).name for p in told.value.problems}
    assert files == {"series.yaml", "cpu.yaml", "messages.yaml", "published.toml"}


def test_a_directory_without_a_series_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the directory has no series\.yaml") as told:
        study_from(str(tmp_path), 1)
    assert told.value.where == str(tmp_path)


@pytest.mark.parametrize("only", [["nope"], ["cpu,nope"], [","], [""]])
def test_only_parts_that_there_are_can_be_chosen(tmp_path: Path, only: list[str]) -> None:
    source = in_parts(str(written(tmp_path)), only=only)
    assert source is not None
    with pytest.raises(UsageError, match="--only: no part") as told:
        requested_series(source, only=only)
    assert told.value.remedy == "one of cpu, net"


def test_a_scale_belongs_to_built_in_studies(tmp_path: Path) -> None:
    found = find_series(str(written(tmp_path)))
    assert found is not None
    with pytest.raises(UsageError, match="--scale is for built-in studies"):
        read_series(found, scale=Scale.PAPER, seed=1)


@pytest.mark.parametrize("name", series_names())
@pytest.mark.parametrize("scale", Scale)
def test_the_files_that_init_writes_are_the_built_in_study(tmp_path: Path, name: str, scale: Scale) -> None:
    paths = write_series_files(name, scale, tmp_path / "v")
    built_in, own = find_series(name), find_series(str(tmp_path / "v"))
    assert built_in is not None and own is not None
    assert read_series(own, scale=None, seed=3) == read_series(built_in, scale=scale, seed=3)
    texts = series_output(name, scale)
    assert {p.name for p in paths} == set(texts)
    for file, text in texts.items():
        if file.endswith(".yaml"):
            assert text.startswith("# yaml-language-server: $schema=./nearmetal") and "#: " not in text
            assert text.count("#") > 2, f"{file} has comments"
    with pytest.raises(UsageError, match="is there already"):
        write_series_files(name, scale, tmp_path / "v")


@pytest.mark.parametrize("name", series_names())
@pytest.mark.parametrize("scale", Scale)
@pytest.mark.parametrize("cores", [2, 4, 64])
def test_every_part_and_claim_of_a_built_in_study_has_its_arms(name: str, scale: Scale, cores: int) -> None:
    found = find_series(name)
    assert found is not None
    files = read_series(found, scale=scale, seed=1)
    first = {b: Substitute(backend=p[0], own_kernel=True) for b, p in files.head.narrow.backends.items()}
    here = replace(
        offer(cores),
        substitutes=first,
        own_kernel=lambda backend: backend != "native",
    )
    series = narrow(files, here, seed=1, max_time=60.0)
    paper = published(series.paper)
    assert paper is not None
    for part in series.parts:
        assert part.study is not None, (part.key, part.absent)
        arms = {a.name for a in part.study.arms()}
        assert {c.arm for c in part.study.comparisons()} <= arms and set(part.places.values()) <= arms
        known = {w for e in files.head.parts if e.name == part.key for w in e.places}
        for claim in (c for c in paper.claims_of(part.key) if not c.cannot):
            assert {claim.arm, claim.baseline} - {""} <= known, claim.what
    assert {c.part for c in paper.claims} - {""} <= set(series.keys)


@pytest.mark.parametrize("name", series_names())
def test_every_part_is_an_ordinary_study_file(name: str) -> None:
    """It loads without the series, on a machine that has the image and the devices of optional workloads."""
    found = find_series(name)
    assert found is not None
    optional = read_series(found, scale=Scale.SMALL, seed=1).head.narrow.optional
    known = _without_placing(replace(catalog(), no_image=lambda _name, _own, _file: None), optional)
    for file, text in series_output(name, Scale.SMALL).items():
        if file.endswith(".yaml") and file != "series.yaml":
            assert load_text(text, file, known, seed=1).name.startswith(name)


def test_the_schema_describes_every_key_with_an_example() -> None:
    schema = json.loads(json.dumps(series_schema()))
    assert all(section["description"].endswith(".") for section in (schema, *schema["$defs"].values()))
    top, part = schema["properties"], schema["$defs"]["PartEntry"]
    assert schema["required"] == ["name", "title"] and not schema["additionalProperties"]
    assert part["required"] == ["title", "share"] and not part["additionalProperties"]
    keys = {**top, **part["properties"], **schema["$defs"]["Narrowing"]["properties"]}
    assert {"published", "narrow", "places", "needs", "figures", "backends", "host_images"} <= keys.keys()
    assert all(k["description"] and k["examples"] for k in keys.values())


def test_what_cannot_be_built_is_left_out_with_reason_and_remedy(tmp_path: Path) -> None:
    third = "  third: {backend: lxc, attachment: macvlan}\n"
    here = written(tmp_path, ("cpu.yaml", "placements:\n", f"{third}placements:\n"))
    lacking = {
        Attachment.MACVLAN: Omission(what="macvlan", reason="no such module", remedy="modprobe macvlan")
    }
    cpu, net = narrow(read(here), replace(offer(), lacking=lacking), seed=1, max_time=1.0).parts
    assert cpu.study is not None and [e.name for e in cpu.study.environments] == ["native", "box"]
    assert [str(o) for o in cpu.left_out] == ["third: no such module; next: modprobe macvlan"]
    assert net.left_out == ()


def test_parts_without_a_backend_are_absent_and_a_series_without_parts_does_not_run(tmp_path: Path) -> None:
    files = read(written(tmp_path))
    nothing = Substitute(backend=None, reason="no lxc-start", remedy="apt install lxc")
    none = replace(offer(), substitutes={"lxc": nothing})
    cpu = narrow(files, none, seed=1, max_time=1.0).parts[0]
    assert cpu.study is None and cpu.absent == "no lxc-start"
    assert cpu.left_out == (Omission(what="box", reason="no lxc-start", remedy="apt install lxc"),)
    asked = RequestedSeries(files=files, backend=None, seed=1, seconds=60.0, only=())
    with pytest.raises(UnavailableError, match="no part of mine runs here: no lxc-start") as told:
        asked.narrowed(none)
    assert told.value.remedy == "apt install lxc"


def test_the_results_of_a_part_are_not_those_of_a_part_with_a_longer_name(tmp_path: Path) -> None:
    here = written(tmp_path, ("messages.yaml", "mine-net", "mine-cpu-2nd"))
    series = narrow(read(here), offer(), seed=1, max_time=60.0)
    made = create_series(series, tmp_path / "results", "")
    cpu, net = series.parts
    assert cpu.study is not None and net.study is not None
    assert made.part(cpu) is None
    longer = ResultsDirectory.create(made.path, net.study.name, study_yaml="name: x")
    (longer.path / "plan.json").write_text("{}")
    assert made.part(cpu) is None and made.part(net) is not None


@pytest.mark.parametrize(
    ("why", "line"),
    [
        (
            "has no network; use attachment: veth-bridge",
            "vm: has no network; next: use attachment: veth-bridge",
        ),
        ("does not run a: slow; does not run b: odd", "vm: does not run a: slow; does not run b: odd"),
        (
            "is written at once; precopy is not; use offline",
            "vm: is written at once; precopy is not; next: use offline",
        ),
        ("a: x; use y; b: z; use w", "vm: a: x; use y; b: z; use w"),
    ],
)
def test_what_an_environment_cannot_run_is_followed_by_its_remedy(why: str, line: str) -> None:
    assert str(unable_omission("vm", why)) == line


def test_a_file_or_directory_of_its_name_hides_no_built_in_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quick").mkdir()
    assert study_from("quick", 1).name == "quick"
    Path("quick").rmdir()
    Path("quick").write_text("a program, for example")
    assert study_from("quick", 1).name == "quick"
    with pytest.raises(StudyError):
        study_from("./quick", 1)

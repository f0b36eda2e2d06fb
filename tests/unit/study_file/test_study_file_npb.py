"""A user's own NAS benchmarks: which binary is taken, on which ranks, and each mistake where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearmetal.errors import StudyError
from nearmetal.model.record import Status
from nearmetal.model.study import CommandWorkload
from nearmetal.study_file import Catalog, dump_study, load_text
from nearmetal.study_file.workloads.npb import Benchmark, Size, find_program, npb_command, ranks_of
from nearmetal.workloads.command import ResourceUse, parse

STUDY = """\
name: npb
environments:
  native: {backend: native}
  few: {backend: native, placements: [one], workloads: [theirs]}
  box: {backend: namespaces}
placements:
  one: {instances: 1, tasks: 1}
  four: {instances: 1, tasks: 4}
workloads:
  theirs:
    npb: {bin: BIN, benchmark: cg, class: A}
design: {baseline: native, primary: [theirs.rate], seed: 1}
"""
#: What NPB prints at the end, by version. MPI 3.4 (Fortran):
NEW = """

 CG Benchmark Completed.
 Class           =                        S
 Size            =                     1400
 Iterations      =                       15
 Time in seconds =                     0.05
 Total processes =                        1
 Active processes=                        1
 Mop/s total     =                  1373.53
 Mop/s/process   =                  1373.53
 Verification    =               SUCCESSFUL
 Version         =                    3.4.2
"""
#: 3.3 and before (C, as IS is written in):
OLD = """

 IS Benchmark Completed
 Class           =                        A
 Size            =                  8388608
 Iterations      =                       10
 Time in seconds =                     1.25
 Total processes =                        2
 Compiled procs  =                        2
 Mop/s total     =                    67.11
 Mop/s/process   =                    33.55
 Operation type  =              keys ranked
 Verification    =             UNSUCCESSFUL
 Version         =                    3.3.1
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that takes the binaries."""
    made = tmp_path / "bin"
    made.mkdir()
    return made


def put(place: Path, *names: str) -> None:
    for name in names:
        (place / name).touch()


def load(text: str, place: Path, catalog: Catalog) -> dict[str, CommandWorkload]:
    study = load_text(text.replace("BIN", str(place)), "s.yaml", catalog)
    return {w.name: w for w in study.workloads if isinstance(w, CommandWorkload)}


def told(text: str, place: Path, catalog: Catalog) -> list[str]:
    with pytest.raises(StudyError) as caught:
        load(text, place, catalog)
    return str(caught.value).splitlines()[:-1]


def test_the_binary_of_the_new_naming(place: Path, catalog: Catalog) -> None:
    put(place, "cg.A.x", "cg.A.1", "cg.B.x", "cg.A.x.old")
    theirs = load(STUDY, place, catalog)["theirs"]
    assert theirs.argv == (str(place / "cg.A.x"),) and theirs.mpi
    assert [(m.name, m.unit, m.scale) for m in theirs.metrics] == [("rate", "op/s", 1e6), ("seconds", "s", 1)]


def test_the_binaries_of_the_old_naming(place: Path, catalog: Catalog) -> None:
    put(place, "cg.A.1", "cg.A.4", "cg.A.0", "cg.A.4x")
    theirs = load(STUDY, place, catalog)["theirs"]
    assert theirs.argv == (str(place / "cg.A.{ranks}"),)
    assert theirs.argv_on(4) == (str(place / "cg.A.4"),)


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (["CG.A.x"], "CG.A.x"),
        (["CG.a.X", "cg.A.x", "CG.A.x"], "cg.A.x"),
        (["cg.a.1", "cg.a.4"], "cg.a.{ranks}"),
        (["CG.A.1", "CG.A.4", "cg.A.1", "cg.A.4"], "cg.A.{ranks}"),
    ],
)
def test_letters_of_either_case(place: Path, catalog: Catalog, names: list[str], taken: str) -> None:
    put(place, *names)
    assert load(STUDY, place, catalog)["theirs"].argv == (str(place / taken),)


def test_a_relative_directory_is_seen_from_here_and_frozen_whole(
    place: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place, "cg.A.x")
    monkeypatch.chdir(place.parent)
    study = load_text(STUDY.replace("BIN", "./bin"), "s.yaml", catalog)
    monkeypatch.chdir("/")
    frozen = dump_study(study, catalog)
    assert load_text(frozen, "study.yaml", None) == study == load_text(frozen, "study.yaml", catalog)


def test_environment_and_time_limit_are_keys_beside_npb(place: Path, catalog: Catalog) -> None:
    put(place, "cg.A.x")
    more = "class: A}\n    env: {NPB_TIMER_FLAG: 0}\n    time_limit: 2 h"
    theirs = load(STUDY.replace("class: A}", more), place, catalog)["theirs"]
    assert theirs.env == {"NPB_TIMER_FLAG": "0"} and theirs.time_limit == 7200


def test_a_sweep_over_benchmarks_and_classes(place: Path, catalog: Catalog) -> None:
    put(place, "cg.A.x", "cg.S.x", "ep.A.x", "ep.S.1", "ep.S.4")
    swept = STUDY.replace("benchmark: cg, class: A", "matrix: {benchmark: [cg, ep], class: [S, A]}")
    swept = swept.replace(", workloads: [theirs]", "").replace(", primary: [theirs.rate]", "")
    found = load(swept, place, catalog)
    assert {name: Path(w.argv[0]).name for name, w in found.items()} == {
        "theirs-cg-S": "cg.S.x",
        "theirs-cg-A": "cg.A.x",
        "theirs-ep-S": "ep.S.{ranks}",
        "theirs-ep-A": "ep.A.x",
    }


MISTAKES = [
    ("cg", "lu", "11:39", "npb.benchmark: neither lu.A.x nor lu.A.<number of ranks> is in DIR"),
    ("class: A", "class: F", "11:50", 'npb.class: unknown value "F"; known: S, W, A, B, C, D, E'),
    ("benchmark: cg", "benchmark: gc", "11:39", 'npb.benchmark: unknown value "gc"; known: ep, is, cg'),
    (", class: A", "", "11:10", "npb.class: missing; write class: A"),
    ("class: A", "clas: A", "11:43", 'npb.clas: unknown key; did you mean "class"?'),
    ("bin: BIN", "bin: BIN/none", "11:16", "npb.bin: DIR/none cannot be read: No such file or directory"),
    ("bin: BIN", "bin: BIN/cg.A.x", "11:16", "npb.bin: DIR/cg.A.x cannot be read: Not a directory"),
    ("{bin: BIN, benchmark: cg, class: A}", "x", "11:10", "npb: expected keys with values, such as"),
    ("    npb:", "    kernel: cg\n    npb:", "12:5", "kernel and npb: a workload is one of them"),
]


@pytest.mark.parametrize(("old", "new", "at", "what"), MISTAKES, ids=[f"{o}->{n}" for o, n, _, _ in MISTAKES])
def test_mistake_is_reported_at_its_place(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, old: str, new: str, at: str, what: str
) -> None:
    (tmp_path / "NPB3.4-MPI").mkdir()  # of a length that does not change, so that columns can be told
    monkeypatch.chdir(tmp_path)
    place = Path("NPB3.4-MPI")
    put(place, "cg.A.x")
    lines = told(STUDY.replace(old, new), place, catalog)
    wanted = what.replace("DIR", str(tmp_path / "NPB3.4-MPI"))
    assert any(line.startswith(f"s.yaml:{at}  workloads.theirs") and wanted in line for line in lines), lines


def test_ranks_are_checked_where_the_workload_runs(place: Path, catalog: Catalog) -> None:
    put(place, "bt.A.x", "cg.A.x", "ep.A.x")
    three = STUDY.replace("tasks: 4", "tasks: 3")
    (line,) = told(three.replace("benchmark: cg", "benchmark: bt"), place, catalog)
    assert line.endswith(
        "workloads.theirs.npb.benchmark: bt runs on 1, 4, 9, 16, ... ranks, not on 3 (placement four)"
    )
    (line,) = told(three, place, catalog)
    assert "cg runs on 1, 2, 4, 8, ... ranks, not on 3 (placement four)" in line
    load(three.replace("benchmark: cg", "benchmark: ep"), place, catalog)
    load(STUDY.replace("benchmark: cg", "benchmark: bt"), place, catalog)


def test_a_binary_for_other_ranks_alone(place: Path, catalog: Catalog) -> None:
    put(place, "cg.A.1", "cg.A.2")
    (line,) = told(STUDY, place, catalog)
    assert f"no cg.A.4 in {place}; of this class it holds cg.A.1, cg.A.2 (placement four)" in line


def test_an_environment_that_does_not_run_it_may_have_any_ranks(place: Path, catalog: Catalog) -> None:
    put(place, "cg.A.1")
    text = STUDY.replace("native: {backend: native}", "native: {backend: native, placements: [one]}").replace(
        "box: {backend: namespaces}", "box: {backend: namespaces, placements: [one]}"
    )
    load(text, place, catalog)


@pytest.mark.parametrize("benchmark", Benchmark)
def test_rank_rules(benchmark: Benchmark) -> None:
    allowed = [n for n in range(1, 17) if ranks_of(benchmark).allow(n)]
    assert allowed == {
        "ep": list(range(1, 17)), "bt": [1, 4, 9, 16], "sp": [1, 4, 9, 16]
    }.get(benchmark, [1, 2, 4, 8, 16])  # fmt: skip


def test_output_of_both_npb_versions_is_parsed(place: Path) -> None:
    put(place, "is.S.x")
    program = find_program(place, Benchmark.IS, Size.S)
    assert program is not None
    workload = npb_command("theirs", program, env={}, time_limit=60)
    new, old = ({r.metric: r for r in parse(workload, text, ResourceUse(wall=1.0))} for text in (NEW, OLD))
    assert (new["rate"].values, new["seconds"].values) == ((1373.53e6,), (0.05,))
    assert all(r.status is Status.OK and r.verification["found"] == "SUCCESSFUL" for r in new.values())
    assert old["rate"].values == (67.11e6,), "what was measured is kept"
    for row in old.values():
        assert row.status is Status.FAILED
        assert row.reason == "verification failed: expected SUCCESSFUL, found UNSUCCESSFUL"


def test_an_output_without_a_verification_is_none(place: Path) -> None:
    put(place, "is.S.x")
    program = find_program(place, Benchmark.IS, Size.S)
    assert program is not None
    text = NEW.replace(" Verification    =               SUCCESSFUL\n", "")
    rows = parse(
        npb_command("theirs", program, env={}, time_limit=60),
        text,
        ResourceUse(wall=1.0),
    )
    assert all("expected SUCCESSFUL, found nothing like" in r.reason for r in rows)

"""A run that is folded piece by piece, by several processes, says what it says when it is folded at once."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.unit.test_records_codec import of_schema_2

from nearmetal.analysis import conclude, fold_request
from nearmetal.analysis.fold.comparisons import Folded, fold, merged_pieces
from nearmetal.analysis.fold.pieces import FoldRequest, fold_piece
from nearmetal.api.catalog import catalog
from nearmetal.api.results import analysed
from nearmetal.errors import RecordsError
from nearmetal.model.change import replace
from nearmetal.model.record import Status, TrialRecord, slice_values
from nearmetal.model.scope import NODE, Scope
from nearmetal.model.study import (
    Better,
    Design,
    Environment,
    EventSubject,
    KernelWorkload,
    Placement,
    Study,
)
from nearmetal.plan import make_plan
from nearmetal.records import ResultsDirectory, Trials
from nearmetal.records.codec import from_line, to_line
from nearmetal.run import folding, piece_cache
from nearmetal.study_file import dump_study
from nearmetal.subjects.start_stop import START
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

STUDY = Study(
    name="s",
    question="",
    environments=(
        Environment(name="native", backend="native", placements=("one",)),
        Environment(name="box", backend="namespaces", image="busybox", placements=("one",)),
    ),
    placements=(Placement(name="one", instances=1, tasks=1),),
    workloads=(KernelWorkload(name="ep", kernel="ep", params={}), EventSubject(name="start", facts=START)),
    design=Design(baselines=("native",), margin=0.03, confidence=0.95, seed=3),
)
PLAN = make_plan(STUDY, blocks=40)
METRICS = (
    SimulatedMetric(workload="ep", metric="rate", unit="op/s", better=Better.HIGHER, value=1e6, comm=0.1),
    SimulatedMetric(workload="start", metric="start", unit="s", better=Better.LOWER, value=1e-3),
)


def simulated() -> list[TrialRecord]:
    return list(simulate(STUDY, PLAN, metrics=METRICS, overheads={"box/one": 0.1}, spread=Spread()))


def told() -> list[TrialRecord]:
    """A run with a torn block, one that was run again, failures, wrong results and counters."""
    records = []
    for r in simulated():
        counters = {Scope.timed("ep"): {"run_delay": 0.001 * r.block, "steal": None}, NODE: {"x": 1.0}}
        r = replace(r, counters=counters, disturbance={"steal_share": 0.01 * r.block})
        if r.block == 5 and r.arm == "box/one":
            r = replace(r, status=Status.FAILED, reason="killed", rows=())
        if r.block in (9, 30) and r.arm == "box/one":
            r = replace(r, rows=(replace(r.rows[0], verification={"ok": r.block == 9}), *r.rows[1:]))
        if r.block == 12:
            records.append(replace(r, attempt=2))
        if r.block == 17 and r.aa:
            continue
        records.append(r)
    return records


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def directory(tmp_path: Path) -> ResultsDirectory:
    made = ResultsDirectory.create(tmp_path, "s", study_yaml=dump_study(STUDY, catalog()))
    made.freeze(seed=3, arms=[arm.name for arm in STUDY.arms()], provenance={})
    with made.writer("one") as one, made.writer("two") as two:
        for r in told():
            (one if r.block % 3 else two).append(r)
    return made


def same(a: object, b: object) -> bool:
    """Equal to the last bit, nan for nan."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if is_dataclass(a) and not isinstance(a, type):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return a == b


def folded(asked: FoldRequest, trials: Trials) -> Folded:
    with folding.fold_workers(sum(head.length for head in trials.heads)) as workers:
        return folding.fold_trials(asked, PLAN, trials, workers)


def in_nanoseconds(record: TrialRecord) -> TrialRecord:
    """As programs report it: seconds and parts with nine decimals, and values that follow from them."""
    rows = []
    for row in record.rows:
        seconds = tuple(round(s, 9) for s in row.seconds)
        values = slice_values(row.better, row.work, seconds) if row.work else row.values
        parts = {kind: tuple(round(p, 9) for p in part) for kind, part in row.parts.items()}
        rows.append(replace(row, seconds=seconds, values=values, parts=parts))
    return replace(record, rows=tuple(rows))


def with_spaces(line: bytes) -> bytes:
    return json.dumps(json.loads(line)).encode() + b"\n"


@pytest.mark.parametrize(
    ("stored", "processes"),
    [
        ("fractions", False),
        ("fractions", True),
        ("ticks", True),
        ("both", False),
        ("older", True),
        ("older and newer", False),
        ("spaces", False),
    ],
)
def test_pieces_and_processes_change_nothing(
    directory: ResultsDirectory, monkeypatch: pytest.MonkeyPatch, stored: str, processes: bool
) -> None:
    for file in (directory.path / "trials").iterdir():
        lines = file.read_bytes().splitlines(keepends=True)
        if stored not in ("fractions", "spaces"):
            step = 2 if stored == "both" else 1
            lines[::step] = [to_line(in_nanoseconds(from_line(line))) for line in lines[::step]]
            assert sum(b"ticks_per_second" in line for line in lines) > len(lines) / (step + 1)
        if stored.startswith("older"):
            step = 1 if stored == "older" else 3
            lines[::step] = map(of_schema_2, lines[::step])
        if stored == "spaces":
            lines = list(map(with_spaces, lines))
        file.write_bytes(b"".join(lines))
    asked, trials = fold_request(STUDY), directory.trials()
    whole = fold(asked, PLAN, list(trials))
    assert whole.torn == 1 and len(whole.blocks) == 39 and whole.wrong == 1
    monkeypatch.setattr(folding, "LARGEST_PIECE", 3000)
    if processes:
        monkeypatch.setattr(folding, "WORTH_PROCESSES", 0)
    found = folded(asked, trials)
    assert all(same(getattr(whole, f.name), getattr(found, f.name)) for f in fields(Folded))
    assert conclude(STUDY, PLAN, trials.heads, found) == conclude(STUDY, PLAN, trials.heads, whole)


def test_no_bit_depends_on_the_other_blocks_of_a_piece() -> None:
    """Blocks with few slices are padded to the length of the longest block of their piece."""
    rng = random.Random(1)
    lengths = {block: rng.choice((1, 2, 9, 130, 131, 300)) for block in range(1, 41)}
    records = [in_nanoseconds(of_length(r, lengths[r.block], rng)) for r in simulated()]
    asked = fold_request(STUDY)
    whole = fold_piece(asked, records)
    assert {key[2] for key in whole.compared} == {("ep", "rate"), ("start", "start")}
    alone = [fold_piece(asked, [r for r in records if r.block == block]) for block in lengths]
    found = merged_pieces(alone)
    for name in ("measured", "compared", "counts"):
        assert same(getattr(found, name), getattr(whole, name))


def of_length(record: TrialRecord, n: int, rng: random.Random) -> TrialRecord:
    """The record with n slices of different lengths."""
    rows = []
    for row in record.rows:
        seconds = tuple(1e-3 * math.exp(rng.gauss(0, 0.1)) for _ in range(n))
        work = 1000.0 if row.seconds else 0.0
        values = slice_values(row.better, work, seconds) if work else seconds
        parts = {kind: tuple(s * rng.random() for s in seconds) for kind in row.parts}
        rows.append(replace(row, values=values, work=work, seconds=seconds if work else (), parts=parts))
    return replace(record, rows=tuple(rows))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"rows":[', b'"rows":[7,'),
        (b'"seconds":[', b'"seconds":["7",'),
        (b'"seconds":[', b'"seconds":[7,'),
        (b'"comm":[', b'"comm":[7,'),
        (b'"ticks":"', b'"ticks":"AAAA'),
        (b'"ticks":"', b'"ticks":"AAAAAAAAAAAAAAAA'),
        (b'"ticks":"', b'"ticks":"*'),
        (b'"ticks":"', b'"seconds":[0.5],"ticks":"'),
        (b'"ticks_per_second":1000000000,', b""),
        (b'"part_ticks":{"comm":"', b'"part_ticks":{"comm":"AAAA'),
        (b'"run_delay":', b'"run_delay":"7","x":'),
    ],
)
def test_corrupt_record_is_reported_by_every_reader(
    directory: ResultsDirectory, monkeypatch: pytest.MonkeyPatch, before: bytes, after: bytes
) -> None:
    file = directory.path / "trials" / "one.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    if b"ticks" in before:
        lines = [to_line(in_nanoseconds(from_line(line))) for line in lines]
    assert before in lines[30]
    lines[30] = lines[30].replace(before, after, 1)
    file.write_bytes(b"".join(lines))
    monkeypatch.setattr(folding, "LARGEST_PIECE", 3000)
    if b"rows" in before:
        monkeypatch.setattr(folding, "WORTH_PROCESSES", 0)
    with pytest.raises(RecordsError) as e:
        analysed(directory)
    assert e.value.where == f"{file}:31"


def test_records_that_were_folded_before_are_not_folded_again(
    directory: ResultsDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(folding, "LARGEST_PIECE", 3000)
    monkeypatch.setattr(folding, "WORTH_PROCESSES", 0)
    asked, trials = fold_request(STUDY), directory.trials()
    first = folded(asked, trials)
    kept = tmp_path / "cache" / "nearmetal" / "folded"
    names = {path.name for path in kept.iterdir()}
    assert len(names) > 2 and {path.stat().st_mode & 0o777 for path in kept.iterdir()} == {0o600}
    again = folded(asked, trials)
    assert all(same(getattr(first, f.name), getattr(again, f.name)) for f in fields(Folded))
    assert {path.name for path in kept.iterdir()} == names
    folded(replace(asked, seed=asked.seed + 1), trials)
    assert len({path.name for path in kept.iterdir()} - names) == len(names)


@pytest.mark.parametrize("fault", ["changed record", "torn piece", "bit", "writable by all", "no cache"])
def test_kept_pieces_are_never_wrong(
    directory: ResultsDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    monkeypatch.setattr(folding, "LARGEST_PIECE", 3000)
    monkeypatch.setattr(folding, "WORTH_PROCESSES", 0)
    asked = fold_request(STUDY)
    folded(asked, directory.trials())
    for path in (tmp_path / "cache" / "nearmetal" / "folded").iterdir():
        content = path.read_bytes()
        if fault == "torn piece":
            path.write_bytes(content[:-20])
        elif fault == "bit":
            path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
        elif fault == "writable by all":
            path.write_bytes(hashlib.sha256(b"x").digest() + b"x")
            path.chmod(0o666)
    if fault == "no cache":
        monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no/such/place")
    if fault == "changed record":
        file = directory.path / "trials" / "one.jsonl"
        file.write_bytes(file.read_bytes().replace(b'"steal_share":0.01', b'"steal_share":0.02', 1))
    trials = directory.trials()
    found = folded(asked, trials)
    whole = fold(asked, PLAN, list(trials))
    assert all(same(getattr(whole, f.name), getattr(found, f.name)) for f in fields(Folded))


def test_the_cache_of_pieces_stays_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(piece_cache, "MOST_BYTES", 250)
    kept = piece_cache.PieceCache(directory=tmp_path, request="")
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    kept.shrink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_work_of_a_dead_process_is_done_by_the_parent(
    directory: ResultsDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, trials = fold_request(STUDY), directory.trials()
    monkeypatch.setattr(folding, "LARGEST_PIECE", 3000)
    monkeypatch.setattr(folding, "WORTH_PROCESSES", 0)
    monkeypatch.setattr(folding, "_work", dies)
    found = folded(asked, trials)
    assert same(found.measured, fold(asked, PLAN, list(trials)).measured)


def dies(*_: object) -> None:
    os._exit(1)


def test_progress_of_reading_is_reported(
    directory: ResultsDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "LARGEST_PIECE", 3000)
    told: list[float] = []
    analysed(directory, told.append)
    assert len(told) > 5 and told == sorted(told) and told[-1] == 1

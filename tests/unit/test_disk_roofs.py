"""Roofs of disks: which stands over which storage, and what fio has to say for one."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.analysis.roofs import wanted, with_roofs, words
from nearmetal.errors import RunError, UnavailableError
from nearmetal.model.result import Interval
from nearmetal.model.roof import MeasuredRoof, RoofRequest, read_roofs, roof_record
from nearmetal.model.study import ApplicationWorkload, Better, Storage, StorageKind, Study
from nearmetal.node.machine import Machine
from nearmetal.run.bounds.disk import SECONDS, SIZE, by_fio
from nearmetal.testing.fake_host import FakeHost
from nearmetal.workloads.applications.fio import roof_arguments

BIND, LOOP = Storage(kind=StorageKind.BIND, path="/scratch"), Storage(kind=StorageKind.LOOP, size=1 << 20)
WANTED = RoofRequest(name="disk-read", ranks=1, transport="", place="/scratch")


def study(*storages: Storage | None) -> Study:
    """The sample's, with fio alone, its environments on these, the last on all further."""
    frame = sample.study()
    given = [*storages, *[storages[-1]] * len(frame.environments)]
    return replace(
        frame,
        workloads=(ApplicationWorkload(name="io", application="fio", params={}),),
        environments=tuple(replace(e, storage=s) for e, s in zip(frame.environments, given, strict=False)),
    )


def measured(place: str, value: float = 2e9) -> MeasuredRoof:
    return MeasuredRoof(
        name="disk-read",
        ranks=None,
        transport="",
        value=value,
        unit="B/s",
        better=Better.HIGHER,
        measured=1.0,
        how="fio",
        place=place,
    )


@pytest.mark.parametrize(
    ("storage", "disk"),
    [
        (BIND, "/scratch"),
        (LOOP, "/var/tmp"),
        (Storage(kind=StorageKind.LOOP, path="/data", size=1), "/data"),
        (Storage(), ""),
        (Storage(kind=StorageKind.TMPFS), ""),
        (Storage(kind=StorageKind.NFS, path="server:/x"), ""),
        (Storage(kind=StorageKind.BLOCK, path="/dev/sdz"), ""),
    ],
)
def test_the_disk_below_a_storage(storage: Storage, disk: str) -> None:
    assert storage.disk == disk
    asked = wanted(study(storage))
    assert {(w.name, w.place) for w in asked} == (
        {("disk-read", disk), ("disk-write", disk)} if disk else set()
    )


def test_disk_bound_applies_to_storage_on_that_disk() -> None:
    reached = Interval(centre=1e9, low=1e9, high=1e9)
    cells = [
        replace(
            c,
            workload="io",
            metric="read_1MiB_bandwidth",
            unit="B/s",
            better=Better.HIGHER,
            value=reached,
            baseline_value=reached,
        )
        for c in sample.analysis().cells
    ]
    names = {a.name for a in study(BIND).arms()}
    here = with_roofs(study(BIND), cells, [measured("/scratch"), measured("/data", 9.0)], ())
    (shared,) = {c.roof.value for c in here if c.arm in names and c.roof is not None}
    assert shared == 2e9
    assert not any(c.roof for c in with_roofs(study(LOOP), cells, [measured("/scratch")], ()))
    assert not any(c.roof for c in with_roofs(study(None), cells, [measured("")], ()))
    assert words(measured("/scratch")) == "sequential reads of the disk of /scratch"
    assert read_roofs([roof_record(measured("/scratch"))]) == (measured("/scratch"),)


@dataclass(frozen=True)
class Only:
    """Of a machine what the measurement asks for."""

    host: FakeHost


def machine(host: FakeHost) -> Machine:
    return Only(host)  # type: ignore[return-value]


def test_without_fio_there_is_no_roof(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="fio is not on this machine"):
        by_fio(machine(FakeHost(missing=("fio",))), WANTED, "nearmetal-abcdef", tmp_path)


@pytest.mark.parametrize(
    ("error", "rate"), [(0, 1.5e9), (28, 1.5e9), (0, 0)], ids=["measured", "full disk", "nothing read"]
)
def test_upper_bound_is_measured_by_fio_or_its_error_reported(
    tmp_path: Path, error: int, rate: float
) -> None:
    place, label = tmp_path / "disk", "nearmetal-abcdef"
    place.mkdir()
    argv = roof_arguments(place / f"{label}-roof", "read", seconds=SECONDS, size=SIZE)
    job = {"jobname": "read", "error": error, "read": {"bw_bytes": rate}}

    def fio(_: object) -> str:
        assert (place / f"{label}-roof").is_dir()
        return json.dumps({"jobs": [job]})

    host = FakeHost(programs={"fio": "/usr/bin/fio"}, commands={argv: fio})
    asked = replace(WANTED, place=str(place))
    if error or not rate:
        with pytest.raises(RunError, match="fio measured nothing"):
            by_fio(machine(host), asked, label, tmp_path)
    else:
        found = by_fio(machine(host), asked, label, tmp_path)
        assert (found.value, found.place, found.ranks) == (rate, str(place), None)
        assert "direct requests of 1 MiB" in found.how
    assert not list(place.iterdir())

"""fio, bonnie++ and BLAST from the command line: in instances with storage, and on a disk that is full."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import nearmetal

from nearmetal.host.leftovers import find
from nearmetal.model.record import TOO_SHORT

STUDY = """\
name: disk
environments:
  native: {backend: native, placements: [1x2], storage: {kind: loop, size: 64 MiB}}
  box:
    backend: namespaces
    attachment: veth-bridge
    placements: [2x1]
    storage: {kind: tmpfs, size: 64 MiB}
placements:
  1x2: {instances: 1, tasks: 2}
  2x1: {instances: 2, tasks: 1}
workloads:
  fio: {application: fio, size: 8 MiB, seconds: 0.1 s}
  buffered:
    application: fio
    mode: buffered
    operation: read
    pattern: random
    block: 4 KiB..64 KiB
    size: 8 MiB
    seconds: 0.1 s
  bonnie: {application: bonnie, size: 16 MiB}
  blast: {application: blast, sequences: 1000, queries: 4, fragments: 4}
design: {baseline: native, mode: plain, warm_up: 0}
"""
FULL = """\
name: full
environments:
  disk: {backend: native, workloads: [fio], storage: {kind: bind, path: HERE}}
  full: {backend: native, workloads: [fio], storage: {kind: tmpfs, size: 8 MiB}}
  bonnies: {backend: native, workloads: [bonnie], storage: {kind: tmpfs, size: 8 MiB}}
placements: {1x1: {instances: 1, tasks: 1}}
workloads:
  fio: {application: fio, pattern: random, operation: read, size: 16 MiB, seconds: 0.1 s}
  bonnie: {application: bonnie, size: 16 MiB}
design: {baseline: disk, mode: plain, warm_up: 0}
"""

pytestmark = [pytest.mark.more, pytest.mark.skipif(os.geteuid() != 0, reason="mounts storage")]


def run(directory: Path, study: str, *words: str) -> tuple[int, str, Path]:
    """Exit code, what was said, and the results directory."""
    (directory / "study.yaml").write_text(study)
    there = directory / "results"
    done = nearmetal(
        {**os.environ},
        *("run", str(directory / "study.yaml"), "--max-blocks", "1", "--json", "--results", str(there)),
        *words,
    )
    (results,) = there.iterdir()
    return done.returncode, done.stderr, results


def left_behind(results: Path) -> tuple[object, ...]:
    label = json.loads((results / "provenance.json").read_text())["run"]
    return find(label)


def trials(results: Path) -> dict[str, Any]:
    """By arm; of the baseline's two the last."""
    lines = [json.loads(line) for f in (results / "trials").iterdir() for line in f.read_text().splitlines()]
    return {line["arm"]: line for line in lines}


def test_applications_in_storage_of_two_kinds(tmp_path: Path) -> None:
    code, said, results = run(tmp_path, STUDY)
    assert code == 0, said
    assert "fio differs between the environments" in said, said
    by_arm = trials(results)
    for arm, kind in (("native/1x2", "loop device"), ("box/2x1", "no block device")):
        trial = by_arm[arm]
        assert trial["status"] == "ok", trial["reason"]
        assert kind in trial["facts"]["fio"]["meets"], trial["facts"]
        assert "smaller than the memory" in trial["facts"]["buffered"]["meets"]
        rows = {(r["workload"], r["metric"]): r for r in trial["rows"]}
        measured = {key for key, r in rows.items() if r["status"] == "ok" and r["values"][0] > 0}
        assert measured >= {
            ("fio", "read_1MiB_bandwidth"),
            ("fio", "write_1MiB_p999"),
            ("fio", "randwrite_4KiB_rate"),
            ("buffered", "randread_64KiB_p99"),
            ("blast", "search"),
        }
        # 16 MiB in a cache are too fast for bonnie++, and its user time may be for the clock.
        told = [r for (w, _), r in rows.items() if w == "bonnie" and not r["values"]]
        assert all("too fast" in r["reason"] or r["reason"].endswith(TOO_SHORT) for r in told)
        assert {r["status"] for r in told} <= {"failed"}
        assert trial["facts"]["bonnie"]["version"]
        assert rows["blast", "search"]["verification"]["ok"] is True
        assert sum(trial["facts"]["blast"]["fragments_by_rank"].values()) == 4
    roofs = json.loads((results / "roofs.json").read_text())["roofs"]
    disk = {r["name"]: r for r in roofs if r["place"] == "/var/tmp"}  # where the files of loop devices are
    assert disk.keys() == {"disk-read", "disk-write"} and all(r["value"] > 1e6 for r in disk.values())
    assert not left_behind(results)


def test_a_full_disk_ends_a_run_that_has_nothing_left_to_compare(tmp_path: Path) -> None:
    code, said, results = run(tmp_path, FULL.replace("HERE", str(tmp_path)))
    assert code == 4, said
    assert "nothing is left to compare with disk: " in said and "No space left on device" in said
    for arm, workload in (("full", "fio"), ("bonnies", "bonnie")):
        log = results / "logs" / f"0.{arm}~1x1"
        assert f"{arm}/1x1 failed in the rehearsal: {log}: {workload}: ended with 1" in said
        assert "No space left on device" in (log / f"{workload}.stderr.txt").read_text()
    assert "next: a larger storage" in said
    assert not list(tmp_path.glob("nearmetal*"))

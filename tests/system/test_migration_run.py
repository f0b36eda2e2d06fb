"""A study that moves guests, from the command line: its rows, what is recorded beside them, and what a
baseline that cannot move says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.contract.guests import NEEDED, kernel
from tests.system.test_quick import left_behind, nearmetal, trial_lines

pytestmark = [pytest.mark.more, *NEEDED]
STUDY = """
name: moved
environments:
  vm:
    backend: qemu
    image: debian-kernel
    attachment: veth-bridge
    placements: [1x1]
    guest: {memory: 256 MiB, boot_timeout: 30 min}
placements:
  1x1: {instances: 1, tasks: 1}
workloads:
  moved: {subject: migrate, count: 2, method: postcopy}
design: {baseline: vm, mode: plain, margin: 3 %, seed: 1}
"""


def test_moves_are_measured_and_what_moved_is_checked(tmp_path: Path) -> None:
    assert kernel()
    (tmp_path / "s.yaml").write_text(STUDY)
    done = nearmetal("run", "s.yaml", "--max-blocks", "1", "--json", cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stderr
    line = next(line for line in trial_lines(tmp_path) if not line["aa"])
    assert line["status"] == "ok", line
    rows = {r["metric"]: r for r in line["rows"] if r["workload"] == "moved"}
    assert set(rows) == {"total", "stopped", "downtime", "silence", "sent"}
    assert len(rows["total"]["values"]) == 2 and min(rows["total"]["values"]) > 0
    assert max(rows["stopped"]["values"]) <= max(rows["total"]["values"])
    facts = line["facts"]["moved"]
    assert facts["method"] == "postcopy" and facts["program"] == "went on with no wrong page"
    assert facts["floor"]["lost"] == 0 and facts["floor"]["period"] >= 0.5e-3
    assert [set(m["phases"]) for m in facts["moves"]] == [
        {"connect", "dump", "copy", "restore", "thaw", "removal"}
    ] * 2
    assert json.loads(done.stdout)["results_dir"] and left_behind(tmp_path) == []


def test_auto_chooses_for_the_bound_and_says_what_it_expected(tmp_path: Path) -> None:
    assert kernel()
    auto = "count: 4, method: auto, downtime_limit: 2 s"
    (tmp_path / "s.yaml").write_text(STUDY.replace("count: 2, method: postcopy", auto))
    done = nearmetal("run", "s.yaml", "--max-blocks", "1", "--json", cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stderr
    line = next(line for line in trial_lines(tmp_path) if not line["aa"])
    facts = line["facts"]["moved"]
    assert facts["method"] == "auto" and facts["downtime_limit"] == 2.0 and len(facts["moves"]) == 4
    for move in facts["moves"]:
        assert move["chosen"] in ("offline", "precopy", "postcopy", "multifd")
        low, value, high = move["total"]["predicted"]
        assert 0 < low < value and (high is None or value < high) and move["total"]["measured"] > 0
        assert "2000 ms" in move["reason"] and f"{move['chosen']} " in move["reason"]
    if len({move["chosen"] for move in facts["moves"]}) == 1:
        assert facts["moves"][0]["total"]["predicted"] != facts["moves"][3]["total"]["predicted"]


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ("baseline: vm", "baseline: bare", "its instances (native) cannot be moved while they run"),
        ("method: postcopy", "method: criu", "qemu does not move by criu, but by offline, precopy"),
    ],
)
def test_who_cannot_move_is_said_before_anything_is_measured(
    tmp_path: Path, was: str, now: str, told: str
) -> None:
    assert kernel()
    bare = "environments:\n  bare: {backend: native, image: debian-kernel, placements: [1x1]}\n"
    (tmp_path / "s.yaml").write_text(STUDY.replace("environments:\n", bare).replace(was, now))
    done = nearmetal("run", "s.yaml", "--max-blocks", "1", cwd=tmp_path, timeout=900)
    assert done.returncode == 3 and told in done.stderr
    assert not list(tmp_path.rglob("trials/*.jsonl"))

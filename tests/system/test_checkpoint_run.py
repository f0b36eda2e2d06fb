"""Studies of checkpoints by method, and of moves whose method is chosen, as a user would run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.criu_moves import large_pipes
from tests.docker_daemon import offer_criu
from tests.system.checkpoint_case import checkpointing_backends, find_or_build_criu

from nearmetal.environments import Checkpoints, Unavailable
from nearmetal.environments.registry import get_backend
from nearmetal.lifecycle import Method

pytestmark = pytest.mark.more

STUDY = """
name: checkpoints
environments:
{environments}
placements:
  1x1: {{instances: 1, tasks: 1}}
workloads:
  saved: {{subject: checkpoint, count: 1, matrix: {{method: [{methods}]}}}}
design: {{baseline: native, mode: plain, margin: 3 %, seed: 1}}
"""


def test_checkpoints_are_measured_by_method_and_verified(tmp_path: Path, docker: None, crun: None) -> None:
    if os.geteuid() != 0:
        pytest.skip("a checkpoint needs root")
    with large_pipes():
        criu = find_or_build_criu()
        if isinstance(criu, Unavailable):
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{criu.reason}; {criu.remedy}")
        offer_criu(criu)
        methods = [m for m in Method if m.value.startswith("criu") and m not in criu.unable]
        names = checkpointing_backends()
        lines = [
            f"  {name}: {{backend: {name}, attachment: {attachment(name)}, placements: [1x1]}}"
            for name in names
        ]
        text = STUDY.format(environments="\n".join(lines), methods=", ".join(methods))
        (tmp_path / "s.yaml").write_text(text)
        argv = [sys.executable, "-m", "nearmetal", "run", "s.yaml", "--max-blocks", "1", "--json"]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("results/*/trials/*.jsonl")
    trials = [json.loads(line) for line in file.read_text().splitlines()]
    assert {t["arm"] for t in trials} == {
        f"{name}-{method}/1x1" for name, able in names.items() for method in methods if method in able
    }
    for trial in trials:
        assert trial["status"] == "ok", trial
        rows = {r["metric"]: r for r in trial["rows"] if r["workload"] == "saved"}
        assert set(rows) == {"checkpoint", "pause", "stopped", "slowdown", "checkpoint_size", "sent"}
        (total,), (stopped,) = rows["checkpoint"]["values"], rows["stopped"]["values"]
        assert 0 < stopped < total + 0.1 and rows["sent"]["values"][0] >= 64 << 20
        facts = trial["facts"]["saved"]
        assert trial["arm"].endswith(f"-{facts['method']}/1x1")
        assert facts["program"] == "went on with no wrong page"
        (event,) = facts["events"]
        assert sum(event["phases"].values()) == pytest.approx(total)
        told = facts["method"] != Method.CRIU_LAZY and not trial["arm"].startswith("docker-")
        assert ("freeze" in event["phases"]) == told


AUTO = """
name: chosen
environments:
  native: {{backend: native, placements: [1x1], workloads: [tight-native, wide]}}
  runc: {{backend: runc, attachment: none, placements: [1x1], workloads: [tight-runc, wide]}}
placements:
  1x1: {{instances: 1, tasks: 1}}
workloads:
  tight-native: {{subject: migrate, count: 1, method: auto, memory: 32 MiB, downtime_limit: {native} s}}
  tight-runc: {{subject: migrate, count: 1, method: auto, memory: 32 MiB, downtime_limit: {runc} s}}
  wide: {{subject: migrate, count: 1, method: auto, memory: 32 MiB, downtime_limit: 30 min}}
design: {{baseline: native, mode: plain, margin: 3 %, seed: 1}}
"""


def test_auto_moves_a_process_and_a_container_by_the_method_that_keeps_the_bound(tmp_path: Path) -> None:
    """Only criu-lazy is predicted to keep a bound that is hardly longer than the standstill of a process
    without memory. The predicted times of all methods depend on the speed of this machine."""
    if os.geteuid() != 0:
        pytest.skip("a checkpoint needs root")
    with large_pipes():
        criu = find_or_build_criu()
        if isinstance(criu, Unavailable):
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{criu.reason}; {criu.remedy}")
        lazy = Method.CRIU_LAZY not in criu.unable
        tight = {name: 1.001 * most_fixed(name) for name in ("native", "runc")}
        (tmp_path / "s.yaml").write_text(AUTO.format(**tight))
        argv = [sys.executable, "-m", "nearmetal", "run", "s.yaml", "--max-blocks", "1", "--json"]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["not_measured"] == []
    (file,) = tmp_path.glob("results/*/trials/*.jsonl")
    trials = [json.loads(line) for line in file.read_text().splitlines()]
    assert {t["arm"] for t in trials} == {"native/1x1", "runc/1x1"}
    for trial in trials:
        assert trial["status"] == "ok", trial
        name = trial["arm"].partition("/")[0]
        rows = {(r["workload"], r["metric"]): r["values"] for r in trial["rows"]}
        for workload, limit in ((f"tight-{name}", tight[name]), ("wide", 1800.0)):
            facts = trial["facts"][workload]
            assert facts["method"] == "auto" and facts["downtime_limit"] == limit
            assert facts["program"] == "went on with no wrong page"
            (move,) = facts["moves"]
            assert move["method"] == move["chosen"] and f"{move['chosen']} " in move["reason"], move
            for metric in ("total", "stopped"):
                low, value, high = move[metric]["predicted"]
                assert 0 < low < value < high
                assert rows[workload, metric] == [move[metric]["measured"]]
            assert move["bound_holds"] == (move["stopped"]["predicted"][2] <= limit)
        (tightly,), (widely,) = (trial["facts"][w]["moves"] for w in (f"tight-{name}", "wide"))
        assert widely["chosen"] == Method.CRIU and widely["bound_holds"] and "freeze" in widely["phases"]
        assert tightly["bound_holds"] is lazy, tightly
        if lazy:
            assert tightly["chosen"] == Method.CRIU_LAZY, tightly
            assert "freeze" not in tightly["phases"], "the recorded method is the one by which it moved"


def most_fixed(name: str) -> float:
    """The longest expected standstill of an instance without memory, in seconds."""
    backend = get_backend(name)
    assert isinstance(backend, Checkpoints)
    return backend.costs.fixed.high


def attachment(name: str) -> str:
    return "none" if "net" in get_backend(name).capabilities.own else "host"

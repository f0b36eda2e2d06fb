"""A study of checkpoints by method, as a user would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.criu_moves import large_pipes
from tests.system.checkpoint_case import checkpointing_backends, find_or_build_criu

from nearmetal.environments import Unavailable
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


def test_checkpoints_are_measured_by_method_and_verified(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a checkpoint needs root")
    with large_pipes():
        criu = find_or_build_criu()
        if isinstance(criu, Unavailable):
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{criu.reason}; {criu.remedy}")
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
        assert ("freeze" in event["phases"]) == (facts["method"] != Method.CRIU_LAZY)


def attachment(name: str) -> str:
    return "none" if "net" in get_backend(name).capabilities.own else "host"

"""The reason for a cost, on the real machine: a quota is told as throttling, and trying without it helps."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import nearmetal

BLOCKS = "9"
#: Some 50 ms of one CPU, of which 10 ms are given in each 100 ms; reads a file and prints it.
STUDY = """
name: quota
question: does a tenth of a CPU tell?
environments:
  metal: {backend: native}
  tenth: {backend: namespaces, limits: {cpu: 10 %}}
placements:
  one: {instances: 1, tasks: 1}
workloads:
  spin:
    command: [sh, -c, 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; cat /etc/passwd']
design:
  baseline: metal
  mode: plain
  warm_up: 0
  max_blocks: 9
  seed: 5
  sample_every: 200 ms
"""

pytestmark = [pytest.mark.more, pytest.mark.skipif(os.geteuid() != 0, reason="a CPU quota needs root here")]


def run(*words: str) -> Any:
    done = nearmetal(dict(os.environ), *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("why")
    study = directory / "quota.yaml"
    study.write_text(STUDY)
    return run("run", str(study), "--results", str(directory), "--json")


def cell_of(result: Any, metric: str) -> Any:
    (cell,) = [c for c in result["cells"] if c["metric"] == metric]
    return cell


def test_a_quota_is_told_as_throttling(results: Any) -> None:
    wall = cell_of(results, "wall")
    assert wall["verdict"] == "material: slower"
    told = wall["attribution"]
    causes = {p["name"]: p["overhead"] for p in told["causes"]}
    quota = causes["throttled by the CPU quota"]
    assert quota["low"] > 0.1 * wall["overhead"], told
    assert "throttled by the CPU quota: " in told["sentence"]
    assert told["suggestion"]["change"] == "limits.cpu"
    # What the kernel divides the time into adds up, whatever the cause.
    parts = {p["name"] for p in told["parts"]}
    assert parts == {"user code", "system calls", "waiting"}


def test_bytes_that_a_command_reads_and_writes_are_measured(results: Any) -> None:
    size = len(Path("/etc/passwd").read_bytes())
    for metric in ("read", "written"):
        assert cell_of(results, metric)["baseline_value"]["centre"] >= size
    assert cell_of(results, "written")["verdict"] == "equivalent"


def test_report_names_counters_and_their_cost(results: Any) -> None:
    inside = results["inside"]
    assert inside["sample_every"] == 0.2
    assert 0 < inside["sampling"]["share_of_a_core"] < 0.5
    assert inside["perf_events"] or inside["perf_events_absent"]
    assert inside["energy"] or inside["energy_absent"]
    directory = Path(results["results_dir"])
    page, text = (directory / f"report.{form}" for form in ("html", "md"))
    assert "Counted inside the run" in page.read_text() and "take the CPU quota out" in text.read_text()


def test_trying_without_the_quota_helps(results: Any, tmp_path: Path) -> None:
    asked = ("try", results["results_dir"], "--results", str(tmp_path), "--max-blocks", BLOCKS, "--seed", "3")
    plan = run(*asked, "--dry-run", "--json")
    assert plan and not list(tmp_path.iterdir())
    told = run(*asked, "--json")["try"]
    assert told["helps"] is True, told
    assert told["verdict"] == "material: faster" and told["effect"]["high"] < -0.3
    assert told["change"].startswith("take the CPU quota out")


def test_try_says_if_there_is_nothing_to_try(results: Any, tmp_path: Path) -> None:
    done = nearmetal(dict(os.environ), "try", results["results_dir"], "--cell", "spin.user")
    assert done.returncode == 2 and "nothing to try for 'spin.user'" in done.stderr
    assert "Traceback" not in done.stderr

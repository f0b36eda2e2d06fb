"""What the tests of engines share: a study of short rounds, and what a results directory says of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NEARMETAL = [sys.executable, "-m", "nearmetal"]
STUDY = """\
name: short
question: What does a container cost?
environments:
  native: {backend: native, attachment: host, placements: [1x1]}
  namespaces: {backend: namespaces, attachment: host, placements: [1x1]}
placements:
  1x1: {instances: 1, tasks: 1}
workloads:
  ep: {kernel: ep, class: S}
  start: {subject: start}
design: {baseline: native, margin: 3 %, slices: 2, target_width: 0.01 %}
"""
TRIALS = 3  # in a round: both environments, and the baseline once more
#: After so many seconds a silent worker or coordinator counts as lost.
LEASE = "6s"
#: FORCE=--force lets a developer run these tests beside other runs, whose figures then say nothing.
FORCE = os.environ.get("FORCE", "").split()


def nearmetal(*words: str, cwd: Path, timeout: float = 1800) -> subprocess.CompletedProcess[str]:
    """Run the tool as a user would."""
    return subprocess.run(
        [*NEARMETAL, *words], cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False
    )


def started(*words: str, cwd: Path) -> subprocess.Popen[str]:
    """Start the tool and leave it running."""
    return subprocess.Popen(
        [*NEARMETAL, *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def on(engine: str, blocks: int, *more: str, workers: int = 2) -> list[str]:
    """The words of a run with workers of an engine."""
    return [
        *("run", "short.yaml", "--seed", "5", "--json", "--max-blocks", str(blocks)),
        *("--engine", engine, "--workers", str(workers), "--lease", LEASE, *more, *FORCE),
    ]


def again(engine: str, blocks: int, *more: str, workers: int = 2) -> list[str]:
    """The words that resume the run."""
    return ["resume", *on(engine, blocks, *more, workers=workers)[4:]]


def directory(cwd: Path) -> Path:
    return next((cwd / "results").iterdir())


def records(cwd: Path) -> list[Any]:
    """Whole lines of trials of the only run below cwd."""
    text = "".join(p.read_text() for p in (cwd / "results").glob("*/trials/*.jsonl"))
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def claims(cwd: Path, state: str) -> list[tuple[int, int, str]]:
    """Block, attempt and run of the claims to rounds that are in a state."""
    found = []
    for file in (cwd / "results").glob("*/claims/[1-9]*.json"):
        data = json.loads(file.read_text())
        block, attempt = map(int, file.name.split(".")[:2])
        if data["state"] == state:
            found.append((block, attempt, str(data["run"])))
    return sorted(found)


def worker_of(cwd: Path, run: str) -> int:
    """The process of the worker with this label, by the file of the machine's lock."""
    from nearmetal.host.lock import living_runs

    return next(r.pid for r in living_runs() if r.run == run)


def require_whole(cwd: Path, output: str, blocks: int) -> Any:
    """Check that each of so many rounds counts once, and return the result of the run."""
    result = json.loads(output)
    assert {c["n"] for c in result["cells"]} == {blocks}
    whole = Counter((r["block"], r["attempt"], r["run"]) for r in records(cwd))
    complete = {block for (block, _, _), count in whole.items() if count == TRIALS}
    assert complete >= set(range(1, blocks + 1)), "nothing is lost"
    assert max(whole.values()) == TRIALS, "no attempt has a trial twice"
    status = json.loads(nearmetal("status", "--json", cwd=cwd).stdout)
    assert status["blocks"] == blocks and status["missing_blocks"] == []
    assert set(status["nodes"]) >= {run for _, _, run in whole}, "every worker's machine is described"
    return result


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A directory with the study; afterwards nothing of ours is left on the machine."""
    (tmp_path / "short.yaml").write_text(STUDY)
    yield tmp_path
    runs = {r["run"] for r in records(tmp_path)}
    left = json.loads(nearmetal("clean", "--dry-run", "--json", cwd=tmp_path).stdout)["found"]
    assert [item for item in left if any(run in str(item) for run in runs)] == []

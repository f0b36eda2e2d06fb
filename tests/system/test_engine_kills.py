"""Workers and coordinators of one run, killed again and again: no round is lost, and none counts twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from tests.patience import until
from tests.system.engine_runs import (
    FORCE,
    LEASE,
    NEARMETAL,
    TRIALS,
    again,
    claims,
    directory,
    here,
    nearmetal,
    on,
    records,
    started,
)

from nearmetal.host.lock import living_runs
from nearmetal.run.workers.block_states import MAX_ATTEMPTS

pytestmark = [pytest.mark.apart]
__all__ = ["here"]
#: KILLS=20 lets a developer try this in less time.
KILLS = int(os.environ.get("KILLS", "100"))
COORDINATOR_EVERY = 25
"""Every so many kills the coordinator is killed."""


def ended(label: str) -> bool:
    return label not in {run.run for run in living_runs()}


def worker(cwd: Path, cpu: int) -> subprocess.Popen[bytes]:
    """Start a worker as an engine does. Its output is kept beside that of the others."""
    log = directory(cwd) / "workers" / "later.out"
    words = ["run-block", str(directory(cwd)), "--json", "--lease", LEASE, *FORCE]
    with log.open("ab") as out:
        argv = ["taskset", "--cpu-list", str(cpu), *NEARMETAL, *words]
        return subprocess.Popen(argv, cwd=cwd, stdout=out, stderr=out, start_new_session=True)


def busy(cwd: Path) -> dict[str, int]:
    """Processes of the workers that hold a round which would not be given up if they were lost, by their
    labels."""
    holding = {label for _, attempt, label in claims(cwd, "held") if attempt < MAX_ATTEMPTS}
    return {run.run: run.pid for run in living_runs() if run.run in holding}


def test_a_hundred_kills_lose_nothing(here: Path) -> None:
    drawn, cpus = random.Random(7), sorted(os.sched_getaffinity(0))[:2]
    own: list[subprocess.Popen[bytes]] = []
    run = started(*on("local", 100_000), cwd=here)
    for kill in range(1, KILLS + 1):
        found = until(lambda: busy(here))
        if kill % COORDINATOR_EVERY == 0:
            run.kill()
            run.communicate(timeout=600)
            until(lambda: not busy(here), "the workers end without a coordinator")
            for process in own:
                process.wait(600)
            until(lambda: resumable(here), "its lease ends")
            run = started(*again("local", 100_000), cwd=here)
            continue
        label, pid = drawn.choice(sorted(found.items()))
        cpu = min(os.sched_getaffinity(pid))
        os.kill(pid, signal.SIGKILL)
        until(partial(ended, label))
        own.append(worker(here, cpu if cpu in cpus else cpus[0]))
        assert run.poll() is None, run.communicate()
    until(lambda: busy(here), "a coordinator that was just started is at work")
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=600)
    assert run.returncode == 130, said
    for process in own:
        process.wait(600)
    last = max(r["block"] for r in records(here)) + 4
    done = nearmetal(*again("local", last), cwd=here)
    assert done.returncode == 0, done.stderr
    require_each_once(here, done.stdout)
    nearmetal("clean", cwd=here)


def resumable(cwd: Path) -> bool:
    """Whether the claim of the killed coordinator has ended."""
    files = (directory(cwd) / "coordinator").glob("0.*.json")
    newest = max(files, key=lambda p: int(p.name.split(".")[1])).stat().st_mtime
    clock = directory(cwd) / "clock"
    clock.touch()
    ended = clock.stat().st_mtime - newest > float(LEASE.rstrip("s"))
    clock.unlink()
    return ended


def require_each_once(cwd: Path, output: str) -> None:
    """Check that each round up to the last counts once."""
    result = json.loads(output)
    status = json.loads(nearmetal("status", "--json", cwd=cwd).stdout)
    assert status["missing_blocks"] == []
    attempts: dict[int, dict[tuple[int, str], int]] = {}
    for (block, attempt, run), n in Counter(
        (r["block"], r["attempt"], r["run"]) for r in records(cwd)
    ).items():
        attempts.setdefault(block, {})[attempt, run] = n
    assert max(n for found in attempts.values() for n in found.values()) == TRIALS, "no trial is there twice"
    whole = {block for block, found in attempts.items() if TRIALS in found.values()}
    counted = set(range(1, result["blocks"] + 1))
    assert whole >= counted, "nothing is lost"
    assert {c["n"] for c in result["cells"]} == {len(counted)}
    killed = len(claims(cwd, "held"))
    print(
        f"{KILLS} kills, {killed} rounds lost with their worker and run again, {len(counted)} rounds counted"
    )
    assert killed > KILLS / 3, "most kills met a round"

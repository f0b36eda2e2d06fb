"""Several workers on this machine, killed, stopped and told to end: nothing is lost, and nothing counts
twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.patience import until
from tests.system.engine_runs import (
    TRIALS,
    again,
    claims,
    directory,
    here,
    nearmetal,
    on,
    records,
    require_whole,
    started,
    worker_of,
)

pytestmark = [pytest.mark.more]
__all__ = ["here"]


@pytest.fixture(autouse=True)
def two_cpus() -> None:
    assert len(os.sched_getaffinity(0)) > 1, "two workers need two CPUs"


def test_two_workers_share_the_rounds(here: Path) -> None:
    done = nearmetal(*on("local", 10), cwd=here)
    assert done.returncode == 0, done.stderr
    require_whole(here, done.stdout, 10)
    runs = {r["run"] for r in records(here)}
    assert len(runs) == 2, "both ran rounds"
    assert {r["attempt"] for r in records(here)} == {1}
    places = {r["run"]: {tuple(p["cpus"]) for p in r["places"]} for r in records(here)}
    assert len(set.union(*places.values())) == 2, "each has CPUs of its own"
    assert len(list((directory(here) / "trials").iterdir())) == 2


def test_more_workers_than_cpus_are_refused(here: Path) -> None:
    done = nearmetal(*on("local", 4, workers=1000), cwd=here)
    assert done.returncode == 2 and "do not fit on this machine" in done.stderr


def held_after(here: Path, rounds: int) -> tuple[int, int, str]:
    """Wait until so many rounds are done, and return a claim to another that was held then."""
    return until(lambda: claims(here, "held") if len(claims(here, "done")) >= rounds else [])[0]


def in_the_middle(here: Path, claim: tuple[int, int, str]) -> bool:
    """Whether a worker that does nothing any more, killed or stopped, has not ended the round of a claim."""
    whole = Counter((r["block"], r["attempt"], r["run"]) for r in records(here))[claim] == TRIALS
    return claim in claims(here, "held") and not whole


@pytest.mark.apart
def test_a_killed_worker_loses_nothing(here: Path) -> None:
    run = started(*on("local", 30), cwd=here)
    block, attempt, label = held_after(here, 4)
    os.kill(worker_of(here, label), signal.SIGKILL)
    lost = in_the_middle(here, (block, attempt, label))
    output, said = run.communicate(timeout=600)
    assert run.returncode == 0, said
    require_whole(here, output, 30)
    if lost:  # else it had ended the round before the signal came
        assert f"round {block} was lost with its worker" in said
        assert (block, attempt + 1) in [(b, a) for b, a, _ in claims(here, "done")]
    nearmetal("clean", cwd=here)


@pytest.mark.apart
def test_a_worker_that_is_told_to_end_gives_its_round_back(here: Path) -> None:
    run = started(*on("local", 30), cwd=here)
    label = held_after(here, 4)[2]
    pid = worker_of(here, label)
    os.kill(pid, signal.SIGTERM)
    output, said = run.communicate(timeout=600)
    assert run.returncode == 0, said
    require_whole(here, output, 30)
    assert "was lost" not in said and label not in [r for _, _, r in claims(here, "held")]


@pytest.mark.apart
def test_a_killed_coordinator_is_resumed(here: Path) -> None:
    # This lease does not end while the command starts that is refused, beside two workers that measure.
    run = started(*on("local", 300, "--lease", "40s"), cwd=here)
    until(lambda: len(claims(here, "done")) >= 4)
    run.kill()
    run.communicate(timeout=600)
    busy = nearmetal(*again("local", 12), cwd=here)
    assert busy.returncode == 3 and "coordinates this run" in busy.stderr, "its lease has not ended"
    until(lambda: "ended" in nearmetal("status", cwd=here).stdout and not living(here), "the workers end")
    before = records(here)
    blocks = max(r["block"] for r in before) + 4
    done = nearmetal(*again("local", blocks), cwd=here)
    assert done.returncode == 0, done.stderr
    require_whole(here, done.stdout, blocks)
    after = records(here)
    assert all(r in after for r in before), "what was recorded stays as it was"


def living(here: Path) -> bool:
    return "running" in nearmetal("status", cwd=here).stdout


@pytest.mark.apart
def test_a_late_result_of_a_round_that_was_given_to_another_counts_once(here: Path) -> None:
    """The worker stands still as a machine does that is cut off, and goes on when its round is done."""
    run = started(*on("local", 300), cwd=here)
    while True:
        block, attempt, label = held_after(here, 4)
        pid = worker_of(here, label)
        os.kill(pid, signal.SIGSTOP)
        if in_the_middle(here, (block, attempt, label)):
            break
        os.kill(pid, signal.SIGCONT)  # it had ended the round before the signal came
    try:
        until(lambda: (block, attempt + 1) in [(b, a) for b, a, _ in claims(here, "done")])
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: (block, attempt, label) in claims(here, "done"))
    time.sleep(1)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=600)
    assert run.returncode == 130, said
    blocks = json.loads(nearmetal("status", "--json", cwd=here).stdout)["blocks"]
    whole = {r["block"] for r in records(here)}
    assert blocks <= len(whole)
    analysis = json.loads(nearmetal("analyze", "--json", cwd=here).stdout)
    assert {c["n"] for c in analysis["cells"]} == {blocks}
    nearmetal("clean", cwd=here)


@pytest.mark.apart
def test_cancelled_workers_end_and_the_run_can_go_on(here: Path) -> None:
    run = started(*on("local", 300), cwd=here)
    until(lambda: len(claims(here, "done")) >= 2)
    assert "will end" in nearmetal("cancel", cwd=here).stdout
    _, said = run.communicate(timeout=600)
    assert run.returncode == 4 and "all workers have ended" in said
    blocks = max(r["block"] for r in records(here)) + 2
    done = nearmetal(*again("local", blocks), cwd=here)
    assert done.returncode == 0, done.stderr
    require_whole(here, done.stdout, blocks)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[None]:
    """Let the results directory be a small file system."""
    (tmp_path / "results").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", tmp_path / "results"], check=True)
    yield
    subprocess.run(["umount", tmp_path / "results"], check=True)


@pytest.mark.apart
def test_a_full_shared_directory_ends_the_run_and_loses_nothing(small: None, here: Path) -> None:
    run = started(*on("local", 300), cwd=here)
    until(lambda: len(claims(here, "done")) >= 4)
    filler = directory(here) / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 12)):
            pass
    _, said = run.communicate(timeout=600)
    assert run.returncode in (3, 4) and "no space left" in said and "Traceback" not in said, said
    until(lambda: not living(here), "the workers end")
    filler.unlink()
    logs = "".join(file.read_text() for file in (directory(here) / "workers").glob("*.out"))
    assert "Traceback" not in logs
    before = records(here)
    blocks = max(r["block"] for r in before) + 4
    done = nearmetal(*again("local", blocks), cwd=here)
    assert done.returncode == 0, done.stderr
    require_whole(here, done.stdout, blocks)
    assert all(r in records(here) for r in before), "what was recorded stays as it was"

"""The real thing from the command line: quick, killed and resumed, refused, interrupted, cleaned."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import one_fits, until

from nearmetal.model.result import Verdict

NEARMETAL = [str(Path(sys.executable).parent / "nearmetal")]
#: A run that is quick even on a busy machine: few slices, few blocks.
STUDY = """\
name: small
question: What does a container cost two small kernels?
environments:
  native: {backend: native, attachment: host, placements: [1x2]}
  namespaces: {backend: namespaces, attachment: veth-bridge, placements: [1x2, 2x1]}
placements:
  1x2: {instances: 1, tasks: 2}
  2x1: {instances: 2, tasks: 1}
workloads:
  ep: {kernel: ep, class: S}
  latency: {kernel: pingpong, bytes: 8 B}
  start: {subject: start}
design: {baseline: native, margin: 3 %, slices: 2}
"""
#: Does not end before it is stopped, however slow the test is.
ENDLESS = ("--max-blocks", "100000")
#: What a run says whose time is used up before its first block.
NO_ROUND = "no round was measured in that time"


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


def left_behind(cwd: Path) -> list[Any]:
    """What `nearmetal clean --dry-run` finds."""
    found: list[Any] = json.loads(nearmetal("clean", "--dry-run", "--json", cwd=cwd).stdout)["found"]
    return found


def trial_lines(cwd: Path) -> list[Any]:
    """Whole lines of trials of the only run below cwd."""
    text = "".join(p.read_text() for p in (cwd / "results").glob("*/trials/*.jsonl"))
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A directory with the small study; afterwards nothing of ours is left on the machine."""
    (tmp_path / "small.yaml").write_text(STUDY)
    yield tmp_path
    assert left_behind(tmp_path) == []


def test_a_run_gives_cells_report_and_leaves_nothing(here: Path) -> None:
    done = nearmetal("run", "small.yaml", "--max-blocks", "3", "--json", "--seed", "11", cwd=here)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    cells = {(c["arm"], c["workload"], c["metric"]): c for c in result["cells"]}
    assert ("namespaces/1x2", "ep", "rate") in cells
    assert ("namespaces/2x1", "latency", "latency") in cells
    assert ("namespaces/2x1", "start", "start") in cells
    wanted = {
        "environment",
        "placement",
        "attachment",
        "baseline",
        "workload",
        "metric",
        "unit",
        "n",
        "overhead",
        "low",
        "high",
        "margin",
        "verdict",
    }
    assert all(wanted <= set(c) for c in result["cells"])
    assert all(c["n"] == 3 for c in result["cells"])
    # Three blocks carry no verdict, whatever they show.
    assert {c["verdict"] for c in result["cells"]} == {"no verdict yet"}
    directory = here / result["results_dir"]
    assert (directory / "report.html").stat().st_size > 30_000
    records = trial_lines(here)
    assert len(records) == 3 * 4
    across = next(r for r in records if r["arm"] == "namespaces/2x1")
    assert across["transport"]["btl"] == "tcp,self"
    assert len({p["namespaces"]["net"] for p in across["places"]}) == 2
    assert [p["cpus"] for p in sorted(across["places"], key=lambda p: p["rank"])] == [[0], [1]]
    inside = next(r for r in records if r["arm"] == "namespaces/1x2")
    native = next(r for r in records if r["arm"] == "native/1x2")
    for kind in ("mnt", "net", "pid", "ipc", "uts"):
        assert inside["places"][0]["namespaces"][kind] != native["places"][0]["namespaces"][kind]
    for word in ("analyze", "status", "report", "export"):
        again = nearmetal(word, result["results_dir"], cwd=here)
        assert again.returncode == 0, again.stderr
    sums = json.loads(nearmetal("status", "--json", cwd=here).stdout)["checksums"]
    assert sums["checked"] > 5 and not (sums["changed"] or sums["missing"] or sums["unlisted"])
    (directory / "plan.json").write_text((directory / "plan.json").read_text() + " ")
    assert "when it was closed: plan.json" in nearmetal("status", cwd=here).stdout


@pytest.mark.more
def test_killed_anywhere_it_resumes_with_the_block_in_flight(here: Path) -> None:
    run = started("run", "small.yaml", *ENDLESS, "--seed", "5", cwd=here)
    until(lambda: len(trial_lines(here)) >= 4)
    time.sleep(0.3)  # into the middle of a block
    run.send_signal(signal.SIGKILL)
    run.communicate(timeout=600)
    before = trial_lines(here)
    blocks = max(r["block"] for r in before) + 2
    resumed = nearmetal("resume", "--max-blocks", str(blocks), "--json", cwd=here)
    assert resumed.returncode == 0, resumed.stderr
    assert all(c["n"] == blocks for c in json.loads(resumed.stdout)["cells"])
    after = trial_lines(here)
    assert after[: len(before)] == before, "what was recorded stays as it was"
    torn = {r["block"] for r in after if r["attempt"] > 1}
    assert len(torn) <= 1, "at most the block in flight is run again"
    nearmetal("clean", cwd=here)


@pytest.mark.more
def test_single_blocks_are_run_by_number_and_as_values(here: Path) -> None:
    assert nearmetal("run", "small.yaml", "--max-blocks", "1", "--seed", "5", cwd=here).returncode == 0
    directory = str(next((here / "results").iterdir()))
    by_number = nearmetal("run-block", directory, "4", "--json", cwd=here)
    assert by_number.returncode == 0, by_number.stderr
    told = json.loads(by_number.stdout)
    assert (told["block"], told["attempt"], told["trials"], told["failed"]) == (4, 1, 4, 0)
    value = nearmetal("run-block", directory, "4", "7", "--dry-run", "--json", cwd=here).stdout
    as_values = subprocess.run(
        [*NEARMETAL, "run-block", directory, "--stdin"],
        input=value,
        cwd=here,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split(":")[0] for line in as_values.stdout.splitlines()] == ["round 4", "round 7"]
    made = [(r["block"], r["attempt"]) for r in trial_lines(here)]
    assert {place: made.count(place) for place in made} == {(1, 1): 4, (4, 1): 4, (4, 2): 4, (7, 1): 4}
    status = json.loads(nearmetal("status", directory, "--json", cwd=here).stdout)
    assert status["blocks"] == 1, "rounds 4 and 7 wait for those before them"
    resumed = nearmetal("resume", directory, "--max-blocks", "5", "--json", cwd=here)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["blocks"] == 5, "of a block that ran twice one counts"


def test_ctrl_c_saves_and_says_how_to_go_on(here: Path) -> None:
    run = started("run", "small.yaml", *ENDLESS, cwd=here)
    until(lambda: len(trial_lines(here)) >= 4)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=600)
    assert run.returncode == 130
    assert "nearmetal resume" in said
    assert left_behind(here) == []


@pytest.mark.more
def test_a_second_run_is_refused_and_names_the_first(here: Path) -> None:
    run = started("run", "small.yaml", *ENDLESS, cwd=here)
    try:
        until(lambda: len(trial_lines(here)) >= 1)
        second = nearmetal("run", "small.yaml", "--max-blocks", "3", cwd=here)
        assert second.returncode == 3
        assert str(run.pid) in second.stderr
    finally:
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=600)


def test_mistakes_start_nothing(here: Path) -> None:
    (here / "bad.yaml").write_text(STUDY.replace("attachment: host", "atachment: host").replace("3 %", "3"))
    done = nearmetal("run", "bad.yaml", cwd=here)
    assert done.returncode == 2
    assert "bad.yaml:4:" in done.stderr
    assert 'did you mean "attachment"' in done.stderr
    assert "nothing was started" in done.stderr
    assert not (here / "results").exists()
    for words in (["run", "absent.yaml"], ["quick", "--time", "soon"], ["weigh", "native"], ["nonsense"]):
        wrong = nearmetal(*words, cwd=here)
        assert wrong.returncode == 2, (words, wrong.stderr)
        assert "Traceback" not in wrong.stderr


@pytest.mark.more
def test_one_cpu_is_enough_for_what_sends_no_messages(here: Path) -> None:
    """Two ranks on one CPU would take turns by spinning: quick then weighs one."""
    cpu = str(min(os.sched_getaffinity(0)))
    argv = ["taskset", "-c", cpu, *NEARMETAL, "quick", "--time", "5m", "--max-blocks", "1", "--json"]
    done = subprocess.run(argv, cwd=here, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0 and "one CPU" in done.stderr, done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert {c["workload"] for c in cells} >= {"ep", "cg", "is", "stream-2m", "stream-big", "start"}


def test_a_command_is_weighed_without_a_file(here: Path) -> None:
    command = ["/bin/sh", "-c", "echo $(cat small.yaml)"]

    def weighed(time: str) -> subprocess.CompletedProcess[str]:
        return nearmetal("weigh", "native", "namespaces", "--time", time, "--json", "--", *command, cwd=here)

    # A busy machine may need longer for a first block than the time allows, and then measures nothing.
    times = iter(("6s", "60s", "10m"))
    done = one_fits(lambda: weighed(next(times)), lambda d: NO_ROUND not in d.stderr, attempts=3)
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert {c["metric"] for c in cells} >= {"wall", "max_rss"}
    assert all(c["n"] >= 1 for c in cells)


@pytest.mark.more
def test_the_disk_is_full(here: Path) -> None:
    """A results directory on a file system of 1 MiB: the stop is clear, and what was recorded is whole."""
    small = here / "results"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        filler = small / "filler"
        filler.write_bytes(
            b"x" * (1 << 20) if os.statvfs(small).f_bavail * 4096 > (1 << 20) else b"x" * (900 << 10)
        )
        done = nearmetal("run", "small.yaml", "--max-blocks", "3", cwd=here)
        assert done.returncode == 4, done.stderr
        assert "no space" in done.stderr.lower()
        assert "Traceback" not in done.stderr
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_ctrl_c_in_the_rehearsal_measured_nothing_and_leaves_nothing(here: Path) -> None:
    run = started("run", "small.yaml", cwd=here)
    until(lambda: list((here / "results").glob("*/study.yaml")))
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=600)
    assert run.returncode == 130, said
    assert "Traceback" not in said
    assert left_behind(here) == []


@pytest.mark.more
def test_the_parity_audit_compares_all_arms_in_plain_trials_too(here: Path) -> None:
    done = nearmetal("run", "small.yaml", "--mode", "plain", "--max-blocks", "1", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    directory = here / json.loads(done.stdout)["results_dir"]
    facts = json.loads((directory / "provenance.json").read_text())["parity"]["facts"]
    assert set(facts) == {"native/1x2", "namespaces/1x2", "namespaces/2x1"}
    assert all(facts.values())


def test_a_reader_that_has_gone_ends_it_quietly(here: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*NEARMETAL, "list"], cwd=here, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.more
def test_quick_as_a_whole_is_killed_and_resumed(tmp_path: Path) -> None:
    """With the time that it usually takes; with more where a busy machine measures no block in that."""
    times = iter(("90s", "15m", "60m"))
    here = one_fits(
        lambda: quick_killed_in_a_block(tmp_path, next(times)), lambda h: h is not None, attempts=3
    )
    assert here is not None
    before = trial_lines(here)
    resumed = nearmetal("resume", "--json", cwd=here, timeout=3000)
    assert resumed.returncode == 0, resumed.stderr
    result = json.loads(resumed.stdout)
    assert trial_lines(here)[: len(before)] == before, "what was recorded stays as it was"
    assert {c["workload"] for c in result["cells"]} == {
        *("stream-2m", "stream-2m-4k", "stream-big", "ep", "cg", "is", "latency", "bandwidth", "start")
    }
    blocks = {r["block"] for r in trial_lines(here)}
    assert all(1 <= c["n"] <= len(blocks) for c in result["cells"])
    assert {c["verdict"] for c in result["cells"]} <= set(Verdict)
    page = (here / result["results_dir"] / "report.html").read_text()
    assert "Noise floor" in page and "What does a container cost an HPC workload" in page
    assert not json.loads(nearmetal("status", "--json", cwd=here).stdout)["checksums"]["changed"]
    nearmetal("clean", cwd=here)
    assert left_behind(here) == []


def quick_killed_in_a_block(place: Path, time: str) -> Path | None:
    """Return where quick was killed after its first block, or None if it ended before that."""
    here = place / time
    here.mkdir()
    run = started("quick", "--time", time, cwd=here)
    until(lambda: len(trial_lines(here)) >= 5 or run.poll() is not None, within=3000)
    ended = run.poll() is not None
    run.kill()
    run.communicate(timeout=600)
    return None if ended else here

"""Studies that move guests and processes, from the command line: their rows, what is recorded beside them,
methods that are compared, and what a baseline that cannot move says."""

from __future__ import annotations

import fcntl
import json
import subprocess
from pathlib import Path

import pytest
from tests.contract.guests import NEEDED, kernel
from tests.system.test_quick import NEARMETAL, left_behind, nearmetal, trial_lines

from nearmetal.environments import Unavailable
from nearmetal.host import LocalHost
from nearmetal.node.criu import find_criu

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
    assert done.stderr.count("note: postcopy loses the instance if the connection breaks") == 1
    line = next(line for line in trial_lines(tmp_path) if not line["aa"])
    assert line["status"] == "ok", line
    rows = {r["metric"]: r for r in line["rows"] if r["workload"] == "moved"}
    assert set(rows) == {
        *("total", "stopped", "downtime", "silence", "unanswered", "delay", "tcp_silence"),
        *("slowdown", "sent"),
    }
    assert len(rows["total"]["values"]) == 2 and min(rows["total"]["values"]) > 0
    assert max(rows["stopped"]["values"]) <= max(rows["total"]["values"])
    facts = line["facts"]["moved"]
    assert facts["method"] == "postcopy" and facts["program"] == "went on with no wrong page"
    assert facts["floor"]["lost"] == 0 and facts["floor"]["period"] >= 0.5e-3
    phases = {"connect", "dump", "copy", "restore", "thaw", "removal"}
    assert [set(m["phases"]) for m in facts["moves"]] == [phases] * 2
    assert set(rows["total"]["parts"]) == {f"step.{name}" for name in phases}
    assert min(rows["unanswered"]["values"] + rows["delay"]["values"]) >= facts["floor"]["period"]
    assert facts["tcp_floor"]["requests"] > 10 and facts["tcp_floor"]["lost"] == 0
    for tcp, move in zip(rows["tcp_silence"]["values"], facts["moves"], strict=True):
        assert facts["tcp_floor"]["rest"] <= tcp <= max(move["tcp_gap"], facts["tcp_floor"]["rest"])
    assert json.loads(done.stdout)["results_dir"] and left_behind(tmp_path) == []


@pytest.mark.apart
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
        ("baseline: vm", "baseline: bare", "native has only the methods criu"),
        ("method: postcopy", "method: criu", "qemu has only the methods precopy, offline"),
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


COMPARED = """
name: compared
environments:
  bare: {backend: native, placements: [1x1]}
  vm:
    backend: qemu
    image: debian-kernel
    attachment: veth-bridge
    placements: [1x1]
    guest: {start: restored, boot_timeout: 30 min}
placements:
  1x1: {instances: 1, tasks: 1}
workloads:
  moved:
    subject: migrate
    methods: [precopy, criu]
    count: 1
    memory: 128 MiB
    working_set: 4 MiB
    matrix: {dirty_rate: [1 MiB/s, 0 B/s]}
    downtime_limit: 1 s
design: {baseline: bare, mode: plain, margin: 10 %, seed: 1}
"""


@pytest.mark.apart
def test_methods_are_compared_and_those_that_there_are_not_are_named(tmp_path: Path) -> None:
    """The baseline is the first method of its environment that there is; the results directory is read again
    with the same one. A file that the caller has locked is not part of the checkpoint."""
    assert kernel()
    if isinstance(find_criu(LocalHost()), Unavailable):
        assert nearmetal("image", "build", "criu", cwd=tmp_path, timeout=900).returncode == 0
    (tmp_path / "s.yaml").write_text(COMPARED)
    with (tmp_path / "locked").open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        done = subprocess.run(
            [*NEARMETAL, "run", "s.yaml", "--max-blocks", "1", "--json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=900,
            pass_fds=(locked.fileno(),),
        )
    assert done.returncode == 0, done.stderr
    assert "bare-precopy is left out: native has only the methods criu" in done.stderr
    assert "vm-criu is left out: qemu has only the methods precopy" in done.stderr
    lines = trial_lines(tmp_path)
    assert {(line["arm"], line["status"]) for line in lines} == {
        ("bare-criu/1x1", "ok"),
        ("vm-precopy/1x1", "ok"),
    }, lines
    for line in lines:
        assert {r["workload"] for r in line["rows"]} == {"moved-1MiB_s", "moved-0B_s"}
        common = {"total", "stopped", "slowdown", "sent"}
        probed = {"downtime", "silence", "unanswered", "delay", "tcp_silence"}
        own = probed if line["arm"].startswith("vm") else set()
        assert {r["metric"] for r in line["rows"]} == common | own
        sent = next(r for r in line["rows"] if r["metric"] == "sent")["values"][0]
        assert 50 << 20 < sent < 400 << 20, "the process or the guest has 128 MiB"
        assert "start.first_instruction" not in line["phases"], "nothing but what is moved is started"
    found = json.loads(done.stdout)
    assert {n["environment"]: n["reason"].partition(",")[0] for n in found["not_measured"]} == {
        "bare-precopy": "native has only the methods criu",
        "vm-criu": "qemu has only the methods precopy",
    }
    assert {(c["arm"], c["baseline"]) for c in found["cells"]} == {("vm-precopy/1x1", "bare-criu/1x1")}
    assert {(c["workload"], c["metric"]) for c in found["cells"]} == {
        (f"moved-{rate}", metric)
        for rate in ("1MiB_s", "0B_s")
        for metric in ("total", "stopped", "slowdown", "sent")
    }
    again = nearmetal("analyze", found["results_dir"], "--json", cwd=tmp_path, timeout=300)
    assert again.returncode == 0 and json.loads(again.stdout)["cells"] == found["cells"]
    assert left_behind(tmp_path) == []

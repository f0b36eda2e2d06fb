"""What has been killed is gone: no process of its group lives once the call returns."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.patience import one_fits

from nearmetal.host.local import LocalHost

SLOW = "import time; kept = b'x' * 300_000_000; print('started', flush=True); time.sleep(600)"
"""A program that takes some milliseconds to end, because it has memory to give back."""
PARENT = f'echo $$; {sys.executable} -c "{SLOW}" & wait'


def members(group: int) -> list[str]:
    """Return the states of the living processes of a group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, other = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(other) == group and state not in "ZX":
                found.append(state)
    return found


def test_no_child_outlives_a_kill(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = LocalHost().start(["sh", "-c", PARENT], stdout=out, stderr=tmp_path / "err")
    while "started" not in out.read_text():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    assert members(process.pid) == []


def test_no_child_outlives_a_time_limit() -> None:
    ended = one_fits(
        lambda: LocalHost().run(["sh", "-c", PARENT], timeout=1), lambda d: "started" in d.stdout, attempts=60
    )
    assert ended.returncode == 124
    assert members(int(ended.stdout.split()[0])) == []

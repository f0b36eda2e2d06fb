"""Mistakes on the command line, and programs that cannot run: one clear reason, early, with its exit code."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.system.test_quick import left_behind, nearmetal

pytestmark = pytest.mark.more

PROGRAM = "#!/bin/sh\nsleep 0.02\n"
ONLY_NATIVE = "#!/bin/sh\ncase $(hostname) in nm*) echo 'no licence here' >&2; exit 3;; esac\nsleep 0.02\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory where instances have one of their own, with two programs."""
    for name, text in (("program.sh", PROGRAM), ("only-native.sh", ONLY_NATIVE)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["weigh", "native", "namespaces", "--", "./nosuch"], 2, "there is no ./nosuch"),
        (["weigh", "native", "namespaces", "--dry-run", "--", "./nosuch"], 2, "there is no ./nosuch"),
        (["weigh", "native", "namespaces", "--dry-run", "--", "no-such-program"], 2, "is not installed here"),
        (
            ["weigh", "native", "namespaces", "--ranks", "640", "--mpi", "--dry-run", "--", "./program.sh"],
            2,
            "needs 640 CPUs",
        ),
        (["weigh", "native", "namespaces", "./program.sh"], 2, "a command stands behind --"),
        (["weigh", "native", "namespaces", "ls", "-la"], 2, "a command and its options stand behind --"),
        (["weigh", "native", "namespaces", "-w", "cg:X"], 2, 'unknown value "X"'),
        (["compare", "a b", "c"], 2, "nearmetal compare --before 'a b' --after c"),
        (["quick", "--no-such-option"], 2, "nearmetal quick --help"),
    ],
)
def test_a_mistake_ends_at_once_and_says_what_to_do(
    words: list[str], code: int, said: str, here: Path
) -> None:
    done = nearmetal(*words, cwd=here)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(shutil.which("docker") is not None, reason="Docker may work here")
def test_with_nothing_left_to_compare_nothing_is_measured(here: Path) -> None:
    done = nearmetal("weigh", "native", "docker", "--", "./program.sh", cwd=here)
    assert done.returncode == 3 and "nothing is left to compare with native" in done.stderr
    assert not (here / "results").exists()


def test_the_working_directory_is_visible_in_every_instance(here: Path) -> None:
    done = nearmetal(
        "weigh", "native", "namespaces", "--time", "6s", "--json", "--", "./program.sh", cwd=here
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["failed_trials"] == 0
    assert any(c["environment"] == "namespaces" and c["metric"] == "wall" for c in result["cells"])


def test_a_program_that_fails_in_one_environment_leaves_the_others(here: Path) -> None:
    asked = ["weigh", "native", "namespaces", "handicap", "--time", "6s", "--json", "--", "./only-native.sh"]
    done = nearmetal(*asked, cwd=here)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no licence here") == 1, "equal failures are one line"
    assert "namespaces/1x1 is left out" in done.stderr
    result = json.loads(done.stdout)
    assert {c["environment"] for c in result["cells"]} == {"handicap"}
    assert result["failed_trials"] == 0
    assert left_behind(here) == []


def test_a_program_that_fails_everywhere_else_ends_the_run(here: Path) -> None:
    done = nearmetal("weigh", "native", "namespaces", "--time", "60s", "--", "./only-native.sh", cwd=here)
    assert done.returncode == 4
    assert "nothing is left to compare with native: " in done.stderr and "no licence here" in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_every_encoding_can_show_a_result(encoding: str, here: Path) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-m", "nearmetal", "--help"], env=env, capture_output=True, cwd=here, check=False
    )
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "nearmetal", "plan", "quick"],
        env=env,
        capture_output=True,
        cwd=here,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    done.stdout.decode(encoding)

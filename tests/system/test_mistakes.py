"""Mistakes on the command line, and programs that cannot run: one clear reason, early, with its exit code."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import one_fits
from tests.system.engine_runs import records
from tests.system.test_quick import left_behind, nearmetal

pytestmark = [pytest.mark.more, pytest.mark.beside]

PROGRAM = "#!/bin/sh\nsleep 0.02\n"
STUDY = """\
name: two-rounds
environments:
  native: {backend: native, placements: [one]}
  namespaces: {backend: namespaces, placements: [one]}
placements: {one: {instances: 1, tasks: 1}}
workloads: {nap: {command: [./program.sh]}}
design: {baseline: native}
"""
TWO_ROUNDS = ["run", "study.yaml", "--max-blocks", "2", "--time", "60s"]
"""Measures too little for any verdict, so that a result suggests how to go on."""
ONLY_NATIVE = "#!/bin/sh\ncase $(hostname) in nm*) echo 'no licence here' >&2; exit 3;; esac\nsleep 0.02\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory where instances have one of their own, with two programs and a study."""
    for name, text in (("program.sh", PROGRAM), ("only-native.sh", ONLY_NATIVE)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path


def environments_timed(cwd: Path) -> set[str]:
    """The environments that have a wall time in the records of the only run below cwd.

    Unlike the cells of a result, which need several rounds, one round on a busy machine gives it.
    """
    return {
        record["arm"].partition("/")[0]
        for record in records(cwd)
        if any(row["metric"] == "wall" and row["values"] for row in record["rows"])
    }


def weighed(cwd: Path, *environments: str, program: str) -> subprocess.CompletedProcess[str]:
    """A run of weigh in which a round was measured. A busy machine may end none in the first time."""
    times = iter(("10s", "60s", "10m"))

    def run() -> subprocess.CompletedProcess[str]:
        words = ("weigh", *environments, "--time", next(times), "--json", "--", program)
        done = nearmetal(*words, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done

    return one_fits(run, lambda done: json.loads(done.stdout)["blocks"] > 0, attempts=3)


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
        (
            ["weigh", "native", "namespaces", "./program.sh"],
            2,
            "nearmetal weigh native namespaces -- ./program.sh",
        ),
        (["weigh", "native", "namespaces", "ls", "-la"], 2, "nearmetal weigh native namespaces -- ls -la"),
        (["weigh", "native", "namespaces", "-w", "cg:X"], 2, "cg has no class 'X'"),
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


def test_with_nothing_left_to_compare_nothing_is_measured(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{here}/no-daemon.sock")
    done = nearmetal("weigh", "native", "docker", "--", "./program.sh", cwd=here)
    assert done.returncode == 3 and "nothing is left to compare with native" in done.stderr
    assert not (here / "results").exists()


def test_what_a_program_leaves_behind_does_not_hold_the_run_by_hand(here: Path) -> None:
    marker = "987654"
    words = ("weigh", "native", "namespaces", "--", "sh", "-c", f"sleep {marker} & echo begun")
    done = nearmetal(*words, cwd=here)
    assert done.returncode == 4 and "left sleep running, which was ended" in done.stderr
    assert subprocess.run(["pgrep", "-f", f"^sleep {marker}"], check=False).returncode == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root shows a copy at the same path")
def test_each_run_finds_the_working_directory_as_it_was(here: Path) -> None:
    (here / "once.sh").write_text("#!/bin/sh\nset -e\ntest ! -e result\n./program.sh >result\nrm input\n")
    (here / "once.sh").chmod(0o755)
    (here / "input").write_text("x")
    done = weighed(here, "native", "namespaces", program="./once.sh")
    assert json.loads(done.stdout)["failed_trials"] == 0
    assert environments_timed(here) == {"native", "namespaces"}
    assert (here / "input").exists() and not (here / "result").exists()
    assert left_behind(here) == []


def test_a_program_that_fails_in_one_environment_leaves_the_others(here: Path) -> None:
    done = weighed(here, "native", "namespaces", "handicap", program="./only-native.sh")
    assert done.stderr.count("no licence here") == 1, "equal failures are one line"
    assert "namespaces/1x1 is left out" in done.stderr
    assert json.loads(done.stdout)["failed_trials"] == 0
    assert environments_timed(here) == {"native", "handicap"}
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


def suggested(text: str) -> list[list[str]]:
    """The commands that a text suggests."""
    lines = re.findall(r"nearmetal (?:resume|try|analyze|plan|status)\b[^\n;)]*", text)
    return [shlex.split(line.partition(" prints ")[0])[1:] for line in lines]


def test_every_suggested_command_runs_as_it_is_printed(here: Path) -> None:
    results = here / "results of a friend"
    said = nearmetal(*TWO_ROUNDS, "--results", str(results), cwd=here)
    (run,) = results.iterdir()
    texts = [
        said.stdout,
        nearmetal("status", str(run), cwd=here).stdout,
        nearmetal("init", "my study.yaml", cwd=here).stdout,
        nearmetal("plan", "my study.yaml", cwd=here).stdout,
    ]
    commands = [words for text in texts for words in suggested(text)]
    assert {words[0] for words in commands} >= {"resume", "plan"}
    for words in commands:
        measures = words[0] in ("resume", "try")
        done = nearmetal(*words, *(["--dry-run"] if measures else []), cwd=here)
        assert done.returncode == 0, (words, done.stderr)


def test_resume_shows_the_rounds_to_come(here: Path) -> None:
    measured = nearmetal(*TWO_ROUNDS, "--json", cwd=here)
    done = json.loads(measured.stdout)["blocks"]
    plan = json.loads(nearmetal("resume", "--dry-run", "--json", cwd=here).stdout)
    assert done > 0 and plan["blocks"][0]["number"] == done + 1
    assert plan["estimated_block_seconds"] < 4.0, "as measured, not 2 runs of 1 s in each of 3 trials"


def test_unwritable_results_are_found_before_anything_is_built(here: Path) -> None:
    asked = [
        "weigh",
        "native",
        "namespaces",
        "--time",
        "5s",
        "--results",
        "/sys/kernel",
        "--",
        "./program.sh",
    ]
    done = nearmetal(*asked, cwd=here)
    assert done.returncode != 0 and "--results DIR" in done.stderr
    assert "building the network" not in done.stderr


def test_ranks_share_cpus_if_they_may(here: Path) -> None:
    ranks = str(2 * len(os.sched_getaffinity(0)))
    refused = nearmetal("kernel", "ep", "--ranks", ranks, cwd=here)
    assert refused.returncode == 2 and "--oversubscribe" in refused.stderr
    done = nearmetal("kernel", "ep", "--ranks", ranks, "--oversubscribe", cwd=here)
    assert done.returncode == 0 and "verified" in done.stdout, done.stderr

"""Every command that nearmetal suggests runs as it is printed. tests/unit/test_cli_hints.py finds them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.system.conftest import the_machine
from tests.system.test_first_use import PROGRAMS, SLOW, STUDY
from tests.system.test_quick import NEARMETAL, left_behind, nearmetal
from tests.unit.test_cli_hints import hints

# Each command takes the machine for itself, so that other runs take turns with them.
pytestmark = [pytest.mark.more, pytest.mark.beside, pytest.mark.no_run]

LINES = {
    "analyze --allX": "analyze --all RUN",
    "analyze X shows what was found": "analyze RUN",
    "analyze shows": "analyze RUN",
    "cancel": "cancel --help",
    "check": "check",
    "check --all": "check --all",
    "check --all --nodes …": "check --help",
    "check --nodes": "check --help",
    "check --nodes INVENTORY": "check --help",
    "check lists what can run here": "check",
    "check names them": "check",
    "check shows it": "check",
    "clean": "clean --dry-run",
    "compare --before X --after DIR": "compare --before RUN --after OTHER",
    "compare --before X --after X": "compare --before RUN --after OTHER",
    "checkpoint has written: it contains X": "checkpoint --help",
    "image build X": "image build debian-mpi --dry-run",
    "image build XX": "image build debian-mpi --dry-run",
    "image build debian-kernel": "image build debian-kernel --dry-run",
    "image build debian-kernel-generic": "image build debian-kernel-generic --dry-run",
    "image build debian-mpi": "image build debian-mpi --dry-run",
    "image import TREE --name ocean": "image import --help",
    "image list": "image list",
    "image list names them": "image list",
    "init": "init --dry-run",
    "init --explain": "init --explain",
    "init --explain   every key and unit": "init --explain",
    "init NAME DIR writes the study file of each part": "init containers-2015 parts --dry-run",
    "init X DIR writes a study in parts": "init containers-2015 parts --dry-run",
    "init X --scale X DIR writes files of that scale": "init containers-2015 --scale paper parts --dry-run",
    "init writes one": "init --dry-run",
    "init writes one to start from": "init --dry-run",
    "kernel X": "kernel ep --ranks 1",
    "list": "list",
    "list names them": "list",
    "man": "man",
    "migrate": "migrate --help",
    "papers": "papers",
    "papers --schema": "papers --schema",
    "papers lists": "papers",
    "plan FILE     order and time": "plan small.yaml",
    "plan X": "plan small.yaml",
    "plan X --seed X --blocks X": "plan small.yaml --seed 1 --blocks 40",
    "quick": "quick --dry-run",
    "report --figures draws all of them as files.": "report --help",
    "restore X": "restore --help",
    "resume DIR --engine ENGINE": "resume RUN --dry-run",
    "resume X": "resume RUN --dry-run",
    "resume goes on": "resume RUN --dry-run",
    "resume measures it": "resume RUN --dry-run",
    "resume then asks whether the run is trusted": "resume RUN --dry-run",
    "resume will ask for trust in this run": "resume RUN --dry-run",
    "run": "run --help",
    "run FILE      measure": "run small.yaml --dry-run",
    "run --engine": "run --help",
    "run X": "run RUN/study.yaml --dry-run",
    "run X --margin X": "run RUN/study.yaml --margin 5% --dry-run",
    "run-block DIR BLOCK --dry-run --json": "run-block RUN 5 --dry-run --json",
    "status": "status RUN",
    "status shows what runs": "status RUN",
    "try X": "try SLOW --dry-run",
    "weigh native namespaces -- ./my_app": "weigh native namespaces --dry-run -- ./program.sh",
    "weigh native runc --lifecycle checkpoint": "weigh --help",
    "weigh native namespaces -w cg": "weigh native namespaces -w cg --dry-run",
    "weigh native podman -w cg": "weigh native podman -w cg --dry-run",
}
"""What is run for each suggestion, with names for X. What measures, writes or removes is only planned."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory whose name has a space, with two runs of one study and a run that a CPU quota slows."""
    directory = tmp_path_factory.mktemp("runs") / "of a friend"
    directory.mkdir()
    for name, text in PROGRAMS.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    (directory / "small.yaml").write_text(STUDY)
    (directory / "slow.yaml").write_text(SLOW)
    for study, name, rounds in (("small", "RUN", "2"), ("small", "OTHER", "2"), ("slow", "SLOW", "8")):
        _run(directory, study, name, rounds)
    for _ in range(4):  # where much else runs, bare metal may differ from itself, and nothing is suggested
        (slow,) = (directory / "SLOW").iterdir()
        if "1 change may help" in nearmetal("analyze", "--all", str(slow), cwd=directory).stdout:
            break
        shutil.rmtree(slow)
        _run(directory, "slow", "SLOW", "8")
    yield directory
    assert left_behind(directory) == []


def _run(directory: Path, study: str, name: str, rounds: str) -> None:
    with the_machine():
        made = nearmetal("run", f"{study}.yaml", "--max-blocks", rounds, "--results", name, cwd=directory)
    assert made.returncode == 0, made.stderr


def ended(line: str, here: Path) -> tuple[int, str]:
    """Exit status and errors of a line, with RUN, OTHER and SLOW in place of results directories."""
    words = []
    for word in shlex.split(line):
        name, slash, rest = word.partition("/")
        runs = list((here / name).iterdir()) if name in ("RUN", "OTHER", "SLOW") else []
        words.append(f"{runs[0]}{slash}{rest}" if runs else word)
    with the_machine():
        done = nearmetal(*words, cwd=here)
    return done.returncode, done.stderr


ended_once = cache(ended)
"""Many suggestions are the same line."""


def test_every_suggestion_has_a_line() -> None:
    assert set(LINES) == set(hints())


@pytest.mark.parametrize("hint", LINES)
def test_a_suggested_command_runs(hint: str, here: Path) -> None:
    code, said = ended_once(LINES[hint], here)
    assert code == 0, f"{LINES[hint]}: {said}"


def test_a_run_without_rounds_names_itself_in_the_suggestion(here: Path) -> None:
    (run,) = (here / "RUN").iterdir()
    empty = here / "no rounds yet"
    empty.mkdir()
    for name in ("study.yaml", "plan.json", "provenance.json"):
        (empty / name).write_bytes((run / name).read_bytes())
    refused = nearmetal("report", str(empty), cwd=here)
    assert refused.returncode == 2, refused.stderr
    suggested = shlex.split(refused.stderr.partition("next: ")[2])
    assert suggested == ["nearmetal", "resume", str(empty)]
    planned = nearmetal(*suggested[1:], "--dry-run", "--trust", cwd=here)  # it was copied
    assert planned.returncode == 0 and "round 1\n" in planned.stdout, planned.stderr


def test_a_suggested_try_says_how_long_it_takes(here: Path) -> None:
    (slow,) = (here / "SLOW").iterdir()
    said = nearmetal("analyze", "--all", str(slow), cwd=here).stdout
    assert "1 change may help; trying it takes about 2 min: nearmetal try" in " ".join(said.split())
    line = next(row for row in said.splitlines() if "nearmetal try" in row)
    assert shlex.split(line[line.index("nearmetal try") :]) == ["nearmetal", "try", str(slow)]


@pytest.mark.parametrize("line", ["resume RUN", "try SLOW"])
def test_a_dry_run_finds_a_program_that_is_gone_as_the_run_does(line: str, here: Path) -> None:
    programs = [here / "program.sh", here / "burns.sh"]
    for program in programs:
        program.rename(program.with_suffix(".gone"))
    try:
        planned, run = (ended(f"{line} {option}", here) for option in ("--dry-run", "--time 5s"))
    finally:
        for program in programs:
            program.with_suffix(".gone").rename(program)
    assert planned == run and planned[0] == 2 and "there is no ./" in planned[1]


def test_a_dry_run_of_calibrate_finds_too_few_cpus_as_the_run_does(here: Path) -> None:
    one = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *NEARMETAL, "calibrate"]
    planned, run = (
        subprocess.run([*one, *options], cwd=here, capture_output=True, text=True, check=False)
        for options in (["--dry-run"], [])
    )
    assert (planned.returncode, planned.stderr) == (run.returncode, run.stderr)
    assert planned.returncode == 2 and "needs 2 CPUs" in planned.stderr


@pytest.mark.parametrize("line", ["try SLOW --time 5s", "calibrate --time 1s"])
def test_a_margin_that_is_given_before_the_data_is_that_of_the_study(line: str, here: Path) -> None:
    place = f"margin {line.split()[0]}"
    code, said = ended(f"{line} --margin '7 %' --results '{place}'", here)
    assert code in (0, 1), said
    studies = [run.read_text() for run in (here / place).glob("*/study.yaml")]
    assert len(studies) == (1 if line.startswith("try") else 3)
    assert all("margin: 7 %" in text for text in studies)
    if line.startswith("calibrate"):
        assert code == 1 and "nothing was checked" in said

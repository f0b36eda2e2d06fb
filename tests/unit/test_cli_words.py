"""What the command line accepts, and the commands that it suggests."""

from __future__ import annotations

import codecs
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nearmetal.api.catalog import catalog
from nearmetal.api.studies import study_from
from nearmetal.api.workload_names import named_workloads
from nearmetal.cli.app import plain_signs
from nearmetal.cli.commands import COMMANDS
from nearmetal.cli.weigh import SHELL_SIGNS
from nearmetal.model.study import KernelWorkload
from nearmetal.records.disk import resume_line, try_line
from nearmetal.study_file.explain import application_lines, kernel_lines


@pytest.mark.parametrize("text", ["cg:S", "npb:cg.S", "cg:class=S"])
def test_a_class_is_written_as_people_write_it(text: str) -> None:
    (found,) = named_workloads([text], catalog(), study_from("quick", 1))
    assert isinstance(found, KernelWorkload)
    assert (found.name, found.params) == ("cg-S", {"class": "S"})


def test_a_suggested_command_runs_as_it_is_printed() -> None:
    directory = Path("/results of a friend/it's one")
    assert shlex.split(resume_line(directory)) == ["nearmetal", "resume", str(directory)]
    assert shlex.split(try_line(directory)) == ["nearmetal", "try", str(directory)]


@pytest.mark.parametrize(("text", "shown"), [("×2", "x2"), ("±3 %", "+-3 %"), ("[−∞ … 1]", "[-inf ... 1]")])
def test_signs_that_an_encoding_lacks_are_written_in_others(text: str, shown: str) -> None:
    codecs.register_error("plain-signs", plain_signs)
    assert text.encode("ascii", errors="plain-signs").decode() == shown


def nearmetal(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "nearmetal", *words]
    return subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("nearmetal we", ["weigh"]),
        ("nearmetal weigh --ra", ["--ranks"]),
        ("nearmetal image bu", ["build"]),
        ("nearmetal resume --dr", ["--dry-run"]),
    ],
)
def test_the_shell_completes_commands_and_options(line: str, completed: list[str]) -> None:
    last = str(len(line.split()) - 1)
    done = nearmetal(_NEARMETAL_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=last)
    assert done.stdout.split() == completed, done.stderr


def test_the_manual_page_names_every_command() -> None:
    done = nearmetal("man")
    assert done.returncode == 0, done.stderr
    for command in COMMANDS:
        shown = f".SS nearmetal {command.name}".replace("-", r"\-")
        assert (shown in done.stdout) is not command.hidden, command.name
    assert r"\fB\-\-margin" in done.stdout
    if shutil.which("groff"):
        argv = ["groff", "-man", "-ww", "-z"]
        checked = subprocess.run(argv, input=done.stdout, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_init_explains_the_parameters_of_kernels_and_applications() -> None:
    done = nearmetal("init", "--explain")
    assert (done.returncode, done.stderr) == (0, "")
    for lines in (kernel_lines(catalog()), application_lines(catalog())):
        assert "\n".join(lines) in done.stdout


def test_signs_of_a_shell_are_known() -> None:
    assert {"|", "&&", ">", ";"} <= SHELL_SIGNS
    done = nearmetal("weigh", "native", "native", "--dry-run", "--", "ls", "-l", "|", "wc")
    assert "for a shell: -- sh -c 'ls -l | wc'" in done.stderr

"""What the command line accepts, and the commands that it suggests."""

from __future__ import annotations

import codecs
import io
import json
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
from nearmetal.cli.app import plain_signs, run_command
from nearmetal.cli.commands import COMMANDS
from nearmetal.cli.image import _show as show_image
from nearmetal.cli.measure.weigh import SHELL_SIGNS
from nearmetal.cli.output import print_json
from nearmetal.cli.separator import missing_separator
from nearmetal.errors import ExitCode, UsageError
from nearmetal.images import Image
from nearmetal.model.study import KernelWorkload
from nearmetal.records.disk import resume_line, try_line
from nearmetal.study_file.explain import application_lines, kernel_lines


@pytest.mark.parametrize(
    "text",
    [
        *("cg:A", "cg:a", "cg.A", "cg.a", "CG.A", "npb:cg.A", "npb:cg.a", "npb:cg:A"),
        *("cg:class=A", "cg:class=a"),
    ],
)
def test_a_class_is_written_as_people_write_it(text: str) -> None:
    (found,) = named_workloads([text], catalog(), study_from("quick", 1))
    assert isinstance(found, KernelWorkload)
    assert (found.name, found.params) == ("cg-A", {"class": "A"})


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        *[(text, "cg has no class 'D'", "cg:A, cg:B") for text in ("cg:D", "cg.D", "npb:cg.D")],
        ("cg:d", "cg has no class 'd'", "cg:A, cg:B"),
        ("npb:cg", "no class", "cg:A, cg:B"),
        ("npb:dt.A", "no NAS benchmark 'dt'", "npb:ep.S"),
        ("cg.A.x", "cg has no class 'A.x'", "cg:A, cg:B"),
    ],
)
def test_a_class_that_does_not_exist_says_what_to_write(text: str, what: str, remedy: str) -> None:
    with pytest.raises(UsageError) as refused:
        named_workloads([text], catalog(), study_from("quick", 1))
    assert what in refused.value.what and remedy in refused.value.remedy


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("weigh native namespaces ls", "weigh native namespaces -- ls"),
        ("weigh native namespaces ls -la", "weigh native namespaces -- ls -la"),
        ("weigh native,podman --time 9s sh 'a b' -c", "weigh native,podman --time 9s -- sh 'a b' -c"),
        ("weigh native podman ./my_app --mpi -n 2", "weigh native podman --mpi -- ./my_app -n 2"),
        ("weigh native podman ls --margin 5% -l", "weigh native podman --margin 5% -- ls -l"),
        ("weigh native podman ls --margin=5% -l", "weigh native podman --margin=5% -- ls -l"),
        ("weigh --ranks 2 native sh", "weigh --ranks 2 native -- sh"),
    ],
)
def test_a_command_without_its_separator_is_written_with_it(line: str, command: str) -> None:
    said = missing_separator(shlex.split(line))
    assert said == f"a command and its options come after --: nearmetal {command}"


@pytest.mark.parametrize(
    "line",
    ["weigh native dcoker", "weigh native podman", "weigh native dcoker ls", "weigh ls -- sh", "weigh"],
)
def test_other_lines_lack_no_separator(line: str) -> None:
    assert missing_separator(line.split()) is None


@pytest.mark.parametrize(
    "of", ["weigh native dcoker -w cg", "run containers-2015 --dry-run --backend dcoker"]
)
def test_a_misspelt_backend_is_a_mistake_with_the_nearest_name(of: str) -> None:
    done = nearmetal(*of.split())
    assert done.returncode == ExitCode.USAGE and "did you mean 'docker'?" in done.stderr, done.stderr


def test_a_suggested_command_runs_as_it_is_printed() -> None:
    directory = Path("/results of a friend/it's one")
    assert shlex.split(resume_line(directory)) == ["nearmetal", "resume", str(directory)]
    assert shlex.split(try_line(directory)) == ["nearmetal", "try", str(directory)]


@pytest.mark.parametrize(
    ("text", "shown"), [("×2", "x2"), ("±3 %", "+-3 %"), ("[−∞ … 1]", "[-inf ... 1]"), ("──", "--")]
)
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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *[(line, "not a results directory") for line in ("analyze DIR", "compare --before DIR --after DIR")],
        *[(f"{name} --results DIR", "no results below") for name in ("analyze", "status", "export")],
    ],
)
def test_results_of_another_version_are_noted_once(line: str, said: str, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "study.yaml").write_text("name: newer\n")
    (newer / "plan.json").write_text('{"schema": 99}')
    done = nearmetal(*line.replace("DIR", str(tmp_path)).split())
    assert done.returncode == 2 and said in done.stderr
    assert done.stderr.count(f"note: passed over: {newer}/plan.json: plan schema 99 is not known") == 1


def test_a_directory_without_its_study_hides_no_other(tmp_path: Path) -> None:
    torn, series = tmp_path / "torn", tmp_path / "series"
    for file in (torn / "plan.json", series / "series.json"):
        file.parent.mkdir()
        file.write_text("{}")
    done = nearmetal("list", "--results", str(tmp_path))
    assert done.returncode == 0 and "studies" in done.stdout
    assert f"note: passed over: {torn}: not a results directory" in done.stderr
    assert f"note: passed over: {series}/series.json: corrupt" in done.stderr


def test_the_time_of_a_plan_is_that_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # an earlier run may have taken less
    plans = [
        json.loads(nearmetal("plan", "quick", "--seed", "1", "--json", *words).stdout)
        for words in ((), ("--time", "40s"))
    ]
    assert plans[1]["estimated_seconds"] <= 40 < plans[0]["estimated_seconds"]


def test_json_is_the_same_in_every_encoding(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    value = {"path": "results/Prüfung ▲"}
    for encoding in ("utf-8", "ascii", "latin-1"):
        out = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding=encoding, errors="replace"))
        print_json(value)
        sys.stdout.flush()
        assert json.loads(out.getvalue().decode(encoding)) == value


def test_a_long_name_of_an_image_does_not_touch_its_digest(capsys: pytest.CaptureFixture[str]) -> None:
    made = Image(
        name="contract-apptainer",
        key="contract-apptainer-1",
        digest="ab" * 32,
        origin="mmdebstrap",
        created="2026-11-26",
        size=1 << 20,
        packages=("gcc",),
        directory=Path("/nowhere"),
    )
    show_image(made, json=False)
    assert capsys.readouterr().out.startswith("contract-apptainer  abababababab  ")


def test_signs_of_a_shell_are_known() -> None:
    assert {"|", "&&", ">", ";"} <= SHELL_SIGNS
    done = nearmetal("weigh", "native", "native", "--dry-run", "--", "ls", "-l", "|", "wc")
    assert "for a shell: -- sh -c 'ls -l | wc'" in done.stderr


@pytest.mark.parametrize(
    ("module", "code", "words"),
    [
        ("polars", ExitCode.UNAVAILABLE, ("nearmetal needs the Python module polars", "-m pip check")),
        ("nearmetal.lost", ExitCode.DEFECT, ("Traceback", "this is a defect of nearmetal")),
    ],
)
def test_a_module_that_is_not_installed_is_named_with_its_remedy(
    module: str,
    code: ExitCode,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def missing(_: list[str]) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("nearmetal.cli.app.application", missing)
    monkeypatch.setattr("sys.argv", ["nearmetal", "list"])
    assert run_command() == code
    said = capsys.readouterr().err
    assert all(word in said for word in words) and ("Traceback" in said) == (code is ExitCode.DEFECT)

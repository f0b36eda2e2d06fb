"""Whatever a results directory, a study or a node says, no terminal obeys it, and no line of nearmetal's own
is forged."""

from __future__ import annotations

import ast
import json
import os
import pty
import shutil
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from tests.attack.hostile_results import (
    FORGED,
    HOSTILE,
    STUDY,
    make_hostile,
    make_hostile_series,
    poisoned,
)

import nearmetal.cli
from nearmetal.api.checking import machine_facts
from nearmetal.cli.app import run_command
from nearmetal.cli.commands import COMMANDS
from nearmetal.cli.view import View
from nearmetal.errors import ExitCode, RunError
from nearmetal.records.disk import resume_line

pytestmark = pytest.mark.attack
HARMFUL = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return dict(machine_facts())


@pytest.fixture
def hostile(tmp_path: Path, facts: dict[str, Any]) -> Path:
    return make_hostile(tmp_path / "results", facts).path


def harmful(text: str) -> set[str]:
    """Return the characters that act on a terminal or a reader, other than line breaks and tabs."""
    return {c for c in text if unicodedata.category(c) in HARMFUL and c not in "\n\t"}


def check(text: str) -> None:
    assert not harmful(text), f"{harmful(text)} in {text!r}"
    assert not [line for line in text.splitlines() if line.strip().startswith(FORGED)], text


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command as main() does, and return all that it printed."""
    monkeypatch.setattr("sys.argv", ["nearmetal", *words])
    try:
        code = run_command()
    except SystemExit as e:
        code = int(e.code or 0)
    out, err = capsys.readouterr()
    assert code != ExitCode.DEFECT, err
    return out + err


COMMAND_LINES = (
    "status DIR",
    "status DIR --json",
    "analyze DIR",
    "analyze DIR --all",
    "analyze DIR --json",
    "report DIR",
    "report DIR --dry-run --json",
    "export DIR --format csv",
    "export DIR --format json",
    "export DIR --format benchfmt",
    "compare --before DIR --after DIR2",
    "compare --before DIR --after DIR2 --json",
    "list --results RESULTS",
    "list --results RESULTS --json",
    "plan STUDY",
    "plan STUDY --json",
    "run STUDY --dry-run",
    "run BAD --dry-run",
    "resume DIR --dry-run",
    "run-block DIR 99 --dry-run",
    "run-block DIR 99 --dry-run --json",
    "cancel DIR --dry-run",
    "try DIR --dry-run",
    "papers PAPER",
    "check --nodes HOSTS",
    "clean --nodes HOSTS --dry-run",
    "restore IMAGES --dry-run",
    "status SERIES",
    "analyze SERIES",
    "analyze SERIES --json",
    "resume SERIES --dry-run",
    "list --results HOSTILE",
    "analyze HOSTILE",
    "init HOSTILE/HOSTILE",
    "HOSTILE",
    "status --HOSTILE",
)


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_prints_plain_text(
    line: str,
    hostile: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    name = HOSTILE.replace("/", "")
    files = {
        "STUDY": (f"study{name}.yaml", STUDY),
        "BAD": (f"bad{name}.yaml", json.dumps({HOSTILE: poisoned([1, {"a": "b"}], keys=True)})),
        "PAPER": (f"paper{name}.toml", f"title = {json.dumps(HOSTILE, ensure_ascii=True)}\n"),
        "HOSTS": (f"hosts{name}.yaml", json.dumps({"nodes": [HOSTILE], HOSTILE: HOSTILE})),
        "IMAGES": (f"images{name}/nearmetal.json", json.dumps({HOSTILE: HOSTILE})),
    }
    words = line.split()
    for key, (file, text) in files.items():
        if key in words:
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_text(text)
    places = {key: file.partition("/")[0] for key, (file, _) in files.items()}
    places |= {"DIR": str(hostile), "RESULTS": str(hostile.parent), "HOSTILE": name}
    if "DIR2" in words:
        places = {"DIR2": str(shutil.copytree(hostile, tmp_path / name)), **places}
    if "SERIES" in words:
        places["SERIES"] = str(make_hostile_series(tmp_path).path)
    for key, place in places.items():
        words = [word.replace(key, place) for word in words]
    text = printed(monkeypatch, capsys, *words)
    check(text.replace("\r\n", "\n") if "csv" in line else text)
    if text.startswith(("{", "[")):
        json.loads(text)


def test_json_keeps_its_meaning(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(monkeypatch, capsys, "status", str(hostile), "--json")
    assert json.loads(text)["results_dir"] == str(hostile)


def test_a_command_with_a_hostile_name_runs_as_it_is_printed(hostile: Path) -> None:
    word = resume_line(hostile).removeprefix("nearmetal resume ")
    check(word)
    bash = ["bash", "-c", f"LC_ALL=C.UTF-8; printf %s {word}"]
    assert subprocess.run(bash, capture_output=True, check=True).stdout.decode() == str(hostile)


def test_no_command_is_forgotten() -> None:
    """Other commands print the same errors and notes; these start something, or print texts of their own."""
    starting = {"quick", "weigh", "calibrate", "checkpoint", "migrate", "kernel", "image", "man", "HOSTILE"}
    hidden = {c.name for c in COMMANDS if c.hidden}
    assert {c.name for c in COMMANDS} - {line.split()[0] for line in COMMAND_LINES} <= starting | hidden


@pytest.mark.parametrize(
    "file",
    ["plan.json", "provenance.json", "trials/local.jsonl", "nodes/w.json", "study.yaml", "engine.json"],
)
def test_an_error_quotes_plain_text(
    file: str, hostile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (hostile / file).write_text(json.dumps({"schema": HOSTILE, HOSTILE: HOSTILE}) + "\n" + HOSTILE)
    for command in ("status", "analyze", "cancel"):
        check(printed(monkeypatch, capsys, command, str(hostile)))


def test_a_defect_is_printed_plainly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: list[str]) -> None:
        raise ArithmeticError(HOSTILE)

    monkeypatch.setattr("nearmetal.cli.app.application", fail)
    monkeypatch.setattr("sys.argv", ["nearmetal", "list"])
    assert run_command() == ExitCode.DEFECT
    assert not harmful(capsys.readouterr().err)


def test_an_error_has_one_line_for_each_of_its_texts() -> None:
    text = str(RunError(HOSTILE, where=HOSTILE, remedy=HOSTILE))
    assert len(text.split("\n")) == 2


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_shows_plain_text(terminal: bool) -> None:
    """On a terminal, only colours and cursor movements of our own come through."""
    reader, writer = pty.openpty() if terminal else os.pipe()
    with os.fdopen(writer, "w") as stream:
        with View(stream) as view:
            assert view.live == terminal
            view.phase(f"phase {HOSTILE}")
            view.note(f"note {HOSTILE}")
            view.phase(f"again {HOSTILE}")
        stream.flush()
        text = os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert "\\u001b]0;t" in text and "\x1b]" not in text and "\x1b[2J" not in text
    assert not harmful(text) - {"\x1b", "\r"}
    assert not [line for line in text.splitlines() if line.strip().startswith(FORGED)]


def test_nothing_is_printed_past_the_cleaner() -> None:
    """Ruff forbids print() elsewhere (T20); other ways to a stream are these."""
    past = set()
    for path in Path(nearmetal.cli.__file__).parent.rglob("*.py"):
        if path.name == "output.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("print", "input", "Console") or called.endswith(
                    (".write", ".writelines", "echo", "secho", "prompt", "confirm")
                ):
                    past.add(f"{path.name}: {called}")
    assert not past

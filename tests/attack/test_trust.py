"""Results directories from elsewhere: their commands and programs are executed only if the user says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from nearmetal import api
from nearmetal.api.trust import PLAN, directory_to_run, require_study, require_trust
from nearmetal.errors import NearmetalError, RecordsError, UsageError
from nearmetal.records import ResultsDirectory, SeriesDirectory
from nearmetal.records.own_runs import note_run, own_run, studies_digest
from nearmetal.study_file import load_text
from nearmetal.testing.fake_host import FakeHost
from nearmetal.workloads.build import (
    PROGRAMS,
    BuiltTools,
    StoredTools,
    contents_digest,
    cpu_digest,
    store_tools,
    stored_tools,
)

pytestmark = pytest.mark.attack
STUDY = """\
name: s
question: What does it cost?
environments:
  native: {backend: native, attachment: host}
placements:
  1x1: {instances: 1, tasks: 1}
workloads:
  p: {command: ["sh", "-c", "touch \\x1b[2Jmarker"], env: {LD_PRELOAD: "/x y"}}
  q: {script: "#!/bin/sh\\nrm -rf .\\n"}
design: {baseline: native}
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def run_in(parent: Path, name: str, *, created: float = 0.0) -> Path:
    """Return a results directory that says when it was created."""
    made = ResultsDirectory.create(parent, name, study_yaml=STUDY)
    (made.path / PLAN).write_text(json.dumps({"created": created}))
    return made.path


def test_the_newest_own_directory_is_taken_whatever_others_claim(tmp_path: Path) -> None:
    parent = tmp_path / "results"
    first, second = run_in(parent, "a"), run_in(parent, "b")
    note_run(second)
    note_run(first)
    note_run(second)  # resumed; it is not newer for that
    run_in(parent, "z", created=9e9)
    assert directory_to_run(None, parent) == first == directory_to_run(parent, tmp_path)
    shutil.rmtree(first)
    shutil.rmtree(second)
    with pytest.raises(UsageError, match="that you have measured with this home directory"):
        directory_to_run(None, parent)


def test_a_directory_from_elsewhere_is_run_only_if_the_user_says_so(tmp_path: Path) -> None:
    path = run_in(tmp_path, "s")
    (path / "tools" / "d").mkdir(parents=True)
    asked: list[list[str]] = []

    def ask(directory: Path, commands: Sequence[str]) -> bool:
        asked.append(list(commands))
        return len(asked) > 1

    for again in range(2):
        with pytest.raises(UsageError, match="was not started by you") as caught:
            directory_to_run(path, tmp_path, ask=None if again else ask)
        assert "--trust" in caught.value.remedy
    assert asked[0] == [
        "LD_PRELOAD='/x y' sh -c 'touch \x1b[2Jmarker'",
        "a script:",
        "    #!/bin/sh",
        "    rm -rf .",
        f"and what else is in {path}/study.yaml",
    ]
    assert (path / "tools").exists() and own_run(path) is None
    assert directory_to_run(path, tmp_path, trust=True, dry_run=True) == path
    assert (path / "tools").exists() and own_run(path) is None, "a dry run changes nothing"
    assert directory_to_run(path, tmp_path, ask=ask) == path and len(asked) == 2
    assert not (path / "tools").exists(), "nobody has seen what these programs do"
    assert directory_to_run(path, tmp_path) == path, "it is asked once"
    (path / "study.yaml").write_text(STUDY.replace("marker", "other"))
    with pytest.raises(UsageError, match="was not started by you"):
        require_trust(path)
    require_trust(path, trust=True)
    with pytest.raises(UsageError, match="was not started by you"):
        api.resume(shutil.copytree(path, tmp_path / "copied"))


def test_a_study_is_not_exchanged_while_the_user_reads_it(tmp_path: Path) -> None:
    path = run_in(tmp_path, "s")

    def ask(directory: Path, commands: Sequence[str]) -> bool:
        (path / "study.yaml").write_text(STUDY.replace("marker", "other"))
        return True

    with pytest.raises(UsageError, match="was changed while you were asked"):
        require_trust(path, ask=ask)
    assert own_run(path) is None


def test_trust_follows_no_link_out_of_the_directory(tmp_path: Path) -> None:
    path, outside = run_in(tmp_path, "s"), tmp_path / "outside"
    outside.mkdir()
    (path / "tools").symlink_to(outside)
    require_trust(path, trust=True)
    assert outside.is_dir() and not (path / "tools").is_symlink()
    (path / "study.yaml").unlink()
    (tmp_path / "elsewhere.yaml").write_text(STUDY)
    (path / "study.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    for trust in (True, False):
        with pytest.raises(NearmetalError, match="leads out of the directory"):
            require_trust(path, trust=trust)


def test_a_part_has_no_study_elsewhere_in_the_directory(tmp_path: Path) -> None:
    """Its commands would be executed, but not shown."""
    part = {"key": "../p", "title": "", "share": 1, "absent": "", "places": {}, "notes": []}
    head = {"schema": 1, "created": 0, "name": "s", "title": "", "scale": None, "paper": "", "seed": 0}
    (tmp_path / "series.json").write_text(json.dumps({**head, "max_time": 1, "notes": [], "parts": [part]}))
    (tmp_path / "studies").mkdir()
    (tmp_path / "p.yaml").write_text(STUDY)
    with pytest.raises(RecordsError, match=r"'\.\./p' is no key of a part"):
        SeriesDirectory(path=tmp_path).series(lambda text, where: load_text(text, where, None))


def test_a_study_in_parts_is_trusted_with_all_its_parts(tmp_path: Path) -> None:
    series = tmp_path / "series"
    (series / "studies").mkdir(parents=True)
    (series / "series.json").write_text("{}")
    (series / "studies" / "p.yaml").write_text(STUDY)
    assert SeriesDirectory.at(series) is not None
    note_run(series)
    require_trust(series)
    part = run_in(series, "p")
    asked: list[str] = []

    def ask(directory: Path, commands: Sequence[str]) -> bool:
        asked.extend(commands)
        return False

    with pytest.raises(UsageError, match="was not started by you"):
        require_trust(series, ask=ask)
    assert [line for line in asked if "what else" in line] == [
        f"and what else is in {series}/studies/p.yaml",
        f"and what else is in {part}/study.yaml",
    ]
    note_run(part)
    require_trust(series)
    (series / "studies" / "p.yaml").write_text(STUDY.replace("marker", "other"))
    with pytest.raises(UsageError, match="was not started by you"):
        require_trust(series)


def test_a_worker_runs_the_study_for_which_it_was_submitted(tmp_path: Path) -> None:
    path = run_in(tmp_path, "s")
    digest = studies_digest(path)
    require_study(path, digest)
    (path / "study.yaml").write_text(STUDY.replace("marker", "other"))
    with pytest.raises(UsageError, match="not the one for which this worker"):
        require_study(path, digest)


def test_a_state_directory_that_cannot_be_written_asks_again(tmp_path: Path, state: Path) -> None:
    state.write_text("")
    path = run_in(tmp_path, "s")
    for _ in range(2):
        require_trust(path, trust=True)
        with pytest.raises(NearmetalError):
            require_trust(path)


@pytest.mark.parametrize("words", [["resume"], ["try"], ["run-block", "1"]])
def test_commands_that_execute_refuse_without_a_terminal(words: list[str], tmp_path: Path) -> None:
    path, (command, *more) = run_in(tmp_path, "s"), words
    done = subprocess.run(
        [sys.executable, "-m", "nearmetal", command, str(path), *more],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "add --trust" in done.stderr, done.stderr


CPU = FakeHost(files={"/proc/cpuinfo": "model name\t: Some CPU\n"})


def _changed(build: Path, outside: Path) -> None:
    (build / "bin" / "nm-rank").write_text("evil")


def _added(build: Path, outside: Path) -> None:
    (build / "bin" / "nm-more").write_text("")


def _linked(build: Path, outside: Path) -> None:
    (build / "bin" / "nm-rank").unlink()
    (build / "bin" / "nm-rank").symlink_to(outside)


def _waits(build: Path, outside: Path) -> None:
    (build / "bin" / "nm-rank").unlink()
    os.mkfifo(build / "bin" / "nm-rank")


def _moved(build: Path, outside: Path) -> None:
    (build / "bin").rename(outside.parent / "bin")
    (build / "bin").symlink_to(outside.parent / "bin")


@pytest.mark.parametrize("change", [_changed, _added, _linked, _waits, _moved])
def test_programs_in_a_results_directory_are_those_of_the_run_or_are_not_executed(
    change: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    made, place, cache = tmp_path / "made" / "bin", tmp_path / "run" / "tools", tmp_path / "cache"
    made.mkdir(parents=True)
    cache.mkdir()
    outside = tmp_path / "outside"
    for file in (outside, *(made / name for name in PROGRAMS)):
        file.write_text(file.name)
    outside.write_text("nm-rank")
    built = BuiltTools(
        directory=made, digest="a" * 64, compiler="gcc", flags="", mpi="Open MPI", cpu=cpu_digest(CPU)
    )
    store_tools(built, place)
    described = {**asdict(built), "directory": "", "contents": contents_digest(made)}
    change(place / built.digest, outside)
    stored = StoredTools(place=place, described=described)
    assert stored_tools(CPU, cache, stored) is None and list(cache.iterdir()) == []
    for forged in ({"digest": f"../../{'a' * 58}"}, {"contents": "../x"}, {"contents": None}, {"cpu": 7}):
        wrong = replace(stored, described={**described, **forged})
        assert stored_tools(CPU, cache, wrong) is None and list(cache.iterdir()) == []


def test_programs_of_a_run_never_pass_for_those_that_are_compiled_here(tmp_path: Path) -> None:
    made, cache = tmp_path / "made" / "bin", tmp_path / "cache"
    made.mkdir(parents=True)
    for name in PROGRAMS:
        (made / name).write_text("evil, and described by the author of the directory")
    built = BuiltTools(
        directory=made, digest="a" * 64, compiler="gcc", flags="", mpi="Open MPI", cpu=cpu_digest(CPU)
    )
    store_tools(built, tmp_path / "tools")
    described = {**asdict(built), "directory": "", "contents": contents_digest(made)}
    assert stored_tools(CPU, cache, StoredTools(place=tmp_path / "tools", described=described)) is not None
    assert not (cache / built.digest).exists()

"""Moves of a user's processes to another host, by each method of CRIU, with limits of bandwidth and time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from benchmarks.criu_moves import large_pipes
from tests.patience import until
from tests.system.moving_case import (
    MEMORY,
    ROOT,
    Program,
    There,
    at_moment,
    children,
    criu,
    program,
    state,
    stats_dump,
    there,
)

from nearmetal.api.moves import moving
from nearmetal.environments import Unavailable
from nearmetal.environments.external import WrittenError, dumping
from nearmetal.environments.external.saved import HANDED_OVER
from nearmetal.errors import RunError, UnavailableError, UsageError
from nearmetal.host import LocalHost
from nearmetal.lifecycle import Method
from nearmetal.node.criu import find_criu

pytestmark = [pytest.mark.apart, pytest.mark.no_run, ROOT]
__all__ = ["criu", "program", "state", "there"]
MOVES = (Method.CRIU, Method.CRIU_PAGESERVER, Method.CRIU_LAZY)


@pytest.fixture(scope="module", autouse=True)
def pipes() -> Iterator[None]:
    with large_pipes():
        yield


@pytest.mark.parametrize("method", MOVES)
def test_a_process_moves_to_another_host(program: Program, there: There, state: Path, method: Method) -> None:
    done = moving.migrate(str(program.pid), "there", moving.MoveOptions(method=method))
    assert done.now == f"pid:{program.pid} at there" and done.images is None
    assert done.size is not None and MEMORY < done.size < 4 * MEMORY
    assert done.downtime is not None and 0 < done.downtime <= done.total
    program.goes_on()
    assert not program.running, "its PID is one of the other host now"
    assert not list((state / "checkpoints").iterdir()) and not there.left()


@pytest.mark.parametrize("method", MOVES)
def test_it_continues_here_if_the_restore_there_fails(
    program: Program, there: There, state: Path, method: Method
) -> None:
    there.make_criu('[ "$1" != restore ] || exit 9')
    with pytest.raises(RunError, match=r"was not moved to there, and continues here") as failed:
        moving.migrate(str(program.pid), "there", moving.MoveOptions(method=method))
    assert "Traceback" not in str(failed.value)
    program.goes_on()
    assert program.running and not there.left()
    logs_only = [p.suffix for p in (state / "checkpoints").rglob("*") if p.is_file()]
    assert set(logs_only) <= {".log"}


def test_a_pid_that_is_taken_there_is_said_before_the_program_stops(
    program: Program, there: There, state: Path
) -> None:
    enter = ["nsenter", f"--target={children(there.daemon.pid)[0]}", "--mount", "--pid"]
    take = f"echo {program.pid - 1} >/proc/sys/kernel/ns_last_pid; exec sleep 600 &"
    subprocess.run([*enter, "sh", "-c", take], stdout=subprocess.DEVNULL, check=True)
    with pytest.raises(UnavailableError, match=f"process IDs: PID {program.pid} is taken") as refused:
        moving.migrate(str(program.pid), "there", moving.MoveOptions())
    assert refused.value.where == "there" and refused.value.remedy.startswith("end that process")
    assert not (state / "checkpoints").exists(), "no dump has begun"
    program.goes_on()


def test_memory_at_a_page_server_is_kept_if_the_source_does_not_end(
    program: Program, there: There, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(pid: int, what: str) -> NoReturn:
        raise WrittenError(f"interrupted: {what} was written to files, and ends")

    monkeypatch.setattr(dumping, "await_end", interrupted)
    with pytest.raises(RunError) as failed:
        moving.migrate(str(program.pid), "there", moving.MoveOptions(method=Method.CRIU_PAGESERVER))
    (kept,), (images,) = there.left(), (state / "checkpoints").iterdir()
    assert failed.value.remedy == (
        f"when it has ended: copy what is in there:{kept} there too, then rm {images / HANDED_OVER}"
        f" && nearmetal restore {images}"
    )
    until(lambda: not program.copies, "the end of the source")
    shutil.copytree(kept, images, dirs_exist_ok=True)
    shutil.rmtree(kept)
    (images / HANDED_OVER).unlink()
    moving.restore(images)
    program.goes_on()


def test_precopy_needs_a_kernel_that_tracks_writes(program: Program, there: There) -> None:
    found = find_criu(LocalHost())
    assert not isinstance(found, Unavailable)
    how = moving.MoveOptions(method=Method.CRIU_PRECOPY)
    if (lack := found.unable.get(Method.CRIU_PRECOPY)) is None:
        moving.migrate(str(program.pid), "there", how)
    else:
        with pytest.raises(UnavailableError, match="does not track writes") as refused:
            moving.plan_migrate(str(program.pid), "there", how)
        assert refused.value.remedy == lack.remedy
        plan = moving.plan_migrate(str(program.pid), "there", moving.MoveOptions())
        assert any(note.startswith("criu-precopy is left out: ") for note in plan.notes)
        assert {p.method for p in plan.methods} == set(MOVES)
    program.goes_on()


def test_a_copy_keeps_its_bandwidth(program: Program, there: There) -> None:
    how = moving.MoveOptions(method=Method.CRIU, bandwidth=24e6)
    done = moving.migrate(str(program.pid), "there", how)
    assert done.size is not None and done.total >= done.size / 24e6
    program.goes_on()


def test_a_copy_that_takes_too_long_is_given_up(program: Program, there: There, state: Path) -> None:
    how = moving.MoveOptions(method=Method.CRIU, bandwidth=2e6, time_limit=4.0)
    plan = moving.plan_migrate(str(program.pid), "there", how)
    assert "it is expected to be given up after 4 s (--time-limit)" in plan.notes
    with pytest.raises(RunError, match=r"continues here as .*: the time limit is over") as late:
        moving.migrate(str(program.pid), "there", how)
    assert "--time-limit" in late.value.remedy and "--bandwidth" in late.value.remedy
    program.goes_on()
    assert program.running and not there.left() and not list((state / "checkpoints").iterdir())


@pytest.mark.parametrize("to", ["there", "./i"])
def test_a_dump_that_takes_too_long_is_given_up(
    program: Program, there: There, tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in at_moment(tmp_path, "post-dump", "sleep 10").items():  # CRIU itself may be faster
        monkeypatch.setenv(name, value)
    with pytest.raises(RunError, match=r"which continues: the time limit of 0.5 s is over") as late:
        moving.migrate(str(program.pid), to, moving.MoveOptions(method=Method.CRIU, time_limit=0.5))
    assert late.value.remedy == "a longer --time-limit"
    program.goes_on()
    assert program.running and not there.left()
    assert not list((tmp_path / "i").glob("*.img"))


@pytest.mark.parametrize(
    ("to", "how", "said"),
    [
        ("./i", moving.MoveOptions(bandwidth=1e6), "CRIU writes images to a directory by itself"),
        (
            "there",
            moving.MoveOptions(method=Method.CRIU_LAZY, bandwidth=1e6),
            "criu-lazy sends memory by CRIU",
        ),
        ("./i", moving.MoveOptions(method=Method.CRIU_LAZY), "the source still has the PIDs"),
        ("./i", moving.MoveOptions(method=Method.CRIU_PAGESERVER), "a page server saves nothing"),
        ("there", moving.MoveOptions(method=Method.PRECOPY), "method precopy does not migrate pid:"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(
    program: Program, there: There, to: str, how: moving.MoveOptions, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        moving.plan_migrate(str(program.pid), to, how)
    assert refused.value.remedy
    program.goes_on()


def test_a_bandwidth_leaves_out_the_methods_that_do_not_keep_it(program: Program, there: There) -> None:
    plan = moving.plan_migrate(str(program.pid), "there", moving.MoveOptions(bandwidth=50e6))
    assert plan.method is Method.CRIU and [p.method for p in plan.methods] == [Method.CRIU]
    assert sum("--bandwidth: " in note for note in plan.notes) == 2


STAND_IN = """\
#!{python}
import glob, json, os, shutil, sys
real, log, stats = {real!r}, {log!r}, {stats!r}
words = sys.argv[1:]
if words[:3] == ["check", "--feature", "mem_dirty_track"]:
    sys.exit(0)
if words[0] in ("pre-dump", "dump"):
    images = words[words.index("--images-dir") + 1]
    there = sorted(map(os.path.basename, glob.glob("/var/tmp/nearmetal-move.*/round-*")))
    previous = words[words.index("--prev-images-dir") + 1] if "--prev-images-dir" in words else ""
    with open(log, "a") as out:
        out.write(json.dumps([words[0], previous, "--track-mem" in words, there]) + "\\n")
    if words[0] == "pre-dump":
        shutil.copy(stats + images.rpartition("-")[2], os.path.join(images, "stats-dump"))
        sys.exit(0)
    words.remove("--track-mem")
    at = words.index("--prev-images-dir")
    del words[at : at + 2]
os.execv(real[0], [*real, *words])
"""
"""A CRIU on a kernel that tracks writes, as far as this one goes: its rounds write only how many pages they
wrote, and its last dump writes all memory."""


@pytest.mark.parametrize(
    ("pages", "rounds"),
    [
        ((20_000, 5_000, 1_000, 1), 3),  # the third wrote less than 8 MiB
        ((20_000, 19_000, 1), 2),  # hardly less than the first
    ],
)
def test_each_round_of_precopy_is_copied_before_the_next(
    program: Program,
    there: There,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pages: tuple[int, ...],
    rounds: int,
) -> None:
    found = find_criu(LocalHost())
    assert not isinstance(found, Unavailable)
    own, log = tmp_path / "own", tmp_path / "criu.log"
    own.mkdir()
    for number, written in enumerate(pages):
        (tmp_path / f"stats.{number}").write_bytes(stats_dump(written))
    (own / "criu").write_text(
        STAND_IN.format(python=sys.executable, real=found.argv, log=str(log), stats=str(tmp_path / "stats."))
    )
    (own / "criu").chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}{os.pathsep}{os.environ['PATH']}")
    done = moving.migrate(str(program.pid), "there", moving.MoveOptions(method=Method.CRIU_PRECOPY))
    assert done.now == f"pid:{program.pid} at there"
    names = [f"round-{number}" for number in range(rounds)]
    assert [json.loads(line) for line in log.read_text().splitlines()] == [
        *(["pre-dump", f"../{names[n - 1]}" if n else "", True, names[:n]] for n in range(rounds)),
        ["dump", names[-1], True, names],
    ]
    program.goes_on()
    assert not program.running and not there.left()

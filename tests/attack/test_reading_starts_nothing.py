"""Commands that only read, over results directories full of bait: they start no process, open no file
elsewhere, and change nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import sys
import sysconfig
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import zstandard
from tests.unit.small_study import RATE, small_study

import nearmetal
from nearmetal.cli.app import run_command
from nearmetal.errors import ExitCode, RecordsError
from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.plan import make_plan
from nearmetal.records import ResultsDirectory
from nearmetal.run.folding import WORTH_PROCESSES, fold_workers
from nearmetal.samplers import GUESTS, read_sections
from nearmetal.samplers.frames import MOST_BYTES
from nearmetal.testing.simulate import Spread, simulate

pytestmark = pytest.mark.attack

NAMES = ("native", "slow")
STUDY = """\
name: s
environments:
  native: {backend: native}
  slow: {backend: native}
placements:
  one: {instances: 1, tasks: 1}
workloads:
  ep: {kernel: ep, class: S}
design: {baseline: native, margin: 3 %, seed: 2}
"""
LONGEST = 20
"""Seconds after which a command hangs."""
PROGRAMS = ("ssh", "squeue", "scancel", "mpirun", "git", "python3", "sh", "nearmetal", "lscpu")
MODULES = ("sitecustomize", "usercustomize", "typer", "multiprocessing", "numpy", "nearmetal", "json")
SYSTEM = ("/proc", "/sys", "/dev/null", "/dev/urandom", "/usr", "/lib", "/lib64", "/etc", "/run/lock")
"""Parts of the machine that belong to the installation."""
STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn"}


@dataclass
class Watch:
    """What this process did while it was watched: the processes that it started, and the paths that it
    opened."""

    on: bool = False
    started: list[str] = field(default_factory=list)
    opened: set[str] = field(default_factory=set)

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in STARTS:
            self.started.append(f"{event} {args!r}")
        elif event == "open" and isinstance(args[0], (str, bytes)):
            path = Path(os.fsdecode(args[0]))
            # A file that the reader has checked is opened again by its descriptor, in /proc/self/fd.
            followed = not args[2] & os.O_NOFOLLOW
            self.opened.add(os.path.realpath(path if followed else path.parent))


WATCH = Watch()


@pytest.fixture(scope="module", autouse=True)
def hook() -> None:
    sys.addaudithook(WATCH.see)  # cannot be removed, but is silent outside of these tests


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed results directory as a run leaves it."""
    directory = ResultsDirectory.create(tmp_path_factory.mktemp("valid"), "s", study_yaml=STUDY)
    study = small_study(*NAMES)
    arms = [f"{name}/one" for name in NAMES]
    directory.freeze(seed=2, arms=arms, provenance={"cpu": {"model": "x"}})
    records = simulate(
        study,
        make_plan(study, blocks=8),
        metrics=(RATE,),
        overheads={"slow/one": 0.1},
        spread=Spread(instance=0.02),
    )
    with directory.writer() as writer:
        for record in records:
            writer.append(record)
    directory.write_roofs(())
    directory.node_files.write("w", {"cpu": {"model": "x"}}, node="n")
    (directory.path / "samples/local.cost.json").write_text('{"seconds": 1, "cpu": 0.1, "samples": 2}')
    directory.close()
    return directory.path


Bait = Callable[[Path, Path], None]
"""A function that puts a bait at a path. Its second argument is the directory outside that it may name."""


@dataclass(frozen=True)
class Trap:
    """A user's session in a directory that somebody else has made.

    results: the hostile results directory, in a directory `parent` that is also the current directory.
    outside: files that nothing may open or change.
    """

    results: Path
    outside: Path

    @property
    def parent(self) -> Path:
        return self.results.parent

    def run(self, *words: str) -> int:
        """Run a command line, in which DIR stands for the results directory. Fails if it starts a process,
        opens a file that is not its business, changes anything outside, or ends with a defect."""
        words = tuple(word.replace("DIR", str(self.results)) for word in words)
        before = snapshot(self.outside)
        WATCH.started, WATCH.opened = [], set()
        with time_limit(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["nearmetal", *words])
            WATCH.on = True
            try:
                code = run_command()
            finally:
                WATCH.on = False
        assert WATCH.started == [], words
        allowed = (*SYSTEM, str(self.parent.parent), *INSTALLATION)
        elsewhere = [p for p in WATCH.opened if not p.startswith(allowed) or p.startswith(str(self.outside))]
        assert elsewhere == [], words
        assert snapshot(self.outside) == before, words
        assert code not in (ExitCode.DEFECT, ExitCode.FAILED_TRIALS), words
        return code

    def read(self, *words: str) -> int:
        """Run a command line as run() does. Fails also if it changes anything in the directories."""
        before = snapshot(self.parent)
        code = self.run(*words)
        assert snapshot(self.parent) == before, words
        return code

    def plant(self, bait: Bait, name: str) -> bool:
        """Put a bait in the place of a file or directory. Returns False if that needs another bait away."""
        path = self.results / name
        if not path.parent.is_dir() or path.parent.is_symlink():
            return False
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        bait(path, self.outside)
        return True


INSTALLATION = tuple(
    {
        *map(os.path.realpath, (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())),
        str(Path(nearmetal.__file__).parents[2]),
    }
)


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    def ended(*_: object) -> None:
        pytest.fail(f"not done after {LONGEST} s")  # no OSError, which readers would catch

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def snapshot(directory: Path) -> dict[str, tuple[int, ...]]:
    """Return the status of everything below a directory, without the times of access."""
    return {
        str(path): (s.st_mode, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
        for path in (directory, *directory.rglob("*"))
        for s in [path.lstat()]
    }


@pytest.fixture
def trap(valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trap:
    outside, parent = tmp_path / "outside", tmp_path / "home" / "results"
    outside.mkdir()
    (outside / "secret").write_text("top secret\n")
    (outside / "secrets").mkdir()
    for name in ("local.jsonl", "a.json", "report.html"):
        (outside / "secrets" / name).write_text("top secret\n")
    shutil.copytree(valid, results := parent / valid.name, symlinks=True)
    lure(results, outside)
    lure(parent, outside)
    shutil.copytree(results, whole := parent / "whole")
    plan = json.loads((whole / "plan.json").read_text())
    (whole / "plan.json").write_text(json.dumps({**plan, "created": plan["created"] + 1}))
    monkeypatch.chdir(parent)
    monkeypatch.setenv("PATH", f"{parent}:{os.environ['PATH']}")
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "home" / name.lower()))
    return Trap(results=results, outside=outside)


def lure(directory: Path, outside: Path) -> None:
    """Add programs, modules and configurations that leave a mark if anything runs or reads them."""
    for name in PROGRAMS:
        (directory / name).write_text(f"#!/bin/sh\n: > {outside}/mark-{name}\n")
        (directory / name).chmod(0o755)
    for name in MODULES:
        (directory / f"{name}.py").write_text(f"open({str(outside / f'mark-{name}')!r}, 'w')\n")
    (directory / "config").write_text(f"Host *\n  ProxyCommand {directory}/ssh\n")
    engine = {
        "engine": "ssh",
        "ids": ["n:1:2"],
        "options": {"hosts": "n", "config": str(directory / "config")},
    }
    (directory / "engine.json").write_text(json.dumps(engine))


NEEDED = (
    "study.yaml",
    "plan.json",
    "provenance.json",
    "roofs.json",
    "trials",
    "trials/local.jsonl",
    "samples",
    "samples/local.cost.json",
    "nodes",
    "nodes/w.json",
    "SHA256SUMS",
    "series.json",
)
"""Files and directories that commands read."""
ENDINGS = ("html", "md", "tex", "csv")
WRITTEN = (
    *(f"report.{ending}" for ending in ENDINGS),
    *(f".report.{ending}.{os.getpid()}.tmp" for ending in ENDINGS),
    "SHA256SUMS",
    f".SHA256SUMS.{os.getpid()}.tmp",
    "ro-crate-metadata.json",
)
"""Files that `report` writes, and their temporary names."""
READERS: Sequence[tuple[str, ...]] = (
    ("status", "DIR"),
    ("analyze", "--all", "DIR"),
    ("compare", "--before", "DIR", "--after", "whole"),
    ("export", "DIR", "--format", "json"),
    ("report", "DIR", "--dry-run"),
)
LISTING = ("list", "--results", ".")
OF_FILES: Sequence[tuple[str, ...]] = (("plan", "DIR/study.yaml"), ("papers", "DIR/study.yaml"))
OTHERS: Sequence[tuple[str, ...]] = (
    ("status", "DIR", "--json"),
    ("list", "--results", "DIR"),
    ("plan", "DIR"),
    ("try", "DIR", "--dry-run"),
    ("run-block", "DIR", "9", "--dry-run"),
    ("cancel", "DIR", "--dry-run"),
    ("restore", "DIR", "--dry-run"),
    ("image", "build", "DIR", "--dry-run"),
    ("image", "build", "x", "--file", "DIR/study.yaml", "--dry-run"),
    ("image", "remove", "DIR", "--dry-run"),
    ("init", "DIR/study.yaml", "--dry-run"),
)


def link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / ("secret" if path.suffix else "secrets"))


def upward_link(path: Path, outside: Path) -> None:
    path.symlink_to(os.path.relpath(outside / ("secret" if path.suffix else "secrets"), path.parent))


def dangling_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "made")


def magic_link(path: Path, outside: Path) -> None:
    path.symlink_to("/proc/self/environ")


def fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def device(path: Path, outside: Path) -> None:
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero, which has no end


def sparse(path: Path, outside: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def nested(path: Path, outside: Path) -> None:
    path.write_bytes(b"[" * (1 << 18))


def closed_directory(path: Path, outside: Path) -> None:
    path.mkdir(mode=0)


BAITS: Sequence[Bait] = (
    link,
    upward_link,
    dangling_link,
    magic_link,
    fifo,
    device,
    sparse,
    nested,
    closed_directory,
)
needs_devices = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices")
each_bait = pytest.mark.parametrize(
    "bait", [pytest.param(b, marks=needs_devices if b is device else ()) for b in BAITS]
)


def test_commands_read_an_open_directory(trap: Trap) -> None:
    ResultsDirectory.open(trap.results).reopen()
    assert trap.read("analyze", "DIR") == ExitCode.DONE
    for words in (*READERS, LISTING, *OF_FILES, *OTHERS):
        trap.read(*words)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_commands_read_a_directory_of_another_user(trap: Trap) -> None:
    for path in (trap.parent, *trap.parent.rglob("*")):
        os.chown(path, 4711, 4711, follow_symlinks=False)
    assert trap.read("analyze", "DIR") == ExitCode.DONE
    for words in (*READERS, LISTING, *OF_FILES):
        trap.read(*words)


@each_bait
def test_commands_that_read_take_no_bait(trap: Trap, bait: Bait, capfd: pytest.CaptureFixture[str]) -> None:
    """Every file in turn is a bait. The user may name a link as study file, but not find one by a name."""
    before = trap.parent.with_name("before")
    shutil.copytree(trap.results, before)
    for name in NEEDED:
        assert trap.plant(bait, name)
        for words in (*READERS, *([LISTING] if "/" not in name else [])):
            trap.read(*words)
        if not (trap.results / "study.yaml").is_symlink():
            for words in OF_FILES:
                trap.read(*words)
        said = capfd.readouterr()
        assert "Traceback" not in said.err and "top secret" not in said.out + said.err, name
        shutil.rmtree(trap.results)
        shutil.copytree(before, trap.results)


@each_bait
def test_a_report_is_written_through_no_bait(trap: Trap, bait: Bait) -> None:
    for name in WRITTEN:
        trap.plant(bait, name)
    before = snapshot(trap.parent)
    trap.run("report", "DIR")
    after = snapshot(trap.parent)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed <= {str(trap.results), *(str(trap.results / name) for name in WRITTEN)}


@each_bait
def test_figures_are_written_through_no_bait(trap: Trap, bait: Bait) -> None:
    trap.plant(bait, "figures")
    trap.run("report", "DIR", "--figures")


def test_checksums_name_no_file_outside(trap: Trap, capfd: pytest.CaptureFixture[str]) -> None:
    names = ("../../../outside/secret", str(trap.outside / "secret"), "/etc/passwd")
    with (trap.results / "SHA256SUMS").open("a") as sums:
        sums.writelines(f"{'0' * 64}  {name}\n" for name in names)
    assert trap.read("status", "DIR") == ExitCode.DONE
    assert all(f"{name} (gone)" in capfd.readouterr().out or name for name in names)


def test_an_output_file_is_no_planted_link(trap: Trap) -> None:
    (trap.results / "out.csv").symlink_to(trap.outside / "secret")
    assert trap.read("export", "DIR", "-o", str(trap.results / "out.csv")) == ExitCode.USAGE


def test_a_series_reads_no_part_outside(trap: Trap, capfd: pytest.CaptureFixture[str]) -> None:
    part = {"title": "t", "share": 1.0, "places": {}, "absent": "", "notes": [], "figures": []}
    keys = ("../../../../outside/secret", "linked", str(trap.outside / "secret"))
    (trap.results / "studies").mkdir()
    (trap.results / "studies" / "linked.yaml").symlink_to(trap.outside / "secret")
    head = {"schema": 1, "created": 1e12, "name": "n", "title": "t", "scale": None, "paper": "", "seed": 1}
    for name in ("ends.jsonl", "sizes.jsonl", "published.toml", "report.html", "report.md"):
        (trap.results / name).symlink_to(trap.outside / "secret")
    for key in (*keys, None):
        parts = [] if key is None else [{"key": key, **part}]
        series = {**head, "max_time": 9.0, "notes": [], "parts": parts}
        (trap.results / "series.json").write_text(json.dumps(series))
        for words in (("status",), ("analyze", "--all"), ("report", "--dry-run")):
            trap.read(*words, "DIR")
        trap.run("report", "DIR")
    assert "top secret" not in "".join(capfd.readouterr())


def test_compressed_samples_are_no_bomb(tmp_path: Path) -> None:
    """One frame of 128 KiB holds 4 GiB. A reader stops at its limit."""
    compressor = zstandard.ZstdCompressor().compressobj()
    with (tmp_path / GUESTS).open("wb") as file:
        for _ in range(2 * MOST_BYTES >> 20):
            file.write(compressor.compress(bytes(1 << 20)))
        file.write(compressor.flush())
    tracemalloc.start()
    try:
        with pytest.raises(RecordsError, match="has a frame of more than 64 MiB"):
            list(read_sections(UntrustedDirectory(tmp_path), GUESTS))
        assert tracemalloc.get_traced_memory()[1] < 2 * MOST_BYTES
    finally:
        tracemalloc.stop()


def test_workers_that_fold_import_nothing_from_the_current_directory(
    trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    before = snapshot(trap.outside)
    with fold_workers(WORTH_PROCESSES) as workers:
        for worker in workers:
            worker.send((None, None))
            worker.send(None)
            with contextlib.suppress(EOFError, ConnectionResetError):
                worker.recv()
    assert len(workers) == 2 and snapshot(trap.outside) == before

"""Checkpoints by every method and backend, with a fault in the middle: the program goes on where the error
says, or the error says that it runs nowhere. Never do two copies run, and nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from tests.docker_daemon import offer_criu
from tests.patience import until
from tests.system.checkpoint_case import (
    HOST,
    METHODS,
    Case,
    checkpointing_backends,
    require_checkpoints,
)

from nearmetal.environments import Criu
from nearmetal.environments.leftovers import find_all
from nearmetal.errors import RunError, TrialFailedError
from nearmetal.host import namespaces
from nearmetal.host.processes import labelled as processes
from nearmetal.host.runtime import scratch_directory
from nearmetal.lifecycle import Method, Phase
from nearmetal.subjects.events.progress import read_progress

pytestmark = [pytest.mark.more, pytest.mark.beside, pytest.mark.no_run]

HERE, NOWHERE = "; the program goes on at the source", "; the program runs nowhere"
SIZES = ("4k", "16k")
"""Of file systems that are full at once, and after some files."""
ALL_BUT_MEMORY = "1m"
"""Of a file system that is full when the memory is copied. Some backends have begun to restore by then."""
EARLY = {"native", "namespaces", "runc", "crun"}
"""Backends whose restores begin while the memory is copied."""
_numbers = count()


SAMPLE = {("native", Method.CRIU)}
"""Pairs of backend and method that are tested with all others; the rest takes minutes."""


def by(*methods: Method) -> pytest.MarkDecorator:
    """The cases of all backends with these methods."""
    pairs = [(name, m) for name, able in checkpointing_backends().items() for m in methods if m in able]
    cases = [
        pytest.param(pair, id="-".join(pair), marks=() if pair in SAMPLE else pytest.mark.apart)
        for pair in pairs
    ]
    return pytest.mark.parametrize("case", cases, indirect=True)


every = by(*METHODS)


@pytest.fixture
def case(request: pytest.FixtureRequest, criu: Criu, tmp_path: Path) -> Iterator[Case]:
    name, method = request.param
    if name in ("docker", "crun"):
        request.getfixturevalue(name)
        offer_criu(criu)
    if (unable := criu.unable.get(method)) is not None:
        pytest.skip(f"{method}: {unable.reason}; {unable.remedy}")
    require_checkpoints(name)
    label = f"nearmetal-test{os.getpid()}-{next(_numbers)}"
    with scratch_directory(f"{label}-images") as root:
        made = Case(name=name, method=method, criu=criu, label=label, directory=tmp_path, root=root)
        made.make()
        yield made
    made.clean()  # a test that is interrupted has not looked for what a killed tool leaves


def fate(case: Case, notify: Callable[[Phase], None]) -> str:
    """Run an event. Return the error, empty without one. Nothing is left afterwards."""
    said = ""
    try:
        case.event(notify).run()
    except (RunError, TrialFailedError) as e:
        said = e.what
    assert_one_at_most(case)
    assert [i for i in find_all(HOST, case.label) if not Path(i.detail).is_relative_to(case.root)] == []
    return said


def assert_one_at_most(case: Case) -> None:
    """Nothing of the case runs any more, and no two copies ever ran."""
    until(lambda: not case.processes(), f"the end of the processes of {case.label}")
    before = read_progress(case.record)
    time.sleep(0.02)
    after = read_progress(case.record)
    assert after == before and after.steps > 0 and after.strange == 0


class Once:
    """Does something at the begin of a phase, and remembers it."""

    def __init__(self, phase: Phase, act: Callable[[], object]) -> None:
        self.phase, self.act, self.done = phase, act, False

    def __call__(self, phase: Phase) -> None:
        if phase is self.phase and not self.done:
            self.done = True
            self.act()


@pytest.fixture
def tiny() -> Iterator[Callable[[Path, str], None]]:
    """Mounts a file system on a directory that is full soon."""
    made: list[Path] = []

    def mount(path: Path, size: str) -> None:
        namespaces.mount("nearmetal-test", path, "tmpfs", options=f"size={size}")
        made.append(path)

    yield mount
    for path in made:
        namespaces.detach(path)


@every
def test_without_a_fault_it_goes_on(case: Case) -> None:
    assert fate(case, lambda _: None) == ""


@every
@pytest.mark.parametrize("size", SIZES)
def test_the_disk_of_the_source_is_full(case: Case, size: str, tiny: Callable[[Path, str], None]) -> None:
    tiny(case.here, size)
    # Docker writes the files there after it has ended the container.
    assert fate(case, lambda _: None).endswith(NOWHERE if case.name == "docker" else HERE)


@every
@pytest.mark.parametrize("size", (*SIZES, ALL_BUT_MEMORY))
def test_the_disk_of_the_destination_is_full(
    case: Case, size: str, tiny: Callable[[Path, str], None]
) -> None:
    tiny(case.there, size)
    said = fate(case, lambda _: None)
    if size == ALL_BUT_MEMORY and case.method is Method.CRIU_LAZY:
        assert said == "", "the memory goes into no file"
    else:
        written_first = case.method in (Method.CRIU, Method.CRIU_PRECOPY)
        assert said.endswith(NOWHERE if written_first else HERE)


@every
@pytest.mark.parametrize("pattern", ["core-*.img", "pages-*.img", "pstree.img"])
def test_an_image_is_torn(case: Case, pattern: str) -> None:
    lazy = case.method is Method.CRIU_LAZY

    def tear() -> None:
        for file in case.there.rglob(pattern):
            os.truncate(file, file.stat().st_size // 2)

    torn = Once(Phase.RESTORE, tear)
    said = fate(case, torn)
    assert torn.done
    # A restore that has begun early may have read what is torn now, but never the memory.
    if not (case.name in EARLY and not lazy and not pattern.startswith("pages")):
        assert said.endswith(HERE if lazy else NOWHERE)
    else:
        assert said == "" or said.endswith(NOWHERE)


@by(Method.CRIU, Method.CRIU_PAGESERVER, Method.CRIU_PRECOPY)
def test_memory_in_an_image_is_wrong(case: Case) -> None:
    def overwrite() -> None:
        largest = max(case.there.rglob("pages-*.img"), key=lambda file: file.stat().st_size)
        with largest.open("r+b") as file:
            file.seek(largest.stat().st_size // 2)
            file.write(bytes(64 << 10))

    wrong = Once(Phase.RESTORE, overwrite)
    assert "pages of the program's memory are wrong" in fate(case, wrong) and wrong.done


def once_at(moment: str, command: str, directory: Path, criu: Criu) -> tuple[Path, Criu]:
    """Return a CRIU that runs a command once, when it calls its scripts at a moment, and a file that exists
    then."""
    script, configuration, done = directory / "act", directory / "criu.conf", directory / "done"
    now = f'[ "$CRTOOLS_SCRIPT_ACTION" != {moment} ] || [ -e {done} ]'
    script.write_text(f"#!/bin/sh\n{now} || {{ : >{done}; {command}; }}\n")
    script.chmod(0o755)
    configuration.write_text(f"action-script {script}\n")
    return done, replace(criu, argv=("env", f"CRIU_CONFIG_FILE={configuration}", *criu.argv))


@every
@pytest.mark.parametrize(
    "moment",
    [
        *("pre-dump", "post-dump"),
        *("pre-restore", "post-setup-namespaces", "post-restore", "pre-resume", "post-resume"),
    ],
)
def test_criu_is_killed(case: Case, moment: str, tmp_path: Path) -> None:
    """By itself, at a moment at which it calls a script."""
    if case.name == "docker" and not moment.endswith("dump"):
        pytest.skip("containerd would then remove all empty control groups of the machine")
    done, criu = once_at(moment, "kill -9 $PPID", tmp_path, case.criu)
    said = fate(replace(case, criu=criu), lambda _: None)
    if moment == "post-setup-namespaces" and not done.exists():
        assert case.name == "native" and said == "", "without namespaces of its own"
        return
    assert done.exists()
    lazy = case.method is Method.CRIU_LAZY
    if moment in ("pre-dump", "post-dump"):
        assert said.endswith(HERE)
    elif moment in ("pre-restore", "post-setup-namespaces"):
        assert said.endswith(HERE if lazy else NOWHERE)
    else:  # the processes may go on without CRIU
        assert said == "" or said.endswith((HERE, NOWHERE)) or "the program runs nowhere" in said


def kill_programs(case: Case, *words: str) -> None:
    """Kill the processes of CRIU of the case whose command line has a word."""
    for pid in case.processes():
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(word.encode() in command for word in words):
                os.kill(pid, signal.SIGKILL)


@by(Method.CRIU_PAGESERVER)
def test_the_page_server_is_killed(case: Case) -> None:
    kill = Once(Phase.FREEZE, lambda: kill_programs(case, "page-server"))
    assert fate(case, kill).endswith(HERE) and kill.done


@by(Method.CRIU_LAZY)
@pytest.mark.parametrize("phase", [Phase.RESTORE, Phase.THAW])
def test_the_connection_of_lazy_pages_is_lost(case: Case, phase: Phase) -> None:
    kill = Once(phase, lambda: kill_programs(case, "lazy-pages"))
    said = fate(case, kill)
    assert kill.done and (said.endswith(HERE) if phase is Phase.RESTORE else "runs nowhere" in said)


@by(Method.CRIU_LAZY)
def test_the_memory_of_lazy_pages_is_lost(case: Case) -> None:
    """With the CRIU at the source. The one that restores waits for processes that wait for it."""
    kill = Once(Phase.RESTORE, lambda: kill_programs(case, "dump", "checkpoint"))
    said = fate(case, kill)
    assert kill.done and (said.endswith(HERE) or "since it had gone on at the destination" in said)


@every
@pytest.mark.parametrize("phase", [Phase.FREEZE, Phase.DUMP, Phase.COPY, Phase.RESTORE])
def test_the_source_is_killed(case: Case, phase: Phase) -> None:
    """After the dump, the source of most methods is gone anyway."""

    def kill() -> None:
        for pid in case.processes():
            with contextlib.suppress(OSError):  # they end with their first process
                if Path(f"/proc/{pid}/comm").read_text() in ("nm-init\n", "nm-keeper\n"):
                    os.kill(pid, signal.SIGKILL)

    lazy = case.method is Method.CRIU_LAZY
    once = Once(Phase.DUMP if lazy and phase is Phase.FREEZE else phase, kill)
    said = fate(case, once)
    assert once.done
    if phase in (Phase.FREEZE, Phase.DUMP):
        assert said.endswith(NOWHERE)
    elif not lazy:
        assert said == ""
    else:
        assert said == "" or "runs nowhere" in said


@every
def test_its_pid_is_taken(case: Case) -> None:
    """Only an instance that gets its old PID on the machine is in the way of another process."""
    alone = case.name == "native" and case.method is not Method.CRIU_LAZY
    pids: list[int] = []
    other: list[subprocess.Popen[bytes]] = []

    def remember() -> None:
        pids.extend(p for p in case.processes() if processes.name_of(p) == "nm-keeper")

    def take() -> None:
        wanted = pids[0]
        for _ in range(200):
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(wanted - 1))
            child = subprocess.Popen(["sleep", "600"])
            if child.pid == wanted:
                other.append(child)
                return
            child.kill()
            child.wait()
            if Path(f"/proc/{wanted}").exists():
                if not alone:
                    return  # a program that restores has taken it
                time.sleep(0.01)  # another program has it, which may end before the restore
        assert Path(f"/proc/{wanted}").exists(), f"PID {wanted} is not to be had"

    def notify(phase: Phase) -> None:
        if phase in (Phase.FREEZE, Phase.DUMP) and not pids:
            remember()
        if phase is Phase.RESTORE and case.method is not Method.CRIU_LAZY:
            take()

    try:
        said = fate(case, notify)
    finally:
        for child in other:
            child.kill()
            child.wait()
    if alone:
        assert said.endswith(NOWHERE), said
    else:
        assert said == ""


@by(Method.CRIU)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_tool_ends_while_the_source_is_frozen(
    criu: Criu, case: Case, number: signal.Signals, tmp_path: Path
) -> None:
    """A process in a frozen control group of version 1 does not end when it is killed."""
    label = f"{case.label}-ended"
    done, criu = once_at("pre-dump", f"kill -{number} $(cat {tmp_path}/tool); sleep 30", tmp_path, criu)
    ended = run_as_a_tool(criu, case, label, "never")
    assert ended.returncode == -number and done.exists(), ended.stderr
    if number is signal.SIGINT:
        assert find_all(HOST, label) == ()
    assert_cleaned(criu, case, label)


@every
@pytest.mark.parametrize("phase", list(Phase))
def test_the_tool_is_killed(criu: Criu, case: Case, phase: Phase) -> None:
    """After nearmetal clean, nothing runs and nothing is left."""
    label = f"{case.label}-killed"
    done = run_as_a_tool(criu, case, label, phase.value)
    left_out = {Phase.FREEZE} if case.method is Method.CRIU_LAZY else set()
    if case.name == "lxc":  # it is not prepared beside its source
        left_out = {Phase.CONNECT}
    expected = 0 if phase in left_out else -signal.SIGKILL
    assert done.returncode == expected, done.stderr
    assert_cleaned(criu, case, label)


@by(Method.CRIU)
def test_files_below_run_need_not_be_executable(criu: Criu, case: Case) -> None:
    """Debian mounts /run with noexec."""
    if case.name == "docker":
        pytest.skip("the daemon would see another /run")
    mounted = 'mount -t tmpfs -o noexec,nosuid,nodev tmpfs /run && exec "$@"'
    around = ("unshare", "--mount", "sh", "-c", mounted, "sh")
    done = run_as_a_tool(criu, case, f"{case.label}-noexec", "never", around)
    assert done.returncode == 0, done.stderr


def run_as_a_tool(
    criu: Criu, case: Case, label: str, phase: str, around: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the event in a process of its own, with another label. It is killed at the begin of a phase.

    around: words before its command.
    """
    argv = [
        *around,
        sys.executable,
        "-m",
        "tests.system.checkpoint_case",
        case.name,
        case.method.value,
        label,
    ]
    return subprocess.run(
        [*argv, str(case.directory), phase, json.dumps(criu.argv)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def assert_cleaned(criu: Criu, case: Case, label: str) -> None:
    killed = Case(
        name=case.name,
        method=case.method,
        criu=criu,
        label=label,
        directory=case.directory,
        root=case.root,
    )
    killed.clean()
    until(lambda: not killed.processes(), f"the end of the processes of {label}")
    assert not processes.labelled(lambda other: other.startswith(label))
    killed.clean()
    assert find_all(HOST, label) == ()
    assert_one_at_most(killed)

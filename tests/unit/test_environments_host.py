"""The parts of the host that instances stand on: reports of helpers, labels, the lock, what mounts say."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patience import until

from nearmetal.errors import BusyError, RunError
from nearmetal.host import labels, leftovers, lock, namespaces, runtime
from nearmetal.host.leftovers import Leftover, LeftoverKind
from nearmetal.host.lock import RunInfo, machine_lock
from nearmetal.host.mounts import own_mounts, unescape
from nearmetal.host.processes import labelled as processes
from nearmetal.host.processes.birth import birth
from nearmetal.host.processes.helper import parse_report


def test_a_report_is_facts_and_last_words() -> None:
    text = b'{"pid": 4, "t": 1}\nnm-box: mount: no\n\n{"first": 9}\n{"torn": 1'
    assert parse_report(text) == ({"pid": 4, "t": 1, "first": 9}, "nm-box: mount: no")


@given(st.binary(max_size=200))
def test_any_report_is_read_without_an_exception(text: bytes) -> None:
    facts, words = parse_report(text)
    whole = text.decode(errors="replace").split("\n")[:-1]
    assert all(type(v) is int for v in facts.values())
    assert not words or all(line.strip() and line in whole for line in words.split("\n"))


def test_the_label_in_an_environment() -> None:
    assert processes.label_of(b"A=1\0NEARMETAL_RUN=nearmetal-x-0a\0B=2\0") == "nearmetal-x-0a"
    assert processes.label_of(b"XNEARMETAL_RUN=no\0") is None
    assert processes.label_of(b"") is None


def test_process_started_during_the_scan_is_killed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent was listed, had it, and was gone before anybody asked whose it was."""
    label, look, missed = "nearmetal-test-born", processes.labelled, [True]

    def late(wanted: Callable[[str], bool]) -> dict[int, str]:
        return {} if missed and missed.pop() else look(wanted)

    monkeypatch.setattr(processes, "labelled", late)
    with subprocess.Popen(["sleep", "3600"], env={processes.LABEL_VARIABLE: label}) as child:
        # Python goes on a moment before the kernel shows the environment of what it has started.
        until(lambda: child.pid in look(lambda other: other == label), "the label")
        processes.kill_labelled(label)
        assert child.wait(600) == -signal.SIGKILL


def test_names_of_processes_need_not_be_utf8() -> None:
    """The kernel cuts names at 15 bytes, perhaps inside a character."""
    program = r"open('/proc/self/comm', 'wb').write(b'nm-\xc3'); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline()
        assert processes.descendant(os.getpid(), "nm-\ufffd") == child.pid
        assert os.getpid() in processes.ancestors(child.pid)
        assert birth(child.pid) is not None
        child.kill()


def test_we_and_those_above_us_are_never_found() -> None:
    above = processes.ancestors(os.getpid())
    assert {os.getpid(), os.getppid()} <= above
    assert not above & processes.labelled(lambda _: True).keys()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "nearmetal.lock"


def other_run(run: str = "nearmetal-1st") -> RunInfo:
    """A run whose process lives: the one above us."""
    pid = os.getppid()
    born = birth(pid)
    assert born is not None
    return RunInfo(pid=pid, born=born, run=run, since=0.0, command="nearmetal quick")


def test_the_lock_names_its_run_and_goes_with_it(place: Path) -> None:
    with machine_lock("nearmetal-1st", command="nearmetal quick", path=place):
        (run,) = lock.living_runs(place)
        assert (run.pid, run.run, run.command) == (os.getpid(), "nearmetal-1st", "nearmetal quick")
        assert stat.S_IMODE(place.stat().st_mode) == 0o666
    assert not place.exists()
    assert lock.living_runs(place) == ()


def test_second_run_is_refused_with_the_name_of_the_first(place: Path) -> None:
    with machine_lock("nearmetal-1st", command="nearmetal quick", path=place):
        with pytest.raises(BusyError) as caught, machine_lock("nearmetal-2nd", command="x", path=place):
            pass
        for part in ("nearmetal-1st", f"pid {os.getpid()}", "nearmetal quick", "--force"):
            assert part in str(caught.value)
        assert [r.run for r in lock.living_runs(place)] == ["nearmetal-1st"]
    with machine_lock("nearmetal-2nd", command="x", path=place):
        pass


def test_a_forced_run_is_named_beside_the_first_and_leaves_it(place: Path) -> None:
    with machine_lock("nearmetal-1st", command="a", path=place):
        with machine_lock("nearmetal-2nd", command="b", force=True, path=place):
            assert [r.run for r in lock.living_runs(place)] == ["nearmetal-1st", "nearmetal-2nd"]
        assert [r.run for r in lock.living_runs(place)] == ["nearmetal-1st"]
        with pytest.raises(BusyError), machine_lock("nearmetal-3rd", command="c", path=place):
            pass


def test_a_lock_left_by_a_dead_run_is_taken_over(place: Path) -> None:
    dead = other_run()
    place.write_text(json.dumps({**asdict(dead), "born": dead.born + 1}) + "\n{torn")
    assert lock.living_runs(place) == ()
    with machine_lock("nearmetal-2nd", command="b", path=place):
        assert [r.run for r in lock.living_runs(place)] == ["nearmetal-2nd"]


def test_a_lock_that_is_a_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    place.symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(RunError, match="cannot open the lock"),
        machine_lock("nearmetal-x", command="b", path=place),
    ):
        pass
    assert not (tmp_path / "elsewhere").exists()


@given(st.text(max_size=200))
def test_any_lock_file_is_read_without_an_exception(text: str) -> None:
    lock.parse_runs(text)


def test_a_run_owns_its_label_and_those_of_its_instances() -> None:
    assert labels.owns("nearmetal-ab", "nearmetal-ab") and labels.owns("nearmetal-ab", "nearmetal-ab-0a")
    assert not labels.owns("nearmetal-ab", "nearmetal-abc")
    assert not labels.owns("nearmetal-ab", "nearmetal-abc-0")


def test_run_netns_may_be_removed_by_another_run_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def exists(self) -> bool:
            return True

        def iterdir(self) -> None:
            raise FileNotFoundError

    monkeypatch.setattr(namespaces, "NETNS_DIRECTORY", Gone())
    namespaces.remove_empty_directory()


def test_a_mount_whose_names_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    line = rb"42 27 0:3 / /run/a\040b" + b"\xe9" + b" rw shared:1 - tmpfs nearmetal-x rw,size=4k\n"
    (tmp_path / "proc/self/mountinfo").write_bytes(line)
    (mount,) = own_mounts(tmp_path)
    assert (os.fsencode(mount.point), mount.source) == (b"/run/a b\xe9", "nearmetal-x")
    assert (mount.device, mount.root, mount.kind) == ("0:3", "/", "tmpfs") and "size=4k" in mount.options


@given(st.text(st.sampled_from("a/ \t\\é"), max_size=20))
def test_unescape_undoes_what_the_kernel_does(text: str) -> None:
    escaped = text.translate({ord(c): f"\\{ord(c):03o}" for c in " \t\n\\"})
    assert unescape(escaped) == text


def test_links_that_go_while_they_are_looked_for(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "NETWORK_DEVICES", machine)
    for name, alias in (("other", b"\xff"), ("ours", b"nearmetal-unitdead-0\n")):
        (machine / name).mkdir()
        (machine / name / "ifalias").write_bytes(alias)
    (machine / "gone/ifalias").mkdir(parents=True)  # cannot be read
    (found,) = leftovers.find("nearmetal-unitdead")
    assert (found.kind, found.detail) == (LeftoverKind.LINK, "ours")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own for scratch directories, names of networks and the lock."""
    (tmp_path / "run").mkdir()
    (tmp_path / "netns").mkdir()
    monkeypatch.setattr(leftovers, "runtime_directory", lambda: tmp_path / "run")
    monkeypatch.setattr(namespaces, "NETNS_DIRECTORY", tmp_path / "netns")
    for module in (leftovers, lock):
        monkeypatch.setattr(module, "lock_path", lambda: tmp_path / "lock")
    return tmp_path


def test_leftovers_of_dead_runs_are_found_and_removed(machine: Path) -> None:
    (machine / "run/nearmetal-unitdead/b0").mkdir(parents=True)
    (machine / "netns/nearmetal-unitdead-hub").touch()
    (machine / "netns/someone-elses").touch()
    found = leftovers.find("nearmetal-unit")
    assert found == (
        Leftover(
            kind=LeftoverKind.NETNS,
            name="nearmetal-unitdead-hub",
            detail=str(machine / "netns/nearmetal-unitdead-hub"),
        ),
        Leftover(
            kind=LeftoverKind.SCRATCH,
            name="nearmetal-unitdead",
            detail=str(machine / "run/nearmetal-unitdead"),
        ),
    )
    for left in (*found, *found):
        leftovers.remove(left)
    assert leftovers.find("nearmetal-unit") == ()
    assert (machine / "netns/someone-elses").exists()


def test_resources_of_a_live_run_are_no_leftovers(machine: Path) -> None:
    (machine / "lock").write_text(json.dumps(asdict(other_run("nearmetal-unitlive"))) + "\n")
    (machine / "run/nearmetal-unitlive").mkdir()
    (machine / "netns/nearmetal-unitlive-a").touch()
    assert leftovers.find("nearmetal-unit") == ()


def test_a_stale_lock_is_found_and_removed(machine: Path) -> None:
    (machine / "lock").write_text("{}\n")
    assert leftovers.find("nearmetal-unit") == (), "it bears no label"
    (lock,) = (left for left in leftovers.find() if left.kind is LeftoverKind.LOCK)
    leftovers.remove(lock)
    assert not (machine / "lock").exists()


def test_scratch_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "runtime_directory", lambda: tmp_path / "nearmetal")
    with runtime.scratch_directory("nearmetal-x") as scratch:
        (scratch / "deep/er").mkdir(parents=True)
        with runtime.scratch_directory("nearmetal-y"):
            pass
        assert scratch.is_dir()
    assert not (tmp_path / "nearmetal").exists()


@pytest.mark.parametrize("allowed", [True, False])
def test_scratch_in_memory_is_unmounted_and_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    done: list[str] = []

    def mount(source: str, target: Path, kind: str, *, options: str) -> None:
        if not allowed:
            raise RunError("mount: not permitted")
        done.append(f"{source} {kind} {target}")

    monkeypatch.setattr(runtime, "runtime_directory", lambda: tmp_path / "nearmetal")
    monkeypatch.setattr(namespaces, "mount", mount)
    monkeypatch.setattr(namespaces, "detach", lambda path: done.append(f"detach {path}"))
    with runtime.memory_scratch_directory("nearmetal-x") as scratch:
        assert scratch.is_dir()
    assert not scratch.exists()
    assert done == ([f"nearmetal-x tmpfs {scratch}", f"detach {scratch}"] if allowed else [])


@pytest.mark.parametrize("kind", ["link", "dangling", "file"])
def test_a_runtime_directory_that_is_not_ours_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").touch()
    monkeypatch.setattr(runtime, "runtime_directory", lambda: tmp_path / kind)
    with pytest.raises(RunError, match="not a directory of this user"):
        runtime.make_runtime_directory()

"""What a run changes on the machine is undone after a kill -9 and after a power cut, and notes that somebody
has forged do nothing."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nearmetal.api import cleaning
from nearmetal.cli import machine
from nearmetal.environments import leftovers as every
from nearmetal.environments.containers.docker import Docker
from nearmetal.environments.leftovers import Cleaned, clean_up
from nearmetal.errors import RunError
from nearmetal.host import Host, LocalHost, namespaces, notes
from nearmetal.host.cgroups import controllers
from nearmetal.host.facts import devices
from nearmetal.host.leftovers import Leftover, LeftoverKind, find, remove
from nearmetal.host.notes import Controllers, Directories, Functions, read_notes, write_note
from nearmetal.host.outside import outside_directory, remove_directories
from nearmetal.images.store import ImageStore
from nearmetal.network.devices import register_give_back

pytestmark = pytest.mark.attack

HOST = LocalHost()
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and devices need root")


@pytest.fixture(autouse=True)
def base(notes_base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Notes in a directory of the test, and no daemons."""
    monkeypatch.setattr(every, "_managers", lambda: ())
    return notes_base


@pytest.fixture
def label() -> str:
    return f"nearmetal-{secrets.token_hex(3)}"


BEFORE = """
import sys, time
from pathlib import Path
from nearmetal.host import LocalHost, notes
from nearmetal.host.cgroups import controllers
from nearmetal.host.facts import devices
label, place = sys.argv[1], Path(sys.argv[2])
notes.ROOT_STATE = Path(sys.argv[3])
"""
AFTER = """
    print("up", flush=True)
    time.sleep(3600)
"""


def kill_in(code: str, label: str, place: Path, base: Path) -> None:
    """Run a program until it has changed the machine, then kill it."""
    argv = [sys.executable, "-c", BEFORE + code + AFTER, label, str(place), str(base)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd="/") as tool:
        assert tool.stdout is not None and tool.stdout.readline() == "up\n"
        tool.kill()


def removed(cleaned: Cleaned) -> list[LeftoverKind]:
    assert cleaned.left == () and cleaned.failures == (), cleaned
    return [item.kind for item in cleaned.found]


def reboot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "boot_id").write_text("another\n")
    monkeypatch.setattr(notes, "BOOT_ID", str(tmp_path / "boot_id"))


@pytest.fixture
def numvfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(devices, "SYS", tmp_path)
    file = tmp_path / "class/net/ens1/device/sriov_numvfs"
    file.parent.mkdir(parents=True)
    file.write_text("0\n")
    return file


FUNCTIONS = """
from nearmetal.host.runtime import memory_scratch_directory
devices.SYS, devices._SETTLES, devices.functions = place, 0, lambda *_: ("a", "b")
with memory_scratch_directory(label), devices.make_functions(LocalHost(), "ens1", 2, label):
"""


def test_virtual_functions_of_a_killed_run_are_switched_off(
    numvfs: Path, tmp_path: Path, base: Path, label: str
) -> None:
    """The scratch directory of the run is a tmpfs, which is unmounted first if anything is."""
    label = label.replace("nearmetal-", "nearmetal-test")  # runs beside this test clean up others
    kill_in(FUNCTIONS, label, tmp_path, base)
    assert numvfs.read_text() == "2\n"
    kinds = removed(clean_up(HOST, label, quietly=True))
    assert kinds[0] is LeftoverKind.FUNCTIONS and kinds[-1] is LeftoverKind.SCRATCH
    assert numvfs.read_text() == "0\n" and read_notes() == ((), ())


def test_virtual_functions_that_stay_are_not_called_removed(
    numvfs: Path, tmp_path: Path, base: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_note(label, Functions(card="ens1", before=0, made=2))
    numvfs.write_text("2\n")
    monkeypatch.setattr(Path, "write_text", lambda *_: None)  # as a driver that ignores it
    cleaned = clean_up(HOST, label, quietly=True)
    assert [item.kind for item in cleaned.left] == [LeftoverKind.FUNCTIONS]
    assert "ens1 still has 2 virtual functions\n  next: echo 0 >" in cleaned.failures[0]


DIRECTORIES = """
from nearmetal.host.outside import outside_directory
with outside_directory(place / f"{label}-work") as path, outside_directory(place / f"{label}-0-1-disk"):
    (path / "data").write_text("results")
"""


def test_directories_on_a_disk_are_found_after_a_power_cut(
    tmp_path: Path, base: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, other = tmp_path / "disk", f"nearmetal-{secrets.token_hex(3)}"
    for name in (f"{other}-work", f"{label}x"):
        (disk / name).mkdir(parents=True)
    kill_in(DIRECTORIES, label, disk, base)
    reboot(monkeypatch, tmp_path)
    assert removed(clean_up(HOST, label, quietly=True)) == [LeftoverKind.STORAGE] * 2
    assert {path.name for path in disk.iterdir()} == {f"{other}-work", f"{label}x"}
    assert read_notes() == ((), ())


def test_after_a_reboot_only_files_are_left_to_undo(
    numvfs: Path, tmp_path: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_note(label, Functions(card="ens1", before=0, made=2))
    numvfs.write_text("2\n")  # somebody else has made them since
    reboot(monkeypatch, tmp_path)
    assert removed(clean_up(HOST, label, quietly=True)) == [LeftoverKind.NOTE]
    assert numvfs.read_text() == "2\n" and read_notes() == ((), ())


@needs_root
def test_a_file_system_that_is_mounted_in_a_leftover_keeps_its_files(tmp_path: Path, label: str) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").touch()
    with outside_directory(tmp_path / f"{label}-work") as work:
        (work / "m").mkdir()
        subprocess.run(["mount", "--bind", precious, work / "m"], check=True)
        assert [item.kind for item in clean_up(HOST, label, quietly=True).found] == [LeftoverKind.STORAGE]
        assert not work.exists() and (precious / "thesis").exists()


class Kernel:
    """Switches controllers and moves processes in a tree of plain files, as the kernel does."""

    def __init__(self, group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.group = group
        group.mkdir()
        for name, text in (("controllers", "cpu io memory"), ("subtree_control", "io"), ("procs", "")):
            (group / f"cgroup.{name}").write_text(f"{text}\n")
        monkeypatch.setattr(controllers, "write_control", write_control)

    @property
    def on(self) -> set[str]:
        return set((self.group / "cgroup.subtree_control").read_text().split())


def write_control(path: Path, text: str) -> None:
    there = set(path.read_text().split())
    there = there - {text[1:]} if text.startswith("-") else there | {text.lstrip("+")}
    path.write_text(" ".join(sorted(there)) + "\n")


CONTROLLERS = """
def write_control(path, text):
    path.write_text(path.read_text().strip() + " " + text[1:] + "\\n")
controllers.write_control = write_control
controllers._label = lambda: label
assert controllers.enable(place, {"cpu", "memory", "io"}) == {"cpu", "memory", "io"}
if True:
"""


def test_controllers_of_a_killed_run_are_turned_off(
    tmp_path: Path, base: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path / "group", monkeypatch)
    kill_in(CONTROLLERS, label, kernel.group, base)
    assert kernel.on == {"cpu", "memory", "io"}
    assert removed(clean_up(HOST, label, quietly=True)) == [LeftoverKind.CONTROLLERS]
    assert kernel.on == {"io"}, "what was on before stays on"


def test_controllers_that_another_run_uses_stay_on(
    tmp_path: Path, base: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run has found them on; it turns them off when it ends, after the killed one is cleaned."""
    kernel = Kernel(tmp_path / "group", monkeypatch)
    kill_in(CONTROLLERS, label, kernel.group, base)
    at_exit: list[tuple[Callable[..., None], Sequence[object]]] = []
    monkeypatch.setattr(atexit, "register", lambda call, *args: at_exit.append((call, args)))
    assert controllers.enable(kernel.group, {"cpu", "memory"}) == {"cpu", "memory"}
    assert removed(clean_up(HOST, label, quietly=True)) == [LeftoverKind.CONTROLLERS]
    assert kernel.on == {"cpu", "memory", "io"}
    for call, args in at_exit:
        call(*args)
    assert kernel.on == {"io"} and read_notes() == ((), ())


def test_processes_of_a_job_return_to_their_group(
    tmp_path: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path / "group", monkeypatch)
    leaf = kernel.group / "nearmetal-worker-5"
    leaf.mkdir()
    (leaf / "cgroup.procs").write_text("77\n")

    def move(path: Path, text: str) -> None:
        write_control(path, text)
        (leaf / "cgroup.procs").write_text("")

    monkeypatch.setattr(controllers, "write_control", move)
    monkeypatch.setattr(Path, "rmdir", lambda path: path.rename(tmp_path / "gone"))
    change = Controllers(group=str(kernel.group), names=("cpu",), leaf=leaf.name)
    controllers.restore_controllers(write_note(label, change))
    assert (kernel.group / "cgroup.procs").read_text().split() == ["77"] and not leaf.exists()


MAKING = """
import os
from nearmetal.images.store import ImageStore
with ImageStore(place).making("mine", "import-mine") as work:
    (work / "tree").mkdir()
    (work / "tree/fifo").touch() if os.geteuid() else os.mknod(work / "tree/null", 0o20666, os.makedev(1, 3))
"""


def test_the_tree_of_a_killed_import_is_removed(
    tmp_path: Path, base: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = ImageStore(tmp_path / "nearmetal/images")
    monkeypatch.setattr(cleaning, "clean_up", lambda _, spare: Cleaned(found=(), left=()))
    with store.making("other", "import-other"):
        kill_in(MAKING, label, store.directory, base)
        (tree,) = (store.directory / "making/import-mine").iterdir()
        cleaned = cleaning.clean()
        assert [(i.kind, i.name) for i in cleaned.found] == [(LeftoverKind.IMAGE, "import-mine")]
        assert not tree.exists() and cleaned.left == ()
        assert (store.directory / "making/import-other").is_dir(), "its maker lives"


def test_a_daemon_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'it hangs' >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(LocalHost, "is_root", lambda _: True)
    monkeypatch.setattr(every, "_managers", lambda: (Docker(),))
    monkeypatch.setattr(every, "find", lambda prefix, spare: ())
    machine._print_cleaned(cleaning.clean(), dry_run=False, where="on this machine")
    said = capsys.readouterr()
    assert said.out == "nothing of nearmetal is found on this machine\n"
    assert (
        said.err.startswith("docker does not answer: its containers were not looked at (")
        and "it hangs" in said.err
    )


def test_the_note_of_a_daemon_that_does_not_answer_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, nobody would look for the guests when the daemon answers again."""

    class Silent:
        name, note, silent = "keeper", "place", ("keeper does not answer: its guests were not looked at",)

        def instance_names(self, host: Host) -> tuple[str, ...]:
            return ()

        def remove_instance(self, host: Host, name: str) -> None:
            raise AssertionError

        def not_searched(self, host: Host) -> tuple[str, ...]:
            return self.silent

    keeper, state = Silent(), tmp_path / "nearmetal-0a1b2c-0-0-state"
    state.mkdir()
    (state / "place").touch()
    monkeypatch.setattr(every, "_managers", lambda: (keeper,))
    scratch = Leftover(kind=LeftoverKind.SCRATCH, name=state.name, detail=str(state))
    with pytest.raises(RunError, match="is kept: keeper does not answer"):
        every.remove_any(HOST, scratch)
    keeper.silent = ()  # type: ignore[assignment]
    every.remove_any(HOST, scratch)
    assert not state.exists()


def test_a_run_that_begins_between_search_and_removal_is_spared(
    tmp_path: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two leftovers of one search: the first is removed, then the run with the label of the second begins."""
    other = f"nearmetal-{secrets.token_hex(3)}"
    alive: set[str] = set()
    monkeypatch.setattr("nearmetal.host.leftovers.living_labels", lambda: alive)
    for name in (label, other):
        (tmp_path / f"{name}-work").mkdir()
        write_note(name, Directories(parent=str(tmp_path)))
    first, second = other, label  # the last change is undone first

    def begin(host: object, leftover: Leftover) -> None:
        assert leftover.name == f"{first}-work"
        alive.add(second)

    monkeypatch.setattr(every, "remove_any", begin)
    found = [item for item in find() if item.name in (f"{first}-work", f"{second}-work")]
    monkeypatch.setattr(every, "find_all", lambda *_, **__: tuple(found))
    assert [item.name for item in clean_up(HOST).found] == [f"{first}-work"]


def forge(base: Path, name: str, text: str | bytes) -> Path:
    note = write_note("nearmetal-ffffff", Directories(parent="/nowhere"))
    notes.drop_note(note)
    file = note.file.with_name(name)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def content(kind: str, **values: object) -> str:
    return json.dumps({"boot": notes.boot_id(), "change": {"type": kind, **values}})


def forged(victim: Path, label: str) -> Iterator[tuple[str, str | bytes, str]]:
    """Names and contents of notes, and what is said of them."""
    card = {"alias": "", "mtu": 1, "queue_length": 1, "up": False, "offloads": {}, "name": "lo"}
    name = f"{label}.1.json"
    yield name, content("Directories", parent="/etc"), "nearmetal makes no directory in /etc"
    yield name, content("Directories", parent=f"{victim}/../victim"), "is not an absolute path"
    yield name, content("Directories", parent="victim"), "is not an absolute path"
    yield name, content("Directories", parent=f"{victim.parent}/link"), "is a symbolic link now"
    yield (
        name,
        content("Functions", card="../../victim", before=0, made=2),
        "is not the name of a network",
    )
    yield name, content("Functions", card="..", before=0, made=2), "is not the name of a network device"
    yield name, content("Card", netns="/proc/1/ns/net", **card), "is not a network namespace of"
    yield name, content("Card", netns="/run/netns/other", **card), "is not a network namespace of"
    yield name, content("Controllers", group=str(victim), names=["cpu"]), "is not a control group"
    yield name, content("Directories", parent="/tmp", command="rm"), "unknown field"
    yield name, content("Command", argv="rm"), "Invalid value"
    yield name, "{", "truncated"
    yield name, b"\xff\xfe", "JSON is malformed"
    yield name, " " * (1 << 17), "has more than 65536 bytes"
    yield f"{label}.x.json", content("Directories", parent="/tmp"), "the name is not that of a note"


def test_forged_notes_do_nothing_and_are_named(base: Path, tmp_path: Path, label: str) -> None:
    victim = tmp_path / "victim"
    (victim / f"{label}-data").mkdir(parents=True)
    (tmp_path / "link").symlink_to(victim)
    for name, text, why in forged(victim, label):
        file = forge(base, name, text)
        cleaned = clean_up(HOST, label, quietly=True)
        assert len(cleaned.failures) == 1 and why in cleaned.failures[0], (text, cleaned)
        assert str(file) in cleaned.failures[0] or "Card" in str(text) or "Functions" in str(text)
        assert file.exists() and [i.name for i in cleaned.left] == [label]
        assert (victim / f"{label}-data").is_dir()
        file.unlink()


@needs_root
@pytest.mark.parametrize("what", ["note", "directory", "link", "fifo", "open"])
def test_notes_that_another_user_could_have_made_do_nothing(
    base: Path, tmp_path: Path, label: str, what: str
) -> None:
    (tmp_path / f"{label}-data").mkdir()
    file = forge(base, f"{label}.1.json", content("Directories", parent=str(tmp_path)))
    match what:
        case "note":
            os.chown(file, 65534, 65534)
        case "directory":
            os.chown(file.parent, 65534, 65534)
        case "link":
            file.rename(tmp_path / "elsewhere")
            file.symlink_to(tmp_path / "elsewhere")
        case "fifo":
            file.unlink()
            os.mkfifo(file)
        case "open":
            file.parent.chmod(0o777)
    clean_up(HOST, label, quietly=True)
    assert (tmp_path / f"{label}-data").is_dir()
    assert read_notes()[0] == () and len(read_notes()[1]) == 1


def test_a_directory_that_another_user_has_made_is_kept(
    tmp_path: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_note(label, Directories(parent=str(tmp_path)))
    (tmp_path / f"{label}-link").symlink_to("/etc")
    (tmp_path / f"{label}-theirs").mkdir()
    monkeypatch.setattr("nearmetal.host.outside.os.geteuid", lambda: 12345)
    assert not [item for item in find(label) if item.kind is LeftoverKind.STORAGE]


def _functions(stack: ExitStack, tmp_path: Path, label: str) -> None:
    stack.enter_context(devices.make_functions(HOST, "ens1", 2, label))


def _directory(stack: ExitStack, tmp_path: Path, label: str) -> None:
    stack.enter_context(outside_directory(tmp_path / f"{label}-work"))


def _controllers(stack: ExitStack, tmp_path: Path, label: str) -> None:
    controllers.enable(tmp_path / "group", {"cpu", "memory"})


def _card(stack: ExitStack, tmp_path: Path, label: str) -> None:
    netns = str(namespaces.NETNS_DIRECTORY / f"{label}-a")
    register_give_back(stack, HOST, label, {"ens1": netns})
    (tmp_path / "moved").write_text("")


@pytest.mark.parametrize("make", [_functions, _directory, _controllers, _card])
def test_a_note_is_on_the_disk_before_the_change(
    make: Callable[[ExitStack, Path, str], None],
    numvfs: Path,
    tmp_path: Path,
    label: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The order of calls: the file is synced, then it gets its name, then the directory is synced."""
    calls: list[str] = []
    kernel = Kernel(tmp_path / "group", monkeypatch)
    fsync, link, mkdir, write_text = os.fsync, os.link, Path.mkdir, Path.write_text

    def synced(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        calls.append("sync directory" if path.is_dir() else "sync file")
        fsync(fd)

    def linked(*args: Path) -> None:
        calls.append("name")
        link(*args)

    def changed(path: Path) -> None:
        if not str(path).startswith(str(tmp_path / "notes")):
            calls.append("change")

    def made(path: Path, mode: int = 0o777) -> None:
        changed(path)
        mkdir(path, mode)

    def written(path: Path, text: str) -> int:
        changed(path)
        return write_text(path, text)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(Path, "mkdir", made)
    monkeypatch.setattr(Path, "write_text", written)
    monkeypatch.setattr(devices, "_SETTLES", 0)
    monkeypatch.setattr(devices, "functions", lambda *_: ("a", "b"))
    state = devices.DeviceState(name="ens1", alias="", mtu=1500, queue_length=5, up=True)
    monkeypatch.setattr("nearmetal.network.devices.device_state", lambda *_: state)
    monkeypatch.setattr("nearmetal.network.devices.give_back", lambda _: None)
    with ExitStack() as stack:
        make(stack, tmp_path, label)
        order = ["sync file", "name", "sync directory", "change"]
        assert calls[: len(order)] == order and set(calls[len(order) :]) <= {"change"}
    assert kernel.group.exists()


def _leave(label: str, path: Path) -> None:
    with outside_directory(path):
        pass
    notes._settle_quietly(read_notes()[0][0], remove_directories)  # as at the exit of this process


def _clean(label: str, path: Path) -> None:
    write_note(label, Directories(parent=str(path.parent)))
    path.mkdir()
    assert removed(clean_up(HOST, label, quietly=True)) == [LeftoverKind.STORAGE]


@pytest.mark.parametrize("remove_it", [_leave, _clean])
def test_a_directory_is_gone_from_the_disk_before_its_note(
    remove_it: Callable[[str, Path], None], tmp_path: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be on different file systems, so that after a power cut only the directory could be back."""
    path, calls = tmp_path / f"{label}-work", list[str]()
    fsync, unlink = os.fsync, Path.unlink

    def synced(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink() == tmp_path:
            calls.append(f"sync, {'with' if path.exists() else 'without'} the directory")
        fsync(fd)

    def unlinked(file: Path, missing_ok: bool = False) -> None:
        if file.name.startswith(label) and file.suffix == ".json":
            calls.append("note removed")
        unlink(file, missing_ok)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "unlink", unlinked)
    remove_it(label, path)
    assert calls[-2:] == ["sync, without the directory", "note removed"]
    assert read_notes() == ((), ())


def test_clean_removes_directories_of_any_depth(
    make_deep: Callable[[Path], None], tmp_path: Path, label: str
) -> None:
    write_note(label, Directories(parent=str(tmp_path)))
    (tmp_path / f"{label}-work").mkdir()
    make_deep(tmp_path / f"{label}-work")
    assert removed(clean_up(HOST, label, quietly=True)) == [LeftoverKind.STORAGE]


def test_a_change_without_a_note_is_not_made(
    numvfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is full."""
    monkeypatch.setattr(notes, "runtime_directory", lambda: tmp_path / "run")
    monkeypatch.setattr(notes, "make_runtime_directory", lambda: None)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(RunError, match="No space left"),
        devices.make_functions(HOST, "ens1", 2, "nearmetal-0a1b2c"),
    ):
        pass
    assert numvfs.read_text() == "0\n"
    assert read_notes()[0] == ()


def test_a_card_that_was_given_back_meanwhile_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was found as a link of a run by its mark, and lost the mark before its turn came."""
    monkeypatch.setattr("nearmetal.host.leftovers.NETWORK_DEVICES", tmp_path)
    (tmp_path / "ens1").mkdir()
    (tmp_path / "ens1/ifalias").write_text("cable\n")

    def refuse() -> None:
        raise AssertionError("the kernel is asked for a change")

    monkeypatch.setattr("pyroute2.IPRoute", refuse)
    remove(Leftover(kind=LeftoverKind.LINK, name="nearmetal-0a1b2c-net0-taken", detail="ens1"))
    assert (tmp_path / "ens1/ifalias").read_text() == "cable\n"


@needs_root
def test_a_card_is_given_back_although_its_namespace_was_never_made(
    tmp_path: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was killed when the name of the namespace was a plain file."""
    monkeypatch.setattr(namespaces, "NETNS_DIRECTORY", tmp_path)
    monkeypatch.setattr("nearmetal.host.cards.NETWORK_DEVICES", tmp_path / "net")
    (tmp_path / "net/ens1").mkdir(parents=True)
    (tmp_path / "net/ens1/ifalias").write_text("cable\n")
    netns = tmp_path / f"{label}-a"
    netns.touch()
    settings: dict[str, Any] = {"mtu": 1500, "queue_length": 5, "up": True, "offloads": {"tso": True}}
    write_note(label, notes.Card(name="ens1", netns=str(netns), alias="cable", **settings))
    assert removed(clean_up(HOST, label, quietly=True))[0] is LeftoverKind.CARD
    assert read_notes() == ((), ()) and not netns.exists()


def test_the_worker_of_a_killed_run_changes_nothing_any_more() -> None:
    """It is killed with its parent, and ends if its parent has ended before it was ready."""
    code = "import os, sys; from nearmetal.host.processes.parent import die_with_parent; die_with_parent({})"
    for parent, status in ((os.getpid(), 0), (1, 1)):
        done = subprocess.run([sys.executable, "-c", code.format(parent)], check=False)
        assert done.returncode == status

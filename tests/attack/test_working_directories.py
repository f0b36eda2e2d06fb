"""The working directories of programs, and the files of sshd, lie where the root user of an instance may
replace anything at any time: nearmetal, as root of the machine, writes, reads and executes nothing through
it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearmetal.environments import Seat
from nearmetal.errors import TrialFailedError
from nearmetal.host import Completed
from nearmetal.host.removal import discard_tree
from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.node.ssh import SshKeys, ssh_servers
from nearmetal.subjects.launches.staging import empty, fill, forget_outputs, read_outputs

pytestmark = pytest.mark.attack


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A directory of the machine with a file whose name a program's file has too."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root")
    return tmp_path / "etc"


@pytest.fixture
def work(tmp_path: Path, machine: Path) -> Path:
    """A working directory that was replaced by a link to it."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "w").symlink_to(machine)
    return tmp_path / "work" / "w"


def test_a_replaced_working_directory_is_not_filled(work: Path, machine: Path) -> None:
    source = machine.with_name("source")
    source.write_text("hostile")
    for texts, files in (({"passwd": "hostile"}, {}), ({}, {str(source): "passwd"})):
        with pytest.raises(TrialFailedError, match="leads out of the directory"):
            fill(work, texts, files)
    assert (machine / "passwd").read_text() == "root"


def test_a_planted_link_is_replaced_by_the_file(work: Path, machine: Path) -> None:
    source = machine.with_name("source")
    source.mkdir()
    (source / "b").write_text("mine")
    work.unlink()
    work.mkdir()
    for name in ("a", "b"):
        (work / name).symlink_to(machine / "passwd")
    fill(work, {"a": "mine"}, {str(source): "."})
    assert (work / "a").read_text() == (work / "b").read_text() == "mine"
    assert (machine / "passwd").read_text() == "root"


def test_nothing_is_read_or_removed_through_a_replaced_directory(work: Path, machine: Path) -> None:
    with pytest.raises(TrialFailedError, match="leads out of the directory"):
        forget_outputs(work, ["passwd"])
    with pytest.raises(TrialFailedError, match="leads out of the directory"):
        read_outputs(work, ["passwd"])
    with pytest.raises(TrialFailedError, match="cannot be made anew"):
        empty(work)
    assert (machine / "passwd").read_text() == "root"


def test_a_deep_directory_ends_no_run(tmp_path: Path, make_deep: Callable[[Path], None]) -> None:
    (tmp_path / "deep").mkdir()
    make_deep(tmp_path / "deep")
    discard_tree(tmp_path / "deep")
    assert not (tmp_path / "deep").exists()


def test_files_are_made_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        UntrustedDirectory(tmp_path).write_bytes("own", b"")
        UntrustedDirectory(tmp_path).write_bytes("of-an-image", b"", 0o644)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"own": 0o600, "of-an-image": 0o644}


def test_an_instance_does_not_choose_what_ssh_of_the_machine_starts(tmp_path: Path, machine: Path) -> None:
    seen, private = tmp_path / "seen", tmp_path / "private"
    for directory in (seen, private):
        directory.mkdir()
    logs = list[Path]()

    class Host:
        """Starts programs in an instance."""

        def run(self, argv: Sequence[str], **_: Any) -> Completed:
            return Completed(argv=tuple(argv), returncode=0, stdout="", stderr="", seconds=0.0)

        def start(self, argv: Sequence[str], *, stdout: Path, **_: Any) -> Any:
            logs.append(stdout)
            stdout.write_text("Server listening")
            return SimpleNamespace(kill=lambda: None, poll=lambda: None)

    keys = SshKeys(directory=tmp_path, user="root", ssh="/usr/bin/ssh", sshd="/usr/sbin/sshd")
    for name in ("sshd-0.conf", "sshd-0.log", "ssh.conf"):
        (seen / name).symlink_to(machine / "passwd")
    instance: Any = SimpleNamespace(label="nearmetal-1-0", hostname="nm0", command=list)
    seat: Any = SimpleNamespace(address="10.99.0.2")
    given: tuple[Any, SshKeys, list[Any], list[Seat]] = (Host(), keys, [instance], [seat])
    with ssh_servers(*given, directory=seen, private=private, environment={}) as client:
        assert Path(client[-1]).parent == private and logs[0].parent == private
    assert (machine / "passwd").read_text() == "root"

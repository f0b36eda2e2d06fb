"""Directories of checkpoints that somebody else has made or changed: nothing of them is run without --trust,
and with it no option, link or FIFO does anything that a checkpoint cannot do."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearmetal.api.moves import moving, past
from nearmetal.api.moves.locks import only_one, only_one_of
from nearmetal.cli import moving as cli
from nearmetal.environments.external import Saved, find_external, named, write_begun, write_saved
from nearmetal.environments.external.machine import build_id
from nearmetal.environments.external.saved import (
    BEGUN,
    HANDED_OVER,
    MANIFEST,
    RESTORED,
    require_new,
    write_handed_over,
    write_restored,
)
from nearmetal.errors import NearmetalError, UsageError
from nearmetal.host import LocalHost
from nearmetal.lifecycle import Method

pytestmark = [pytest.mark.attack, pytest.mark.timeout(60)]  # a FIFO would block for ever
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
OWN = {"options": "--tcp-established --ext-unix-sk --shell-job", "pids": "4194000"}


@pytest.fixture(autouse=True)
def nothing_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command lines that would have been started."""
    started: list[str] = []

    def start(self: object, argv: Any, **_: object) -> Any:
        started.append(" ".join(argv))
        raise AssertionError(f"started: {argv}")

    monkeypatch.setattr(LocalHost, "run", start)
    monkeypatch.setattr(LocalHost, "start", start)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return started


def checkpoint(directory: Path, name: str = "pid:4194000", own: dict[str, str] = OWN) -> Path:
    """A checkpoint that this user has made."""
    images = directory / "images"
    require_new(images)
    (images / "pages-1.img").write_bytes(bytes(4096))
    write_saved(images, Saved(name=name, method=Method.CRIU, own=own))
    return images


def change(images: Path, how: Callable[[dict[str, Any]], object]) -> None:
    description = json.loads((images / MANIFEST).read_text())
    how(description)
    (images / MANIFEST).write_text(json.dumps(description))


def unpacked(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from another user or machine, whatever the owner of the files."""
    monkeypatch.setenv("XDG_STATE_HOME", str(images.parent / "other state"))


def refused(images: Path, text: str) -> None:
    with pytest.raises(UsageError, match=text) as error:
        moving.restore(images)
    assert error.value.remedy.endswith("--trust")
    plan = moving.plan_restore(images)
    assert plan.prevented and [finding.subject for finding in plan.findings] == ["origin"]


def test_an_unpacked_checkpoint_is_not_restored_without_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = checkpoint(tmp_path)
    unpacked(images, monkeypatch)
    refused(images, "was not written by this user on this machine")


@pytest.mark.parametrize("agrees", [True, False])
def test_a_terminal_asks_before_a_checkpoint_of_somebody_else_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agrees: bool
) -> None:
    trusted: list[bool] = []

    def restore(*_: object, trust: bool) -> Any:
        trusted.append(trust)
        if not trust:
            raise moving.UntrustedError("not written by this user")

    monkeypatch.setattr(moving, "restore", restore)
    monkeypatch.setattr(cli, "_show", lambda *_, **__: None)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: agrees)
    for name in ("stdin", "stderr"):
        monkeypatch.setattr(getattr(sys, name), "isatty", lambda: True)
    status = cli.restore(tmp_path, "pid:7", trust=False, json=False, dry_run=False)
    assert trusted == [False, True][: 1 + agrees] and (status == 0) is agrees
    with pytest.raises(moving.UntrustedError):
        cli.restore(tmp_path, "pid:7", trust=False, json=True, dry_run=False)


@ROOT
def test_a_key_of_another_user_signs_nothing(tmp_path: Path) -> None:
    images = checkpoint(tmp_path)
    os.chown(tmp_path / "state" / "nearmetal" / "checkpoint.key", 1234, -1)
    refused(images, "was not written by this user")


def test_a_look_at_a_checkpoint_makes_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = checkpoint(tmp_path)
    unpacked(images, monkeypatch)
    moving.plan_restore(images)
    assert not (tmp_path / "other state").exists()


def test_a_changed_description_is_noticed(tmp_path: Path) -> None:
    images = checkpoint(tmp_path)
    change(images, lambda read: read["own"].update(pids="4194001"))
    refused(images, "was not written by this user")
    change(images, lambda read: read.pop("signature"))
    refused(images, "was not written by this user")
    change(images, lambda read: read.update(signature="é"))
    refused(images, "was not written by this user")


@ROOT
@pytest.mark.parametrize("name", [".", MANIFEST, "pages-1.img"])
def test_files_of_another_user_are_not_restored_without_trust(tmp_path: Path, name: str) -> None:
    images = checkpoint(tmp_path)
    os.chown(images / name, 1234, -1)
    refused(images, "belongs to user 1234")


@pytest.mark.parametrize("name", [".", "pages-1.img"])
def test_files_that_others_may_write_are_not_restored_without_trust(tmp_path: Path, name: str) -> None:
    images = checkpoint(tmp_path)
    (images / name).chmod(0o777)
    refused(images, "other users may write to")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("pid:4194000", {"options": "--action-script /bin/true"}),
        ("pid:4194000", {"options": "--tcp-established --config=/tmp/x"}),
        ("pid:4194000", {"options": "--exec-cmd"}),
        ("pid:4194000", {"lib": "/tmp/plugins"}),
        ("pid:4194000", {"pids": "-1"}),
        ("pid:4194000", {"pids": "4194000\n1"}),
        ("runc:web", {"bundle": "relative"}),
        ("runc:web", {"bundle": "/b", "root": "/evil"}),
        ("lxc:web", {"config": "/evil"}),
    ],
)
def test_what_no_checkpoint_contains_is_refused_with_trust_too(
    tmp_path: Path, name: str, own: dict[str, str]
) -> None:
    images = checkpoint(tmp_path, name, own)
    for attempt in (moving.restore, moving.plan_restore):
        with pytest.raises(UsageError, match="which no checkpoint of"):
            attempt(images, trust=True)


@pytest.mark.parametrize(
    "name", ["runc:--root=/evil", "lxc:-P/evil", "xl:-h", "libvirt:--help", "pid:1", "pid:-1"]
)
def test_a_name_is_no_option_and_never_the_first_process(tmp_path: Path, name: str) -> None:
    images = checkpoint(tmp_path, name, {})
    with pytest.raises(UsageError, match=r"is no name of an instance|is not a PID"):
        moving.restore(images, trust=True)
    with pytest.raises(UsageError):
        named(name)
    with pytest.raises(UsageError):
        find_external(LocalHost(), name)


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    images = checkpoint(tmp_path)
    change(images, lambda read: read.update(command="/bin/true"))
    with pytest.raises(UsageError, match="is damaged"):
        moving.restore(images, trust=True)


@pytest.mark.parametrize(
    "machine",
    [
        {"files": {"/etc/passwd": "size"}},
        {"files": ["/etc/passwd"]},
        {"addresses": ["example.org:80"]},
        {"addresses": ["127.0.0.1:99999"]},
        {"addresses": [7]},
        {"kernel": 7},
        [],
    ],
)
def test_a_description_of_another_machine_is_data(tmp_path: Path, machine: object) -> None:
    """No name is looked up, and nothing ends in a traceback."""
    images = checkpoint(tmp_path)
    change(images, lambda read: read.update(machine=machine))
    with pytest.raises(UsageError, match="is damaged"):
        moving.plan_restore(images, trust=True)


@pytest.mark.parametrize("kind", ["fifo", "link", "loop"])
@pytest.mark.parametrize("name", [MANIFEST, "pages-1.img", "inventory.img"])
def test_links_and_fifos_in_a_checkpoint_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    images = checkpoint(tmp_path)
    secret = tmp_path / "secret"
    secret.write_bytes((images / MANIFEST).read_bytes())
    (images / name).unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(images / name)
    else:
        (images / name).symlink_to(secret if kind == "link" else name)
    with pytest.raises(NearmetalError):
        moving.plan_restore(images, trust=True)
    with pytest.raises(NearmetalError):
        moving.restore(images, trust=True)


def test_a_fifo_in_place_of_the_directory_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(NearmetalError):
        moving.restore(tmp_path / "fifo")
    with only_one_of(tmp_path / "fifo"):
        pass


def test_a_file_that_a_description_names_is_read_only_if_it_is_regular(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert build_id(tmp_path / "fifo") == "" == build_id(Path("/dev/zero"))


def test_the_memory_of_programs_is_for_this_user_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        images = checkpoint(tmp_path)
        write_begun(images, Saved(name="pid:7", method=Method.CRIU))
        write_handed_over(images, "node7", Path("/there"))
        write_restored(images, "pid:7")
    finally:
        os.umask(before)
    assert stat.S_IMODE(images.stat().st_mode) == 0o700
    for name in (MANIFEST, BEGUN, HANDED_OVER, RESTORED):
        assert stat.S_IMODE((images / name).stat().st_mode) == 0o600, name
    key = tmp_path / "state" / "nearmetal" / "checkpoint.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_the_lock_and_the_earlier_moves_are_files_of_this_user(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "state" / "nearmetal"
    directory.mkdir(parents=True)
    for name in ("moves.lock", "moves.jsonl"):
        if kind == "fifo":
            os.mkfifo(directory / name)
        else:
            (tmp_path / "victim").touch()
            (directory / name).symlink_to(tmp_path / "victim")
    assert past.past_moves() == []
    with pytest.raises(UsageError), only_one("pid:7"):
        pass

"""Checkpoints of Docker and crun without a daemon or a container: who refuses, and which files are used."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_environments_oci import BINDS, request

from nearmetal.environments.containers import docker_checkpoints, docker_runc
from nearmetal.environments.containers.docker import container_words
from nearmetal.environments.containers.docker_checkpoints import checkpoints_unavailable, hand_over
from nearmetal.environments.containers.docker_image import Tree, overlays
from nearmetal.environments.program import read_pid
from nearmetal.environments.registry import get_backend
from nearmetal.errors import RunError
from nearmetal.host import LocalHost
from nearmetal.model.study import Environment


def offer(monkeypatch: pytest.MonkeyPatch, directory: Path, name: str, says: str) -> None:
    """Put a program on PATH that says a line, and let no answer of an earlier daemon count."""
    (program := directory / name).write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{directory}/socket")


def test_a_daemon_that_is_not_experimental_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer(monkeypatch, tmp_path, "docker", "false")
    refused = checkpoints_unavailable(LocalHost())
    assert refused is not None and "experimental" in refused.reason and "daemon.json" in refused.remedy


@pytest.mark.parametrize("there", [True, False])
def test_containerd_that_does_not_find_criu_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool
) -> None:
    offer(monkeypatch, tmp_path, "docker", "true")
    monkeypatch.setattr(docker_checkpoints, "named", {"containerd": [41, 42]}.__getitem__)
    environ = {41: [], 42: ["A=b", f"PATH={tmp_path}/programs", ""]}
    monkeypatch.setattr(docker_checkpoints, "words_of", lambda pid, file: environ[pid])
    (programs := tmp_path / "programs").mkdir()
    if there:
        offer(monkeypatch, programs, "criu", "")
    refused = checkpoints_unavailable(LocalHost())
    assert (refused is None) == there
    assert refused is None or f"{tmp_path}/programs" in refused.reason


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("crun version 1.28 +SYSTEMD +YAJL", "this crun is built without CRIU, as in Debian 12"),
        ("crun version 1.9.2 +CRIU +YAJL", "this crun gives CRIU no further options"),
    ],
)
def test_a_crun_that_cannot_write_checkpoints_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, reason: str
) -> None:
    offer(monkeypatch, tmp_path, "crun", says)
    environment = Environment(name="e", backend="crun", placements=())
    backend: Any = get_backend("crun")
    refused = backend.refuses_checkpoint(LocalHost(), environment)
    assert refused.reason == reason and "backend runc" in refused.remedy


IDENTITY = "5b" * 32


def runc_of(monkeypatch: pytest.MonkeyPatch, *words: str, **children: str) -> None:
    """Let process 7 be a runc with these words, and with children in these states."""
    files = {(1, "cgroup"): [f"4:memory:/nearmetal-x/{IDENTITY}\n"], (7, "cmdline"): ["runc", *words, ""]}
    states = {number: [state] for number, state in enumerate(children.values(), start=70)}
    monkeypatch.setattr(docker_runc, "words_of", lambda *key: files[key])
    monkeypatch.setattr(docker_runc, "named", {"runc": [7]}.__getitem__)
    monkeypatch.setattr(docker_runc, "children", {7: list(states)}.__getitem__)
    monkeypatch.setattr(docker_runc, "stat_fields", states.__getitem__)


@pytest.mark.parametrize(
    ("command", "criu", "ended", "stuck"),
    [
        ("checkpoint", "S", True, True),
        ("checkpoint", "S", False, False),
        ("checkpoint", "Z", True, False),  # CRIU has ended as well: runc removes the container
        ("delete", "S", True, False),
    ],
)
def test_a_dump_is_stuck_if_criu_goes_on_without_the_first_process(
    monkeypatch: pytest.MonkeyPatch, command: str, criu: str, ended: bool, stuck: bool
) -> None:
    runc_of(monkeypatch, command, IDENTITY, criu=criu)
    monkeypatch.setattr(docker_runc, "ends", lambda pid: ended)
    assert (docker_checkpoints.watch_dump(1)(3) != "") == stuck


@pytest.mark.parametrize(
    ("command", "criu", "stuck"),
    [("restore", "Z", True), ("restore", "S", False), ("checkpoint", "Z", False)],
)
def test_a_restore_is_stuck_if_runc_has_not_noticed_the_end_of_criu(
    monkeypatch: pytest.MonkeyPatch, command: str, criu: str, stuck: bool
) -> None:
    runc_of(monkeypatch, command, IDENTITY, criu=criu, first="S")
    assert docker_runc.stuck_restores() == ({IDENTITY: 7} if stuck else {})


@pytest.mark.parametrize(("text", "pid"), [("12\n", 12), ("0\n", None), ("", None), ("x", None)])
def test_a_container_that_has_ended_has_no_pid(tmp_path: Path, text: str, pid: int | None) -> None:
    """Docker says 0, which would mean the whole process group of nearmetal where a process is ended."""
    (file := tmp_path / "pid").write_text(text)
    assert read_pid(file) == pid


def test_a_container_that_can_be_checkpointed_has_its_own_shared_memory(tmp_path: Path) -> None:
    common: dict[str, Any] = {"image": "i", "mounts": [], "seat": None, "groups": None}
    plain = container_words(request(), BINDS, **common)
    assert plain[plain.index("--ipc") + 1] == "private" and "--shm-size" in plain
    kept = container_words(replace(request(), layer=tmp_path), BINDS, **common)
    assert kept[kept.index("--ipc") + 1] == "none" and "--shm-size" not in kept
    assert any(word.startswith("/dev/shm:") for word in kept)


def test_the_layer_of_a_source_is_kept(tmp_path: Path) -> None:
    """Its copy is there before the destination is made, if that is prepared late."""
    (tree := tmp_path / "tree" / "etc").mkdir(parents=True)
    (written := tmp_path / "layer/upper/etc/written").parent.mkdir(parents=True)
    written.touch()
    found = Tree(root=tree.parent, links={}, directories={"etc": 0o755}, full=("etc",))
    (_, mount) = overlays(found, tmp_path / "layer")
    assert f"upperdir={written.parent}" in mount and written.exists()


def test_the_files_of_a_checkpoint_are_handed_over(tmp_path: Path) -> None:
    (images := tmp_path / "images").mkdir()
    (images / "pages-1.img").write_bytes(b"memory")
    (images / "directory").mkdir()
    (tmp_path / "container").mkdir()
    hand_over(images, files := tmp_path / "container" / "checkpoints" / "name")
    assert [file.name for file in files.iterdir()] == ["pages-1.img"]
    assert (files / "pages-1.img").read_bytes() == b"memory"
    assert files.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(RunError, match="not restored: No such file or directory"):
        hand_over(images, tmp_path / "gone" / "checkpoints" / "name")

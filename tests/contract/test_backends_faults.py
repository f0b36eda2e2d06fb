"""What container programs do when they are killed, hang, are missing or are asked for too much: a clear
error or a clean end, and nothing left. As root; the contract as a user is in
test_backends_unprivileged.py."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.answers import checked
from tests.contract.test_backends import HOST, Rig, gone, out

from nearmetal.environments import Tools, Unavailable, program
from nearmetal.environments.containers import docker, docker_daemon, docker_image
from nearmetal.environments.leftovers import find_all, remove_any
from nearmetal.environments.registry import get_backend
from nearmetal.errors import NearmetalError
from nearmetal.host.processes import labelled as processes

PACKAGES = {"runc": "runc", "crun": "crun", "podman": "podman", "docker": "docker.io"}
"""Debian's package by backend; the program has the backend's name."""

pytestmark = [
    pytest.mark.more,
    pytest.mark.beside,
    pytest.mark.skipif(os.geteuid() != 0, reason="these backends are tested as root"),
]


@pytest.fixture(params=PACKAGES)
def rig(request: pytest.FixtureRequest, tools: Tools, tmp_path: Path) -> Iterator[Rig]:
    if request.param == "docker":
        request.getfixturevalue("docker")
    answer = checked(request.param, tools)
    assert not isinstance(answer, Unavailable), answer
    rig = Rig(backend=get_backend(request.param), tools=tools, directory=tmp_path, user_namespace=None)
    yield rig
    assert find_all(HOST, rig.label + "-") == ()


def test_kill_9_of_the_program_in_the_middle(rig: Rig) -> None:
    with rig.instance() as instance:
        program = processes.descendant(os.getpid(), rig.backend.name)
        assert program is not None
        os.kill(program, signal.SIGKILL)
        assert gone(program)
        assert not gone(os.getpid(), 0.01)
    assert gone(instance.pid)


def test_kill_9_of_the_first_process(rig: Rig) -> None:
    with rig.instance() as instance:
        os.kill(instance.pid, signal.SIGKILL)
        assert gone(instance.pid)
        assert not HOST.run(instance.command(["true"]), timeout=600).ok


def test_a_command_ends_with_who_asked_for_it(rig: Rig, tmp_path: Path) -> None:
    """Not only at the end of the instance: else it would disturb what is measured next."""
    with rig.instance() as instance:
        argv = instance.command(["sleep", "3600"])
        asked = HOST.start(argv, stdout=tmp_path / "out", stderr=tmp_path / "err", cwd=Path("/"))
        end = time.monotonic() + 600
        # A process may end between the two steps of this: listing them, and reading their names.
        names = "cat /proc/[0-9]*/comm 2>/dev/null || :"
        while "sleep" not in (now := out(instance, "sh", "-c", names)).split():
            assert time.monotonic() < end, now
        asked.kill()
        while "sleep" in (now := out(instance, "sh", "-c", names)).split():
            assert time.monotonic() < end, now


def test_a_program_that_hangs_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = rig.directory / "bin" / rig.backend.name
    hanging.parent.mkdir()
    hanging.write_text("#!/bin/sh\nsleep 7200\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(program, "START_TIMEOUT", 0.5)
    for module in (docker, docker_daemon, docker_image):
        monkeypatch.setattr(module, "COMMAND_TIMEOUT", 0.5)
    with monkeypatch.context() as path:
        path.setenv("PATH", f"{hanging.parent}:{os.environ['PATH']}")
        with pytest.raises(NearmetalError), rig.instance():
            pass


def test_a_name_too_long_is_an_error(rig: Rig) -> None:
    with pytest.raises(NearmetalError, match=r"host name .* longer than 63"), rig.instance("a" * 70):
        pass


def test_an_instance_of_an_image_sees_its_tree_and_leaves_it_as_it_was(rig: Rig) -> None:
    tree = rig.directory / "tree"
    for name in ("bin", "dev", "etc", "proc", "run", "sys", "tmp", "usr"):
        (tree / name).mkdir(parents=True)
    (tree / "etc/mark").write_text("of the image\n")
    (tree / "usr/mark").symlink_to("../etc/mark")
    shutil.copy(rig.tools / "nm-box", tree / "bin/box")
    environment = replace(rig.environment(), image="tested")
    with rig.instance(environment=environment, tree=tree) as instance:
        root = Path(f"/proc/{instance.pid}/root")
        assert (root / "usr/mark").resolve() and (root / "etc/mark").read_text() == "of the image\n"
        assert not (root / "home").exists()
        done = HOST.run(instance.command(["/bin/box", "nonsense"]), timeout=600)
        assert done.returncode == 111 and "usage: nm-box" in done.stderr
        (root / "etc/written").write_text("inside")
    assert sorted(p.name for p in (tree / "etc").iterdir()) == ["mark"]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_program_is_named_with_its_package(
    name: str, tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = get_backend(name).check(HOST, tools)
    assert isinstance(answer, Unavailable)
    assert answer.reason == f"{name} is not installed"
    assert PACKAGES[name] in answer.remedy.split()


def test_no_daemon_answers(tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    answer = get_backend("docker").check(HOST, tools)
    assert isinstance(answer, Unavailable)
    assert "Cannot connect" in answer.reason and answer.remedy == "systemctl start docker"
    assert find_all(HOST, "nearmetal-nobody") == ()


def test_a_container_that_a_daemon_keeps_is_found_by_its_name(
    docker: None, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a power cut leaves it: made, never removed."""
    assert not isinstance(checked("docker", tools), Unavailable)
    name = f"nearmetal-kept{os.getpid()}"
    images = HOST.run(["docker", "images", "--quiet", "nearmetal-skeleton"], timeout=600).stdout.split()
    made = HOST.run(["docker", "create", "--name", name, images[0], "/bin/true"], timeout=600)
    assert made.ok, made
    (found,) = find_all(HOST, name)
    assert (found.kind, found.name, found.detail) == ("container", name, "docker")
    remove_any(HOST, found)
    remove_any(HOST, found)
    assert find_all(HOST, name) == ()

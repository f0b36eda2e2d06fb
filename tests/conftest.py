"""What all suites share: the parts of the tests, and one Docker daemon and one real image in a session.

`make test` runs the part "core" and `make test-all` the part "more", which is everything else but the long
part "apart": make test-lifecycle, make test-cluster and make test-xen run that. A test belongs to the part of
the nearest marker `core`, `more` or `apart` on itself, its class or its file; without one, to "core".
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.crun_program import write_crun
from tests.docker_daemon import docker_daemon

from nearmetal.host.notes import notes_locked

# Interrupted or terminated tests first undo what their fixtures have made. SIGINT is set too, because shells
# start background commands with SIGINT ignored, and programs started by the tests would inherit that.
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.default_int_handler)
# Under nohup the tests go on without a terminal, but the programs that they start do not inherit that.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
NEARMETAL = str(Path(sys.executable).parent / "nearmetal")
NAME = "debian-mpi"
# How long an example takes to draw or to run says how busy the machine is, no more.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", choices=("core", "more", "apart"), help="run only this part of the tests; default: all"
    )
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Runs of the tests are noted in a state directory of their own."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A daemon that answers, where there can be one."""
    with docker_daemon(tmp_path_factory.mktemp("docker")):
        yield


@pytest.fixture
def notes_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Undo notes of this process are in a directory of the test."""
    monkeypatch.setattr("nearmetal.host.notes.ROOT_STATE", tmp_path / "notes/nearmetal")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "notes"))
    with notes_locked():  # makes it
        return tmp_path / "notes/nearmetal"


@pytest.fixture
def crun(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that can write checkpoints is on PATH."""
    if os.geteuid() == 0:
        write_crun(directory := tmp_path_factory.mktemp("crun"))
        monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text): the bytes of text are those of expected/<name> beside the test.

    `pytest --update-golden` with the test writes the file anew; then read its diff.
    """

    def check(name: str, text: str) -> None:
        file = request.path.parent / "expected" / name
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(text.encode())
        again = f"pytest {request.path.name} --update-golden"
        assert file.is_file(), f"{name} is missing: {again}"
        assert text.encode() == file.read_bytes(), f"{name} differs: {again}"

    return check


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--part")
    if wanted is None:
        return
    config.hook.pytest_deselected(items=[item for item in items if part_of(item) != wanted])
    items[:] = [item for item in items if part_of(item) == wanted]


def part_of(item: pytest.Item) -> str:
    """Return the name of the nearest of these markers: iter_markers() begins with the test itself."""
    parts = ("core", "more", "apart")
    return next((mark.name for mark in item.iter_markers() if mark.name in parts), "core")


@dataclass(frozen=True, kw_only=True)
class RealImage:
    """cache: XDG_CACHE_HOME with the image in it; facts: what the build said; busy: of a second builder by
    the first; left: labelled processes after the first was killed; half: whether its tree lay there; listed:
    what image list said then."""

    cache: Path
    facts: dict[str, Any]
    busy: subprocess.CompletedProcess[str]
    left: tuple[str, ...]
    half: bool
    listed: str

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "XDG_CACHE_HOME": str(self.cache)}


def nearmetal(env: dict[str, str], *words: str, timeout: float = 1800) -> subprocess.CompletedProcess[str]:
    """Run the tool as a user would."""
    return subprocess.run(
        [NEARMETAL, *words], env=env, capture_output=True, text=True, timeout=timeout, check=False
    )


def cache_with_programs(directory: Path) -> dict[str, str]:
    """Return an environment whose cache is in this directory, and has nothing but the programs that were
    compiled for this machine: compiling them again in each cache takes minutes on a busy machine."""
    from nearmetal.host.runtime import user_cache
    from nearmetal.workloads.build import RECORD

    for build in (user_cache() / "nearmetal").glob(f"*/{RECORD}"):
        shutil.copytree(build.parent, directory / "nearmetal" / build.parent.name)
    return {**os.environ, "XDG_CACHE_HOME": str(directory)}


def labelled(prefix: str) -> tuple[str, ...]:
    from nearmetal.host.processes import labelled as processes

    return tuple(sorted(processes.labelled(lambda label: label.startswith(prefix)).values()))


@pytest.fixture(scope="session")
def debian_mpi(tmp_path_factory: pytest.TempPathFactory) -> RealImage:
    """The image debian-mpi: its build is killed in the middle, then built again as a whole."""
    cache = tmp_path_factory.mktemp("image-cache")
    env = cache_with_programs(cache)
    first = subprocess.Popen([NEARMETAL, "image", "build", NAME], env=env, stderr=subprocess.PIPE, text=True)
    with first:
        assert first.stderr is not None
        said = []
        for line in first.stderr:
            said.append(line)
            if "extracting" in line:
                break
        assert said and "extracting" in said[-1], said
        busy = nearmetal(env, "image", "build", NAME)
        first.kill()
    end = time.monotonic() + 600
    while (left := labelled(f"nearmetal-image-{first.pid}")) and time.monotonic() < end:
        time.sleep(0.05)
    half = any((cache / "nearmetal" / "images" / "making").glob("*/tree/*"))
    listed = nearmetal(env, "image", "list").stdout
    done = nearmetal(env, "image", "build", NAME, "--json")
    assert done.returncode == 0, done.stderr
    return RealImage(
        cache=cache,
        facts=json.loads(done.stdout),
        busy=busy,
        left=left,
        half=half,
        listed=listed,
    )

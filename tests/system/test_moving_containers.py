"""Moves of a user's container of runc to another host, by each method of CRIU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.criu_moves import large_pipes
from tests.patience import until
from tests.system.moving_case import ROOT, There, children, criu, state, there
from tests.system.test_moving import NAME, root, started_runc

from nearmetal.api.moves import moving
from nearmetal.errors import RunError, UnavailableError
from nearmetal.lifecycle import Method

pytestmark = [pytest.mark.apart, pytest.mark.no_run, ROOT]
__all__ = ["criu", "root", "state", "there"]
MOVES = (Method.CRIU, Method.CRIU_PAGESERVER, Method.CRIU_LAZY)
CONTAINERS = Path("/run/runc")


@pytest.fixture(scope="module", autouse=True)
def pipes() -> Iterator[None]:
    with large_pipes():
        yield


class Container:
    """A container of a user's that counts.

    inside: words in front of a command on the other host.
    """

    def __init__(self, root: Path, inside: list[str]) -> None:
        self.out, self.inside, self.name = root / "data" / "out", inside, f"runc:{started_runc(root)}"
        until(lambda: self.count() > 2, "the program")

    def count(self) -> int:
        """How far it is. It has gone on as it was, and only one copy of it writes."""
        lines = self.out.read_text().split() if self.out.exists() else []
        assert lines == [str(i + 1) for i in range(len(lines))]
        return len(lines)

    def goes_on(self) -> None:
        before = self.count()
        until(lambda: self.count() > before + 2, "the program to go on")

    def runs(self, *inside: str) -> bool:
        done = subprocess.run([*inside, "runc", "state", NAME], capture_output=True, text=True, check=False)
        return done.returncode == 0 and json.loads(done.stdout)["status"] == "running"

    @property
    def runs_here(self) -> bool:
        return self.runs()

    @property
    def runs_there(self) -> bool:
        return self.runs(*self.inside)


@pytest.fixture
def container(root: Path, there: There, tmp_path: Path) -> Iterator[Container]:
    """The other host has containers, and a bundle with a control group, of its own."""
    if shutil.which("runc") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("runc is not installed")
    inside = ["nsenter", f"--target={children(there.daemon.pid)[0]}", "--mount", "--pid"]
    bundle, own = root.parent, tmp_path / "bundle"
    own.mkdir()
    CONTAINERS.mkdir(exist_ok=True)
    made = Container(root, inside)
    config = json.loads((bundle / "config.json").read_text())
    config["linux"]["cgroupsPath"] = f"/{NAME}-there"
    (own / "config.json").write_text(json.dumps(config))
    for words in (
        ["mount", "-t", "tmpfs", "tmpfs", str(CONTAINERS)],
        ["mount", "--bind", str(own / "config.json"), str(bundle / "config.json")],
    ):
        subprocess.run([*inside, *words], check=True)
    try:
        yield made
    finally:
        for where in (inside, []):
            subprocess.run([*where, "runc", "delete", "--force", NAME], check=False, capture_output=True)


@pytest.mark.parametrize("method", MOVES)
def test_a_container_moves_to_another_host(
    container: Container, there: There, state: Path, method: Method
) -> None:
    done = moving.migrate(container.name, "there", moving.MoveOptions(method=method))
    assert done.now == f"{container.name} at there" and done.images is None
    assert done.downtime is not None and 0 < done.downtime <= done.total
    container.goes_on()
    assert container.runs_there and not container.runs_here
    assert not list((state / "checkpoints").iterdir()) and not there.left()


def test_a_bundle_that_is_missing_there_is_said_before_the_container_stops(
    container: Container, there: There, root: Path, state: Path
) -> None:
    subprocess.run([*container.inside, "mount", "-t", "tmpfs", "none", str(root.parent)], check=True)
    with pytest.raises(UnavailableError, match=f"bundle: {root.parent} contains no config.json") as refused:
        moving.migrate(container.name, "there", moving.MoveOptions())
    assert refused.value.where == "there" and "copy the bundle" in refused.value.remedy
    assert container.runs_here and not (state / "checkpoints").exists(), "no dump has begun"


@pytest.mark.parametrize("method", MOVES)
def test_it_continues_here_if_the_restore_there_fails(
    container: Container, there: There, state: Path, method: Method
) -> None:
    there.make_criu('[ "$1" != swrk ] || exit 9')
    with pytest.raises(RunError, match=r"was not moved to there, and continues here"):
        moving.migrate(container.name, "there", moving.MoveOptions(method=method))
    container.goes_on()
    assert container.runs_here and not container.runs_there and not there.left()
    logs_only = [p.suffix for p in (state / "checkpoints").rglob("*") if p.is_file()]
    assert set(logs_only) <= {".log"}

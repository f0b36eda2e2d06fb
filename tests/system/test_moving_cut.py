"""Moves of a user's process to a host behind a link that is cut: packets vanish, and nobody says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.criu_moves import large_pipes
from tests.patience import until
from tests.system.moving_case import (
    ROOT,
    Program,
    There,
    another_host,
    at_moment,
    criu,
    moved_by_a_tool,
    state,
    waits_for,
)

from nearmetal.lifecycle import Method

pytestmark = [pytest.mark.apart, pytest.mark.no_run, ROOT]
__all__ = ["criu", "state"]
METHODS = (Method.CRIU, Method.CRIU_PAGESERVER, Method.CRIU_LAZY)
HERE, THERE = "192.0.2.1", "192.0.2.2"


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A link between two network namespaces.

    here, there: words in front of a command that runs in one of them.
    """

    here: tuple[str, ...]
    there: tuple[str, ...]

    def cut(self) -> None:
        """Take the link down at the far end. The near end has no carrier, and loses what it sends."""
        subprocess.run([*self.there, "ip", "link", "set", "eth0", "down"], check=True)


@pytest.fixture
def wire() -> Iterator[Wire]:
    names = [f"nmcut{os.getpid()}{side}" for side in "ab"]
    # Not by ip, which gives a command a mount namespace of its own, as CRIU would have to write.
    enter = [("nsenter", f"--net=/run/netns/{name}") for name in names]
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        pair = ["link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", names[1]]
        subprocess.run(["ip", "-n", names[0], *pair], check=True)
        for name, address in zip(names, (HERE, THERE), strict=True):
            for words in (
                ["address", "add", f"{address}/24", "dev", "eth0"],
                ["link", "set", "eth0", "up"],
                ["link", "set", "lo", "up"],
            ):
                subprocess.run(["ip", "-n", name, *words], check=True)
        yield Wire(here=enter[0], there=enter[1])
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture
def program(tmp_path: Path, criu: None, wire: Wire) -> Iterator[Program]:
    made = Program(tmp_path, net=wire.here)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def there(tmp_path: Path, criu: None, wire: Wire) -> Iterator[There]:
    with large_pipes(), another_host(tmp_path, THERE, wire.there) as made:
        yield made


def cleared(there: There) -> None:
    """Nobody could reach what is left there."""
    for directory in there.left():
        shutil.rmtree(directory, ignore_errors=True)  # tests beside this one share the place


def test_it_moves_over_the_link(program: Program, there: There, wire: Wire) -> None:
    words = (str(program.pid), "there", "criu", str(there.config))
    with moved_by_a_tool(*words, env={}, net=wire.here) as tool:
        said = tool.communicate()[1]
    assert tool.returncode == 0, said
    program.goes_on()
    assert not there.left()


def test_the_link_is_cut_during_the_copy(program: Program, there: There, wire: Wire) -> None:
    """Before the restore was requested there, it continues here."""
    words = (str(program.pid), "there", "criu", str(there.config), "bandwidth=4e6", "time_limit=5")
    with moved_by_a_tool(*words, env={}, net=wire.here) as tool:
        until(lambda: not program.copies, "the end of the source")
        until(lambda: any(d.iterdir() for d in there.left()), "the copy")
        wire.cut()
        said = tool.communicate()[1]
    assert tool.returncode == 4 and "continues here" in said and "Traceback" not in said, said
    program.goes_on()
    cleared(there)


@pytest.mark.parametrize("method", METHODS)
def test_the_link_is_cut_during_the_restore(
    program: Program, there: There, wire: Wire, tmp_path: Path, method: Method
) -> None:
    """Whether it runs there cannot be known, and is said; here it is stopped, or not restored."""
    note, cut = tmp_path / "reached", tmp_path / "cut"
    env = at_moment(tmp_path, "pre-resume", f": >{note}", waits_for(cut), "sleep 1")
    there.make_criu(*(f"export {k}={v}" for k, v in env.items()))
    words = (str(program.pid), "there", method.value, str(there.config))
    with moved_by_a_tool(*words, env={}, net=wire.here) as tool:
        until(note.exists, "the restore there")
        wire.cut()
        cut.touch()
        said = tool.communicate()[1]
    assert tool.returncode == 4 and "Traceback" not in said, said
    assert "not known whether" in said or "is lost" in said, said
    assert sum(state not in "Tt" for state in program.copies.values()) <= 1, "of two one is stopped"
    cleared(there)

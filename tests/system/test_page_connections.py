"""Another user of the machine looks for a port at which CRIU serves or takes the memory of a process."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.checkpoint_case import Case, require_checkpoints

from nearmetal.environments import Criu
from nearmetal.host.runtime import scratch_directory
from nearmetal.lifecycle import Method, Phase

pytestmark = [pytest.mark.attack, pytest.mark.more, pytest.mark.beside]
LISTENS = "0A"


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path, criu: Criu) -> Iterator[Case]:
    require_checkpoints("native")
    if request.param in criu.unable:
        pytest.skip(criu.unable[request.param].reason)
    label = f"nearmetal-check-{os.getpid()}-pages"
    with scratch_directory(f"{label}-images") as root:
        made = Case(
            name="native", method=request.param, criu=criu, label=label, directory=tmp_path, root=root
        )
        made.make()
        try:
            yield made
        finally:
            made.clean()


def ports(pid: int) -> set[int]:
    """Return the TCP ports on which a process listens."""
    sockets = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(str(file.readlink()).removeprefix("socket:[").rstrip("]"))
    lines = (line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:])
    return {
        int(words[1].partition(":")[2], 16) for words in lines if words[3] == LISTENS and words[9] in sockets
    }


@pytest.mark.parametrize("case", [Method.CRIU_PAGESERVER, Method.CRIU_LAZY], indirect=True)
def test_nobody_else_can_connect_to_criu(case: Case) -> None:
    programs, found = set(), set()

    def attack(now: Phase) -> None:
        for pid in case.processes():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                programs.update({b"page-server", b"lazy-pages"} & set(command))
                found.update(ports(pid))
        for port in found:
            socket.create_connection(("127.0.0.1", port), 10).close()

    case.event(attack).run()
    assert programs and not found

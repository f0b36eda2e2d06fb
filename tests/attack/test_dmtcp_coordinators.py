"""Who reaches the network of a DMTCP job may command its coordinators, so nobody but the job reaches them:
another user of the machine could end the job otherwise, or have it write files."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.system.checkpoint_case import HOST
from tests.system.test_dmtcp_jobs import made, nothing_is_left

from nearmetal.environments import Backend, Unavailable
from nearmetal.environments.containers.namespaces import Namespaces
from nearmetal.environments.containers.runc import Runc
from nearmetal.environments.dmtcp import Dmtcp, find_dmtcp, processes_in
from nearmetal.environments.native import Native
from nearmetal.lifecycle import Phase

pytestmark = [
    pytest.mark.attack,
    pytest.mark.beside,
    pytest.mark.no_run,
    pytest.mark.skipif(os.geteuid() != 0, reason="an instance with a first process of its own needs root"),
]


def attacking(place: Path, attack: Callable[[int], None], attacked: list[int]) -> Callable[[Phase], None]:
    """Attack the coordinators at the source and at the destination while both run."""

    def notify(phase: Phase) -> None:
        if phase is Phase.DUMP:
            for file in sorted((place / "scratch").glob("*.port")):
                attacked.append(int(file.read_text()))
                attack(attacked[-1])

    return notify


@pytest.mark.parametrize("backend", [Native(), Namespaces()], ids=lambda backend: backend.name)
def test_nobody_connects_to_what_listens_at_all_addresses(tmp_path: Path, backend: Backend) -> None:
    def attack(port: int) -> None:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 10)

    attacked: list[int] = []
    case = made(tmp_path, "", attacking(tmp_path, attack, attacked), backend)
    case.event.run()
    assert len(attacked) == 2
    nothing_is_left(case)


@pytest.mark.parametrize("backend", [Native(), Namespaces(), Runc()], ids=lambda backend: backend.name)
def test_nobody_commands_the_coordinators_of_dmtcp(tmp_path: Path, backend: Backend) -> None:
    dmtcp = find_dmtcp(HOST)
    if isinstance(dmtcp, Unavailable):
        pytest.skip(f"{dmtcp.reason}; {dmtcp.remedy}")
    assert isinstance(dmtcp, Dmtcp)

    def attack(port: int) -> None:
        status = dmtcp.status(port)
        assert processes_in(HOST.run(status, timeout=60, cwd=Path("/")).stdout) is None
        assert not HOST.run([*status[:-1], "--kill"], timeout=60, cwd=Path("/")).ok

    attacked: list[int] = []
    case = made(tmp_path, "", attacking(tmp_path, attack, attacked), backend, dmtcp)
    assert case.event.run().passes >= 2
    assert len(attacked) == 2
    nothing_is_left(case)
